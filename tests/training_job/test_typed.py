"""Arguments are of the types that a function declares, or it is not called."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("torch")

from plimsoll_planner.records.bounds import Count, Fraction, Name
from plimsoll_planner.records.record import Record
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.typed import Names, fields_of, typed


@typed
def declared(
    model: Name,
    *,
    length: Count = 8,
    rate: float = 0.5,
    packing: bool = True,
    names: Names | None = None,
    others: Mapping[str, Any] | str = "",
) -> tuple[object, ...]:
    """Give back what is given."""
    return model, length, rate, packing, names, others


def test_values_of_the_declared_types_are_passed_on() -> None:
    """A list as a tuple; what is declared otherwise as it is."""
    assert declared("a") == ("a", 8, 0.5, True, None, "")
    found = declared("a", length=2, rate=1, names=["x", "y"], others=3)  # type: ignore[arg-type]
    assert found == ("a", 2, 1.0, True, ("x", "y"), 3)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"model": 5}, "model: got 5, allowed is printable text, 1 to 256"),
        ({"length": "32"}, "length: got '32', allowed is a whole number at least 1"),
        ({"length": 0}, "length: got 0, allowed is a whole number at least 1"),
        ({"length": True}, "length: got True, allowed is a whole number"),
        ({"rate": "fast"}, "rate: got 'fast', allowed is a finite number"),
        ({"rate": float("nan")}, "rate: got nan, allowed is a finite number"),
        ({"packing": "false"}, "packing: got 'false', allowed is true or false"),
        ({"names": "one"}, "names: got 'one', allowed is a list, each printable text"),
    ],
)
def test_others_are_refused(given: dict[str, Any], said: str) -> None:
    """With the argument, the value and what is allowed."""
    with pytest.raises(WorkloadError, match=re.escape(said)):
        declared(**({"model": "a"} | given))


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts(Record):
    """An argument of several fields."""

    rank: Count
    dropout: Fraction = 0.0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (8, "lora: got 8, allowed is a mapping of fields"),
        ({}, "lora.rank: this field is missing; allowed is a whole number"),
        ({"rank": True}, "lora.rank: got True, allowed is a whole number"),
        ({"rank": 8, "dropout": 1.5}, "lora.dropout: got 1.5, allowed is a finite"),
        ({"rank": 8, "drop_out": 0.1}, "lora.drop_out: no such field; did you mean"),
    ],
)
def test_fields_of_an_argument_are_judged_alike(given: object, said: str) -> None:
    """With their place."""
    with pytest.raises(WorkloadError, match=re.escape(said)):
        fields_of(Parts, given, "lora")
    assert fields_of(Parts, {"rank": 8}, "lora").dropout == 0.0
