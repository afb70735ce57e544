"""Writes docs/formats.md from the records, so that the two cannot drift apart.

In: the record classes, their bounds and the sentences below their fields. Out: one
table for each record. Run by `make docs`; tests/gates/test_formats.py compares.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from plimsoll_operator.api.sentences import sentences
from plimsoll_planner import records
from plimsoll_planner.records.document import Document
from plimsoll_planner.records.record import Record, required_fields, shapes_of

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "formats.md"
HEADER = """\
# Formats

Made from the records by `make docs`; do not edit.

Documents are JSON and stand alone in a file or a message: they open with `kind` and
`schema_version` (now 1, of a ModelProfile 2), also where one is nested in another. All
other tables are records inside documents. An unknown field, a field given twice, a
number out of its bounds and a newer version are refused; a field with a default may be
left out. Columns of one table have equal lengths: entry i of each belongs to row i.
"""


def record_classes() -> list[type[Record]]:
    """Every record in reading order: by module, then as it stands there."""
    order = [module.name for module in pkgutil.iter_modules(records.__path__)]
    modules = [importlib.import_module(f"{records.__name__}.{name}") for name in order]
    found = [
        kind
        for module in modules
        for kind in vars(module).values()
        if inspect.isclass(kind) and kind.__module__ == module.__name__
        if issubclass(kind, Record) and hasattr(kind, "__dataclass_fields__")
    ]
    return sorted(found, key=lambda kind: not issubclass(kind, Document))


def section(kind: type[Record]) -> Iterator[str]:
    """Yield the lines of one record's section."""
    yield f"\n## {kind.__name__}\n"
    yield inspect.cleandoc(kind.__doc__ or "") + "\n"
    meaning, required = sentences(kind), required_fields(kind)
    rows = [
        (
            f"`{name}`",
            str(shape) + ("" if name in required else "; has a default"),
            meaning.get(name, ""),
        )
        for name, shape in shapes_of(kind).items()
    ]
    yield from table(("field", "value", "meaning"), rows)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table."""
    yield f"| {' | '.join(header)} |"
    yield "|---" * len(header) + "|"
    for cells in rows:
        yield f"| {' | '.join(cells)} |"


def page() -> str:
    """Whole page."""
    lines = [line for kind in record_classes() for line in section(kind)]
    return HEADER + "\n".join(lines) + "\n"


if __name__ == "__main__":
    TARGET.write_text(page())
