"""Errors in data, as a tree; every text is one printable line.

    PlimsollError                     root of all packages; the CLI prints it and exits
    └── InvalidInputError             somebody handed us something that breaks a rule
        ├── InvalidFieldError         one field: its path, its value, its bound
        │   ├── UnknownFieldError     a name that the record does not have
        │   └── MissingFieldError     a field without a default is absent
        ├── SchemaVersionError        a document written by a newer Plimsoll
        ├── CannotPlanError           valid, but nothing that the search can judge
        └── UnreadableError           no such file, no JSON, no table

Whoever reads input at the rim (CLI, operator, ingest) catches `InvalidInputError` and
answers with its text. Infeasible is a result (`records.solution`), not an error.
"""

from __future__ import annotations

import dataclasses
import errno
import reprlib
from decimal import Decimal
from enum import Enum

LONGEST_TEXT = 1000
"""Characters of an error; names that somebody else chose may be of any length."""
LONGEST_VALUE = 80
"""Characters of a value that an error quotes."""
DEBUG_VARIABLE = "PLIMSOLL_DEBUG"
"""Set where the tracebacks of profiling and training processes are wanted."""
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
"""Errors of the system after which a write works once there is room."""


class PlimsollError(Exception):
    """Root of every error that Plimsoll raises on purpose."""

    def __init__(self, text: str) -> None:
        """Keep the text as one printable line: parts of it come from outside."""
        super().__init__(one_line(text))


class InvalidInputError(PlimsollError, ValueError):
    """Input breaks a rule; the text says which one and what to do next."""


class InvalidFieldError(InvalidInputError):
    """One field is wrong. Attributes say where, what was given and what is allowed."""

    def __init__(self, path: str, value: object, allowed: str) -> None:
        """Keep the parts: path `Plan.stages[1].micro_batch`, rule `at least 1`."""
        self.path = path
        self.value = value
        self.allowed = allowed
        super().__init__(self.text())

    def text(self) -> str:
        """Text of the error."""
        given = "nothing" if self.value is None else shorten(self.value)
        return f"{self.path}: got {given}, allowed is {self.allowed}"

    def __reduce__(self) -> tuple[object, ...]:
        """Rebuild from the parts when the error crosses a process border."""
        return (type(self), (self.path, self.value, self.allowed))


class UnknownFieldError(InvalidFieldError):
    """A record has no such field; `allowed` names the nearest one, or all."""

    def text(self) -> str:
        """Text of the error."""
        return f"{self.path}: no such field; {self.allowed}"


class MissingFieldError(InvalidFieldError):
    """A field that has no default is absent."""

    def text(self) -> str:
        """Text of the error."""
        return f"{self.path}: this field is missing; allowed is {self.allowed}"


class SchemaVersionError(InvalidInputError):
    """A document states a schema version that this release does not read."""


class CannotPlanError(InvalidInputError):
    """A question that the search cannot judge: a rate that no one stated, a graph."""


class UnreadableError(InvalidInputError):
    """A file is missing, or its content is not the format it should be."""


def shorten(value: object) -> str:
    """`value` as text of bounded length and depth; a record by its name."""
    if dataclasses.is_dataclass(value):
        return f"a {type(value).__name__}"
    if isinstance(value, Decimal):
        value = str(value)  # as it was written: in quotes
    if isinstance(value, Enum):
        value = str(value.value)
    brief = reprlib.Repr()
    brief.maxlevel = 3
    brief.maxstring = brief.maxother = brief.maxlong = LONGEST_VALUE
    text = brief.repr(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 3] + "..."


def one_line(text: str) -> str:
    """`text` of bounded length, control characters of a terminal escaped."""
    escaped = "".join(
        mark if mark.isprintable() else mark.encode("unicode_escape").decode()
        for mark in text[: LONGEST_TEXT + 1]
    )
    cut = len(escaped) > LONGEST_TEXT
    return escaped[: LONGEST_TEXT - 3] + "..." if cut else escaped
