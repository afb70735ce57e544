"""Declares the fields of a spec that the table of search fields names.

In: a section of the spec as a class, and `FIELDS`. Out: the class with a field for each
row whose path lies in it: type, bound and default of the record, floats as decimals,
the meaning from the row. Called where the spec is declared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar, get_args

from plimsoll_operator.api.record import ApiRecord
from plimsoll_planner.search_fields import FIELDS, SearchField
from plimsoll_planner.vocabulary import IN_SPEC, Vocabulary

IN_CODE = Vocabulary({path: f"`{name}`" for path, name in IN_SPEC.names.items()})
"""Names as documents set them."""
Section = TypeVar("Section", bound="type[SearchSection]")


class SearchSection(ApiRecord):
    """Base of a section whose fields are rows of the table."""

    __slots__ = ()
    row_meanings: ClassVar[dict[str, str]]

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """A field of a row."""


def with_search_fields(section: str) -> Callable[[Section], Section]:
    """Declare the rows of the section at a path; the class may retype a row."""

    def declare(kind: Section) -> Section:
        rows, own = dict(rows_of(section)), kind.__annotations__
        kind.__annotations__ = {
            name: own.get(name, in_decimals(row.annotation))
            for name, row in rows.items()
        } | own
        for name, row in rows.items():
            is_float = isinstance(row.default, float)
            setattr(kind, name, Decimal(str(row.default)) if is_float else row.default)
        kind.row_meanings = {n: IN_CODE.text(row.help) for n, row in rows.items()}
        return kind

    return declare


def rows_of(section: str) -> Iterator[tuple[str, SearchField]]:
    """Yield the rows of a section, and the field of each."""
    for row in FIELDS:
        place, _, name = row.spec.rpartition(".")
        if place == section:
            yield field_name(name), row


def field_name(name: str) -> str:
    """The field of a name in a manifest: `max_gpus` of `maxGPUs`."""
    return re.sub("[A-Z]+", lambda found: f"_{found[0]}", name).lower()


def in_decimals(annotation: Any) -> Any:
    """A type of a record as a manifest has it: no floats, readers round them apart."""
    parts = get_args(annotation)
    if NoneType in parts:
        return in_decimals(next(one for one in parts if one is not NoneType)) | None
    if parts and parts[0] is float:
        return Annotated[(Decimal, *parts[1:])]
    return annotation
