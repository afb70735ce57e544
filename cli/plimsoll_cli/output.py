"""The choice between a table for people and JSON for machines, and units for people."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum

import click
from rich.console import Console, JustifyMethod
from rich.table import Table

from plimsoll_cli.option_types import UNITS

WIDER_THAN_ANY = 10_000
"""Columns of no terminal, to measure what a table wants."""
PAGE_WIDTH = 160
"""Columns of a table that goes to a file or a pipe."""


class Output(StrEnum):
    """What a command prints."""

    TABLE = "table"
    JSON = "json"


output_option = click.option(
    "--output",
    "-o",
    type=click.Choice([choice.value for choice in Output]),
    default=Output.TABLE.value,
    show_default=True,
    help="A table for people or JSON for machines.",
)


def console() -> Console:
    """Return the terminal, or a wide page where there is none.

    What tables show may come from somebody's file, so nothing in it is markup.
    """
    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() else 0
    if not width:
        on_terminal = sys.stdout.isatty()
        width = shutil.get_terminal_size().columns if on_terminal else PAGE_WIDTH
    return Console(highlight=False, markup=False, emoji=False, width=width)


def new_table(headings: Iterable[tuple[str, JustifyMethod]]) -> Table:
    """Start a table in the style of all of them."""
    table = Table(
        box=None,
        header_style="bold",
        pad_edge=False,
        collapse_padding=True,
        caption_justify="left",
    )
    for heading, justify in headings:
        table.add_column(heading, justify=justify, no_wrap=True)
    return table


def print_table(table: Table, *, less_important: Sequence[str]) -> None:
    """Print a table, without its less important columns where they do not fit.

    Args:
        table: what to print.
        less_important: headings, the first of them left out first.
    """
    page = console()
    unbounded = page.options.update(width=WIDER_THAN_ANY)
    for heading in less_important:
        if page.measure(table, options=unbounded).maximum <= page.width:
            break
        table.columns = [c for c in table.columns if c.header != heading]
    page.print(table)


def format_bytes(num_bytes: int) -> str:
    """Return bytes as people read them, `80.0 GiB`; exact bytes stay in JSON."""
    for unit, size in reversed(UNITS.items()):
        if num_bytes >= size:
            return f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes} B"
