"""What can go wrong with data, as a tree; every message is one line.

    PlimsollError                 root of all packages; the CLI prints it and exits
    └── InvalidInputError         somebody handed us something that breaks a rule
        ├── InvalidFieldError     one field: its path, its value, its bound
        ├── SchemaVersionError    a document written by a newer Plimsoll
        └── UnreadableError       no such file, no JSON, no table

Whoever reads input at the rim (CLI, operator, ingest) catches `InvalidInputError` and
answers with its text. Infeasible is a result (`records.solution`), not an error.
"""

from __future__ import annotations


class PlimsollError(Exception):
    """Root of every error that Plimsoll raises on purpose."""


class InvalidInputError(PlimsollError, ValueError):
    """Input breaks a rule; the text says which one and what to do next."""


class InvalidFieldError(InvalidInputError):
    """One field is wrong. Attributes say where, what was given and what is allowed."""

    def __init__(self, path: str, value: object, allowed: str) -> None:
        """Keep the parts, so that a report can show them apart.

        Args:
            path: where, as in `HybridPlan.stages[1].micro_batch`.
            value: what was given; long values are shortened in the text.
            allowed: the rule it breaks, as in `at least 1`.
        """
        self.path = path
        self.value = value
        self.allowed = allowed
        super().__init__(f"{path}: got {shorten(value)}, allowed is {allowed}")

    def __reduce__(self) -> tuple[object, ...]:
        """Rebuild from the parts when the error crosses a process border."""
        return (type(self), (self.path, self.value, self.allowed))


class SchemaVersionError(InvalidInputError):
    """A document states a schema version that this release does not read."""


class UnreadableError(InvalidInputError):
    """A file is missing, or its content is not the format it should be."""


LONGEST_VALUE_SHOWN = 80
"""Characters of a value that an error quotes."""


def shorten(value: object) -> str:
    """Return `value` as text that is safe to print on one line."""
    try:
        text = repr(value)
    except ValueError:  # an integer beyond the digits Python agrees to print
        text = f"a {type(value).__name__} too long to print"
    if len(text) > LONGEST_VALUE_SHOWN:
        text = text[: LONGEST_VALUE_SHOWN - 3] + "..."
    return text
