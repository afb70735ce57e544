"""Errors and texts about a question, in the words of whoever asked it.

In: an error with the path of a field in a record, `Problem.limits.max_gpus`, or a text
that names a field in backticks, `limits.max_gpus`. Out: the same with the name that the
reader knows: `--max-gpus`, or `spec.search.maxGPUs`. Called where options or a spec
become a question, and where an answer is shown.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from plimsoll_planner.errors import InvalidFieldError
from plimsoll_planner.search_fields import FIELDS, INPUTS, RECORDS

MARKED: Final = re.compile(r"`([a-z_.]+)`")
"""Mark of a name in a text."""
PART_OF: Final = {record.__name__: part for part, record in RECORDS.items()}


class Vocabulary:
    """The names of the fields of a question for one kind of reader."""

    def __init__(self, names: dict[str, str]) -> None:
        """Keep the names, by the path of their record."""
        self.names = names

    def text(self, text: str) -> str:
        """A text with this reader's names in the place of those it marks."""
        return MARKED.sub(lambda found: self.names.get(found[1], found[0]), text)

    def path(self, path: str) -> str:
        """This reader's name of a field; other paths, as of a file, stay."""
        record, _, field = path.partition(".")
        field, bracket, place = field.partition("[")
        part = PART_OF.get(record)
        whole = f"{part}.{field}" if part else field
        if part is None or whole not in self.names:
            return path
        return f"{self.names[whole]}{bracket}{place}"

    @contextmanager
    def errors(self) -> Generator[None]:
        """Errors about fields of a question, raised in the words of this reader."""
        try:
            yield
        except InvalidFieldError as error:
            path, allowed = self.path(error.path), self.text(error.allowed)
            raise type(error)(path, error.value, allowed) from None


ROWS: Final = (*INPUTS, *FIELDS)
IN_OPTIONS: Final = Vocabulary({row.record: row.option for row in ROWS})
"""The words of the command line."""
IN_SPEC: Final = Vocabulary({row.record: row.spec or row.record for row in ROWS})
"""The words of a TrainingPlan; what it does not set keeps its path."""
