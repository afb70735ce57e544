"""A record that exists is valid: fields are checked when it is made."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_planner.errors import InvalidFieldError, shorten
from plimsoll_planner.records.bounds import (
    LARGEST_INTEGER,
    Bytes,
    Count,
    Entries,
    Fraction,
    JsonObject,
    Name,
    Price,
    Range,
    Seconds,
)
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.record import Record, shapes_of


class Colour(StrEnum):
    """A closed set for the tests."""

    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample(Record):
    """One field of every shape."""

    size: Bytes = 1
    part: Fraction = 0.5
    name: Name = "a"
    price: Price = Decimal("1.10")
    colour: Colour = Colour.RED
    flag: bool = False
    maybe: Count | None = None
    sizes: tuple[Bytes, ...] = ()
    times: tuple[Seconds, ...] = ()
    few: Annotated[tuple[Count, ...], Entries(most=2)] = ()
    free: Annotated[str, JsonObject(longest=20)] = "{}"


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("size", -1, "a whole number at least 0 and at most 2^53 - 1 bytes"),
        ("size", LARGEST_INTEGER + 1, "at most 2^53 - 1 bytes"),
        ("size", 1.0, "a whole number"),
        ("size", True, "a whole number"),
        ("size", "1", "a whole number"),
        ("part", 1.5, "a finite number at least 0 and at most 1"),
        ("part", math.nan, "a finite number"),
        ("part", math.inf, "a finite number"),
        ("part", 10**400, "a finite number"),
        ("name", "", "printable text"),
        ("name", "a\nb", "printable text"),
        ("name", "\ud800", "printable text"),
        ("name", "\x9b31m", "printable text"),
        ("name", "a" * 257, "1 to 256 characters"),
        ("price", Decimal("-0.01"), "a decimal number at least 0"),
        ("price", Decimal("NaN"), "a decimal number"),
        ("price", 1.5, "in quotes"),
        ("price", Decimal("1e-10"), "at most 9 digits after the point"),
        ("price", Decimal("1e-999999"), "at most 9 digits after the point"),
        ("colour", "red", "one of red, blue"),
        ("flag", 1, "true or false"),
        ("maybe", 0, "a whole number at least 1 and at most 2^53 - 1"),
        ("sizes", [1], "a list, each a whole number"),
        ("few", [1], "a list of at most 2, each a whole number"),
    ],
)
def test_a_value_out_of_bounds_is_refused(field: str, value: Any, allowed: str) -> None:
    """The message names the field, the value and the bound."""
    with pytest.raises(InvalidFieldError) as caught:
        Sample(**{field: value})
    assert caught.value.path == f"Sample.{field}"
    assert shorten(value) in str(caught.value)
    assert allowed in str(caught.value)


def test_a_list_may_have_a_bound() -> None:
    """The message counts the entries, and does not show them all."""
    assert Sample(few=(1, 2)).few == (1, 2)
    with pytest.raises(InvalidFieldError, match="got '3 entries', allowed is a list"):
        Sample(few=(1, 2, 3))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("price", "1e2"),
        ("price", "-0"),
        ("price", "+1"),
        ("price", " 1"),
        ("price", "1_0"),
        ("price", "01"),
        ("price", "1."),
        ("price", ".5"),
        ("price", "\u0661"),
        ("price", "Infinity"),
        ("free", "{}"),
        ("free", None),
    ],
)
def test_json_is_read_in_one_notation(field: str, value: object) -> None:
    """One that a schema can state: other readers of a document agree."""
    with pytest.raises(InvalidFieldError, match=rf"Sample\.{field}: got "):
        Sample.from_json({field: value}, "Sample")


@pytest.mark.parametrize(
    ("field", "column", "place"),
    [
        ("sizes", (1, 2, -3), 2),
        ("sizes", (1, 2.0), 1),
        ("sizes", (True,), 0),
        ("times", (0.1, math.nan, 0.2), 1),
        ("times", (math.inf,), 0),
        ("times", (0.1, "0.2"), 1),
    ],
)
def test_the_culprit_in_a_column_is_named(field: str, column: Any, place: int) -> None:
    """A column is judged as a whole, and the message still names the entry."""
    with pytest.raises(InvalidFieldError) as caught:
        Sample(**{field: column})
    assert caught.value.path == f"Sample.{field}[{place}]"


@given(
    size=st.integers(0, LARGEST_INTEGER),
    part=st.floats(0, 1),
    price=st.decimals(0, 10**9, allow_nan=False, places=4),
    colour=st.sampled_from(Colour),
    maybe=st.none() | st.integers(1, LARGEST_INTEGER),
    sizes=st.lists(st.integers(0, LARGEST_INTEGER)).map(tuple),
    times=st.lists(st.floats(0, 1e10)).map(tuple),
)
def test_every_value_in_bounds_survives_json(**fields: Any) -> None:
    """Values in bounds are taken, and read back as they were."""
    sample = Sample(**fields)
    assert Sample.from_json(sample.to_json(), "Sample") == sample


@given(
    column=st.lists(
        st.one_of(
            st.integers(),
            st.floats(),
            st.booleans(),
            st.none(),
            st.integers(0, 9),
            st.floats(0, 9),
            st.just(10**400),
        ),
        max_size=4,
    ).map(tuple)
)
@pytest.mark.parametrize("field", ["sizes", "times"])
def test_a_column_is_judged_like_its_entries(field: str, column: Any) -> None:
    """The fast check of columns and the check of single values always agree."""
    shape = shapes_of(Sample)[field].inner  # type: ignore[attr-defined]

    def is_refused(value: Any) -> bool:
        try:
            shape.check(value, "x")
        except InvalidFieldError:
            return True
        return False

    entry_refused = any(map(is_refused, column))
    try:
        Sample(**{field: column})
    except InvalidFieldError:
        assert entry_refused
    else:
        assert not entry_refused


def test_whole_numbers_are_fine_where_any_number_is() -> None:
    """JSON writers drop the `.0`; reading gives it back."""
    sample = Sample.from_json({"part": 1, "times": [1, 0.5]}, "Sample")
    assert (type(sample.part), sample.times) == (float, (1.0, 0.5))
    assert type(sample.times[0]) is float


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"part": 1}, {"part": 1.0}),
        ({"part": 0.0}, {"part": -0.0}),
        ({"price": Decimal("1.1")}, {"price": Decimal("1.100")}),
        ({"price": Decimal(0)}, {"price": Decimal("-0.00")}),
        ({"price": Decimal("1e2")}, {"price": Decimal(100)}),
        ({"times": (1,)}, {"times": (1.0,)}),
    ],
    ids=repr,
)
def test_equal_records_are_written_alike(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    """Otherwise equal plans would have different digests."""
    assert Sample(**one) == Sample(**other)
    assert digest_of(Sample(**one)) == digest_of(Sample(**other))


def test_an_unbounded_field_is_a_mistake() -> None:
    """A number without a bound is refused when its class is first used."""

    @dataclass(frozen=True, kw_only=True, slots=True)
    class Careless(Record):
        """Forgot the bound."""

        size: int

    with pytest.raises(TypeError, match="cannot hold"):
        shapes_of(Careless)


def test_a_bound_of_the_wrong_kind_is_a_mistake() -> None:
    """A string has no numeric range."""

    @dataclass(frozen=True, kw_only=True, slots=True)
    class Confused(Record):
        """A range on a string."""

        name: Annotated[str, Range(minimum=0)]

    with pytest.raises(TypeError, match="cannot have the bound"):
        shapes_of(Confused)


def test_a_changed_copy_is_checked_again() -> None:
    """`dataclasses.replace` cannot smuggle a bad value in."""
    with pytest.raises(InvalidFieldError):
        dataclasses.replace(Sample(), size=-1)
