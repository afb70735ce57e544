"""Tables of any width: what does not fit is left out, and no number is cut.

In: headings and rows. Out: lines on the terminal. Called by every verb that lists.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import partial

from rich.console import Console, JustifyMethod
from rich.table import Column, Table
from rich.text import Text

from plimsoll_cli.output.console import console, say
from plimsoll_planner.records.engine import OptimizerHome, Sharding
from plimsoll_planner.units import UNITS, number_text

WIDER_THAN_ANY = 10_000
"""Columns of no terminal, to measure what a table wants."""
BARS = ""
"""The heading of a column of bars, which repeats a number."""
USUAL = {
    "TENSOR": "1",
    "SHARDED": str(Sharding.NONE),
    "OPTIMIZER": str(OptimizerHome.DEVICE),
}
"""Cells, by heading, of plans without a technique."""
EASY_FOLDED, LEAST_FOLDED = 32, 8
"""Columns of a cell that folds: as long as there is something else to leave out, and at
last."""


def new_table(headings: Iterable[tuple[str, JustifyMethod]]) -> Table:
    """Start a table in the style of all of them; a column of bars has no heading."""
    table = Table(box=None, header_style="bold", pad_edge=False, collapse_padding=True)
    for heading, justify in headings:
        table.add_column(heading, justify=justify, no_wrap=True)
    return table


def table_of(rows: Sequence[Mapping[str, str]], *, left: Container[str]) -> Table:
    """A table of at least one row; all have the same headings, numbers are set right.

    `left` are the headings of columns that are set flush left.
    """
    table = new_table((name, "left" if name in left else "right") for name in rows[0])
    for row in rows:
        table.add_row(*row.values())
    return table


def telling_columns(rows: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """The rows without columns of nothing but dashes, or what plans usually have."""
    telling = [
        name
        for name in rows[0]
        if any(row[name] not in {"-", USUAL.get(name)} for row in rows)
    ]
    return [{name: row[name] for name in telling} for row in rows]


def money(amount: Decimal | None, currency: str | None) -> str:
    """An amount for a cell, a dash where it is not known."""
    return "-" if amount is None else f"{amount:.2f} {currency}"


def print_table(table: Table, *, less_important: Sequence[str]) -> None:
    """Print a table; what does not fit is left out, and no number is cut.

    Bars go first, headings are stacked, cells that may fold do so, then columns go, the
    first of `less_important` first. What is still too wide is left to the terminal.
    """
    page = console()
    steps: list[Callable[[Table], Table]] = [
        partial(without, heading=BARS),
        with_stacked_headings,
        partial(folded, width=page.width, least=EASY_FOLDED),
        *(partial(without, heading=heading) for heading in less_important),
        partial(folded, width=page.width, least=LEAST_FOLDED),
    ]
    caption, table.caption = table.caption, None
    for narrowed in steps:
        if width_of(table) <= page.width:
            break
        table = narrowed(table)
    for line in drawn(table):
        page.print(line, soft_wrap=True)
    say(*([str(caption)] if caption else []))


def drawn(table: Table) -> list[Text]:
    """The lines of a table, as wide as it wants, without blanks at the end."""
    page = Console(highlight=False, markup=False, emoji=False, width=WIDER_THAN_ANY)
    lines = [
        Text.assemble(*((piece.text, piece.style or "") for piece in line))
        for line in page.render_lines(table, pad=False)
    ]
    for line in lines:
        line.rstrip()
    return lines


def width_of(table: Table) -> int:
    """The columns of the terminal that a table takes."""
    return max(line.cell_len for line in drawn(table))


def without(table: Table, *, heading: str) -> Table:
    """A table without one column."""
    gone = {heading, stacked(heading)}
    return of_columns([c for c in table.columns if str(c.header).strip() not in gone])


def with_stacked_headings(table: Table) -> Table:
    """A table with the words of each heading below each other."""
    headings = [stacked(str(column.header)) for column in table.columns]
    if not any("\n" in heading for heading in headings):
        return table
    for column, heading in zip(table.columns, headings, strict=True):
        column.header = heading if "\n" in heading else f"\n{heading}"
    return table


def stacked(heading: str) -> str:
    """A heading in two lines, where it has two words."""
    return re.sub("(-| )(?!.*[- ])", lambda found: f"{found[0].strip()}\n", heading)


def folded(table: Table, *, width: int, least: int) -> Table:
    """A table whose cells fold where they may, as much as they must."""
    excess = width_of(table) - width
    for column in table.columns:
        if not column.no_wrap and column.max_width:
            taken = max(len(str(cell)) for cell in column.cells)
            taken = min(taken, column.max_width) - excess
            column.max_width, column.overflow = max(taken, least), "fold"
    return table


def of_columns(columns: Sequence[Column]) -> Table:
    """A table of some columns; rich keeps the places of those that are left."""
    table = new_table((str(column.header), column.justify) for column in columns)
    for column, old in zip(table.columns, columns, strict=True):
        column.no_wrap, column.overflow = old.no_wrap, old.overflow
        column.max_width = old.max_width
    for row in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*row)
    return table


def format_bytes(num_bytes: int) -> str:
    """Bytes as people read them, `80.0 GiB`; exact bytes stay in JSON."""
    for unit, size in reversed(UNITS.items()):
        if num_bytes >= size:
            return f"{num_bytes / size:.{int(size > 1)}f} {unit}"
    return "0 B"


def format_flop(flop: float) -> str:
    """Arithmetic as people read it, `6.32 TFLOP`, in powers of 1000."""
    for unit, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if flop >= size:
            return f"{number_text(flop / size, 3)} {unit}FLOP"
    return f"{number_text(flop, 3)} FLOP"
