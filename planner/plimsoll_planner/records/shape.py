"""Turns a type annotation into the object that checks, reads and writes its values.

In: a type as records write it: int, float, bool, str, Decimal, a StrEnum, a record,
`T | None`, `tuple[T, ...]`, each with a bound (`bounds`) where one applies.
Out: a `Shape`. Called by `record` only. The standard library alone, because trainer and
profiler carry these types into users' images (docs/decisions/0006).

Columns of 1e5 numbers are common, so `check_many` judges a whole column with built-ins
(a set of types, min, max) and looks for the culprit only when something is wrong.
"""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any, cast

from plimsoll_planner.errors import InvalidFieldError
from plimsoll_planner.records.bounds import Entries, JsonObject, Range, Text


class Shape(ABC):
    """One kind of value; `str()` names it for messages and documentation."""

    @abstractmethod
    def check(self, value: object, path: str) -> None:
        """Raise `InvalidFieldError` unless `value` is a proper Python value."""

    def read(self, value: object, path: str) -> object:  # noqa: ARG002 - for the nested
        """Turn a JSON value into a Python value.

        What cannot be turned stays as it is: the record that receives it checks it.
        """
        return value

    def write(self, value: Any) -> object:
        """Turn a checked Python value into a JSON value."""
        return value

    def check_many(self, values: Sequence[object], path: str) -> None:
        """Check a column."""
        for place, value in enumerate(values):
            self.check(value, f"{path}[{place}]")

    def read_many(self, values: Sequence[object], path: str) -> tuple[object, ...]:
        """Read a column."""
        return tuple(
            self.read(value, f"{path}[{place}]") for place, value in enumerate(values)
        )


@dataclass(frozen=True, slots=True)
class NumberShape(Shape):
    """A whole number (`int`) or a finite number (`float`; whole ones are taken too)."""

    kind: type[int] | type[float]
    bound: Range

    def __str__(self) -> str:
        noun = "a whole number" if self.kind is int else "a finite number"
        return f"{noun} {self.bound}"

    def check(self, value: object, path: str) -> None:
        if not self._holds(value):
            raise InvalidFieldError(path, value, str(self))

    def _holds(self, value: object) -> bool:
        # bool is an int to isinstance, but not a number to us; nan is in no range.
        is_number = type(value) is int or (self.kind is float and type(value) is float)
        return is_number and self.bound.holds(value)  # type: ignore[arg-type]

    def read(self, value: object, path: str) -> object:  # noqa: ARG002 - as above
        whole = self.kind is float and type(value) is int
        return float(value) if whole and self._holds(value) else value  # type: ignore[arg-type]

    def write(self, value: float) -> object:
        # 1 and 1.0, 0.0 and -0.0 are equal, so they must be written alike.
        return value if self.kind is int else float(value) + 0.0

    def check_many(self, values: Sequence[Any], path: str) -> None:
        numbers = {int} if self.kind is int else {int, float}
        if values and not (
            set(map(type, values)) <= numbers
            and self.bound.holds(min(values))
            and self.bound.holds(max(values))
            # nan compares with nothing, so the two above may have missed it.
            and (self.kind is int or all(map(math.isfinite, values)))
        ):
            Shape.check_many(self, values, path)

    def read_many(self, values: Sequence[object], path: str) -> tuple[object, ...]:
        if self.kind is int or set(map(type, values)) <= {float}:
            return tuple(values)
        return Shape.read_many(self, values, path)


@dataclass(frozen=True, slots=True)
class FlagShape(Shape):
    """True or false."""

    def __str__(self) -> str:
        return "true or false"

    def check(self, value: object, path: str) -> None:
        if type(value) is not bool:
            raise InvalidFieldError(path, value, str(self))


@dataclass(frozen=True, slots=True)
class TextShape(Shape):
    """A string."""

    bound: Text

    def __str__(self) -> str:
        return str(self.bound)

    def check(self, value: object, path: str) -> None:
        if not isinstance(value, str) or not self.bound.holds(value):
            raise InvalidFieldError(path, value, str(self))


MOST_DECIMALS = 9
"""Of an amount of money; prices for a second of a device have about 5."""
PLAIN_DECIMAL = re.compile(r"(0|[1-9][0-9]*)(\.[0-9]+)?")
"""Form that a schema can state: no sign, no exponent, no digits of other scripts."""


