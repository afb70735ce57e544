"""The base of all that Plimsoll's parts exchange: checked, frozen, JSON in and out.

A subclass is a frozen, keyword-only dataclass whose annotations carry the bounds.
Making one checks every field, then the rules between fields; a record that exists is
valid. Fields with a default may be absent from JSON, so that a new field with a neutral
default keeps old documents readable; unknown fields are refused.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from decimal import Decimal
from enum import StrEnum
from types import NoneType
from typing import Annotated, Any, Self, cast, get_args, get_origin, get_type_hints

from plimsoll_planner.errors import (
    InvalidFieldError,
    MissingFieldError,
    UnknownFieldError,
)
from plimsoll_planner.records import shape
from plimsoll_planner.records.bounds import Entries, JsonObject, Range, Text


class Record:
    """Base of all records; see the module's text."""

    __slots__ = ()

    def __post_init__(self) -> None:
        """Check every field, then the rules between them."""
        name = type(self).__name__
        for field, its_shape in shapes_of(type(self)).items():
            its_shape.check(getattr(self, field), f"{name}.{field}")
        self.check_rules()

    @classmethod
    def wire_name(cls, field: str) -> str:
        """Name of a field in JSON."""
        return field

    def check_rules(self) -> None:
        """Raise `InvalidFieldError` where fields contradict each other."""

    def refuse(
        self, field: str, allowed: str, value: object = None
    ) -> InvalidFieldError:
        """Error for a field that breaks a rule between fields.

        `value` is the part that breaks it, if that is not the whole field.
        """
        value = getattr(self, field) if value is None else value
        return InvalidFieldError(f"{type(self).__name__}.{field}", value, allowed)

    def require_distinct(self, field: str, entries: Iterable[object]) -> None:
        """Raise `InvalidFieldError` unless no entry repeats another."""
        seen: set[object] = set()
        for entry in entries:
            if entry in seen:
                raise self.refuse(field, "entries that occur once", entry)
            seen.add(entry)

    def require_equal_lengths(self, field: str, *, of: str) -> None:
        """Raise `InvalidFieldError` unless every column is as long as `field`.

        `of` names what one entry stands for.
        """
        length = len(getattr(self, field))
        for path, found in column_lengths(self):
            if found != length:
                raise self.refuse(path, f"{length} entries, one for each {of}", found)

    def to_json(self) -> dict[str, object]:
        """Plain dicts, lists, strings and numbers, ready for `json`."""
        return {
            self.wire_name(field): its_shape.write(getattr(self, field))
            for field, its_shape in shapes_of(type(self)).items()
        }

    @classmethod
    def from_json(cls, value: object, path: str) -> Self:
        """Build the record from what `json` read.

        Args:
            value: a mapping with this record's fields and no others.
            path: where the mapping stands, for messages.

        Raises:
            InvalidFieldError: a field is missing, unknown, or breaks its bound.
        """
        given = mapping_of(value, path)
        shapes = shapes_of(cls)
        field_of = {cls.wire_name(field): field for field in shapes}
        for name, item in given.items():
            if name not in field_of:
                raise UnknownFieldError(f"{path}.{name}", item, nearest(name, field_of))
        for field in required_fields(cls):
            name = cls.wire_name(field)
            if name not in given:
                raise MissingFieldError(f"{path}.{name}", None, str(shapes[field]))
        fields = {
            field_of[name]: shapes[field_of[name]].read(item, f"{path}.{name}")
            for name, item in given.items()
        }
        try:
            return cls(**fields)
        except InvalidFieldError as error:
            # The record names its own field; those of records inside were named above.
            _, field, rest = re.split(r"^\w+\.(\w+)", error.path, maxsplit=1)
            place = f"{path}.{cls.wire_name(field)}{rest}"
            raise InvalidFieldError(place, error.value, error.allowed) from None


def mapping_of(value: object, path: str) -> dict[str, object]:
    """`value`, a mapping; raises `InvalidFieldError` if it is none."""
    if not isinstance(value, dict):
        raise InvalidFieldError(path, value, "a mapping of fields")
    return cast("dict[str, object]", value)