@dataclass(frozen=True, slots=True)
class DecimalShape(Shape):
    """An exact amount of money; a decimal string in JSON, so that no cent is lost."""

    bound: Range

    def __str__(self) -> str:
        return f"a decimal number {self.bound}, in quotes"

    def check(self, value: object, path: str) -> None:
        if not (
            isinstance(value, Decimal) and value.is_finite() and self.bound.holds(value)
        ):
            raise InvalidFieldError(path, value, str(self))
        if int(value.as_tuple().exponent) < -MOST_DECIMALS:
            rule = f"at most {MOST_DECIMALS} digits after the point"
            raise InvalidFieldError(path, value, rule)

    def read(self, value: object, path: str) -> object:  # noqa: ARG002 - as above
        if isinstance(value, str) and PLAIN_DECIMAL.fullmatch(value):
            return Decimal(value)
        return value

    def write(self, value: Decimal) -> object:
        # 1.1 and 1.10 are equal, so they must be written alike.
        return f"{value.normalize() + 0:f}"


@dataclass(frozen=True, slots=True)
class ChoiceShape(Shape):
    """One word of a closed set."""

    choices: type[StrEnum]

    def __str__(self) -> str:
        return "one of " + ", ".join(self.choices)

    def check(self, value: object, path: str) -> None:
        if not isinstance(value, self.choices):
            raise InvalidFieldError(path, value, str(self))

    def read(self, value: object, path: str) -> object:  # noqa: ARG002 - as above
        return next((choice for choice in self.choices if choice == value), value)

    def write(self, value: StrEnum) -> object:
        return value.value


@dataclass(frozen=True, slots=True)
class JsonObjectShape(Shape):
    """A mapping in JSON, its text in Python: it is passed on, not looked into."""

    bound: JsonObject

    def __str__(self) -> str:
        return str(self.bound)

    def check(self, value: object, path: str) -> None:
        text = value if isinstance(value, str) else ""
        try:
            found: object = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        is_object = text.startswith("{") and text == canonical(found)
        if not is_object or len(text) > self.bound.longest:
            raise InvalidFieldError(path, value, str(self))

    def read(self, value: object, path: str) -> object:
        if not isinstance(value, dict):  # not even a string that holds a mapping
            raise InvalidFieldError(path, value, str(self))
        try:
            return canonical(cast("object", value))
        except (TypeError, ValueError, RecursionError):
            return cast("object", value)

    def write(self, value: str) -> object:
        return json.loads(value)


def canonical(value: object) -> str:
    """JSON with names in order; raises for NaN and what JSON does not have."""
    return json.dumps(value, allow_nan=False, sort_keys=True)


@dataclass(frozen=True, slots=True)
class OptionalShape(Shape):
    """A value that may be absent."""

    inner: Shape

    def __str__(self) -> str:
        return f"{self.inner}, or null"

    def check(self, value: object, path: str) -> None:
        if value is not None:
            self.inner.check(value, path)

    def read(self, value: object, path: str) -> object:
        return None if value is None else self.inner.read(value, path)

    def write(self, value: object) -> object:
        return None if value is None else self.inner.write(value)

    def check_many(self, values: Sequence[object], path: str) -> None:
        if None in values:
            Shape.check_many(self, values, path)
        else:
            self.inner.check_many(values, path)


@dataclass(frozen=True, slots=True)
class ListShape(Shape):
    """Any number of equal things: a tuple in Python, a list in JSON."""

    inner: Shape
    bound: Entries | None = None

    def __str__(self) -> str:
        most = f" of at most {self.bound.most}" if self.bound else ""
        return f"a list{most}, each {self.inner}"

    def check(self, value: object, path: str) -> None:
        if not isinstance(value, tuple):
            raise InvalidFieldError(path, value, str(self))
        entries = cast("tuple[object, ...]", value)
        if self.bound and len(entries) > self.bound.most:
            raise InvalidFieldError(path, f"{len(entries)} entries", str(self))
        self.inner.check_many(entries, path)

    def read(self, value: object, path: str) -> object:
        if not isinstance(value, list):
            return value
        return self.inner.read_many(cast("list[object]", value), path)

    def write(self, value: tuple[object, ...]) -> object:
        return [self.inner.write(item) for item in value]