def column_lengths(record: Record, prefix: str = "") -> Iterable[tuple[str, int]]:
    """Yield path and length of every column in `record` and the records inside it."""
    for name in shapes_of(type(record)):
        value = getattr(record, name)
        if isinstance(value, tuple):
            yield prefix + name, len(cast("tuple[object, ...]", value))
        elif isinstance(value, Record):
            yield from column_lengths(value, f"{prefix}{name}.")


@dataclasses.dataclass(frozen=True, slots=True)
class RecordShape(shape.Shape):
    """A record inside a record; it has checked itself when it was made."""

    record: type[Record]

    def __str__(self) -> str:
        """Name of the record."""
        return self.record.__name__

    def check(self, value: object, path: str) -> None:
        """Refuse everything else."""
        if not isinstance(value, self.record):
            raise InvalidFieldError(path, value, str(self))

    def read(self, value: object, path: str) -> object:
        """Record from JSON."""
        return self.record.from_json(value, path)

    def write(self, value: Record) -> object:
        """JSON of the record."""
        return value.to_json()


SHAPES: dict[type, dict[str, shape.Shape]] = {}
"""Results of `shapes_of`; annotations are looked up once for each class."""


def shapes_of(record: type) -> dict[str, shape.Shape]:
    """Shape of every field of `record`, in the order of its fields."""
    if record not in SHAPES:
        hints = get_type_hints(record, include_extras=True)
        names = [field.name for field in dataclasses.fields(record)]
        SHAPES[record] = {name: shape_of(hints[name]) for name in names}
    return SHAPES[record]


def shape_of(annotation: Any) -> shape.Shape:
    """Shape of one annotation; a number or string must carry a bound."""
    if get_origin(annotation) is Annotated:
        base, bound = get_args(annotation)
        return bounded_shape(base, bound)
    if get_origin(annotation) is tuple:
        return shape.ListShape(shape_of(get_args(annotation)[0]))
    alternatives = [kind for kind in get_args(annotation) if kind is not NoneType]
    if len(alternatives) == 1:
        return shape.OptionalShape(shape_of(alternatives[0]))
    if annotation is bool:
        return shape.FlagShape()
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return shape.ChoiceShape(annotation)
    if isinstance(annotation, type) and issubclass(annotation, Record):
        return RecordShape(annotation)
    raise TypeError(f"a record cannot hold {annotation}: see records.shape")


def bounded_shape(base: Any, bound: Range | Text | JsonObject | Entries) -> shape.Shape:
    """Shape of an annotated number, amount, string or list."""
    if get_origin(base) is tuple and isinstance(bound, Entries):
        return shape.ListShape(shape_of(get_args(base)[0]), bound)
    if base is str and isinstance(bound, Text):
        return shape.TextShape(bound)
    if base is str and isinstance(bound, JsonObject):
        return shape.JsonObjectShape(bound)
    if base is Decimal and isinstance(bound, Range):
        return shape.DecimalShape(bound)
    if base in (int, float) and isinstance(bound, Range):
        return shape.NumberShape(base, bound)
    raise TypeError(f"{base} cannot have the bound {bound}")


REQUIRED: dict[type, tuple[str, ...]] = {}
"""Results of `required_fields`, once for each class."""


def required_fields(record: type) -> tuple[str, ...]:
    """Fields without a default."""
    missing = dataclasses.MISSING
    if record not in REQUIRED:
        REQUIRED[record] = tuple(
            field.name
            for field in dataclasses.fields(record)
            if field.default is missing and field.default_factory is missing
        )
    return REQUIRED[record]


def nearest(name: str, fields: Iterable[str]) -> str:
    """Advice: the field that was probably meant, or all of them."""
    import difflib  # noqa: PLC0415 - for errors alone

    names = list(fields)
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"did you mean {close[0]}?"
    return "the fields are " + ", ".join(names)
