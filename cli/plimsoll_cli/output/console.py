"""The terminal, and the choice between a table for people and JSON for machines."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from enum import StrEnum

import click
from rich.console import Console
from rich.text import Text

from plimsoll_planner.vocabulary import IN_OPTIONS, Vocabulary

PAGE_WIDTH = 160
"""Columns of a table that goes to a file or a pipe."""


class Output(StrEnum):
    """Forms of the output of a command."""

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
    """The terminal, or a wide page where there is none.

    What tables show may come from somebody's file, so nothing in it is markup.
    """
    width = shutil.get_terminal_size((PAGE_WIDTH, 0)).columns
    return Console(highlight=False, markup=False, emoji=False, width=width)


def say(*lines: str, words: Vocabulary = IN_OPTIONS) -> None:
    """Print lines that wrap at the terminal; fields that they name in `words`."""
    page = console()
    for line in lines:
        for part in Text(words.text(line)).wrap(page, page.width) or [Text()]:
            part.rstrip()
            page.print(part, soft_wrap=True)


@contextmanager
def at_work(what: str) -> Generator[None]:
    """Show on a terminal what is under way, and for how long; nothing in a log."""
    page = Console(stderr=True, highlight=False, markup=False, emoji=False)
    if not page.is_terminal:
        yield
        return
    # Imported here, for most commands are done before anybody would look.
    from rich import progress as bars  # noqa: PLC0415

    shown = bars.TextColumn("{task.description}"), bars.TimeElapsedColumn()
    with bars.Progress(
        bars.SpinnerColumn(), *shown, console=page, transient=True
    ) as page_bars:
        page_bars.add_task(what, total=None)
        yield


@contextmanager
def line_by_line() -> Generator[Callable[[str], None]]:
    """Show what is under way: on a terminal in one line, in a log in a line each."""
    page = Console(stderr=True, highlight=False, markup=False, emoji=False)
    if not page.is_terminal:
        yield lambda text: click.echo(text, err=True)
        return
    with page.status("searching") as status:
        yield status.update


def print_json(value: object) -> None:
    """Print plain data for machines."""
    click.echo(json.dumps(value, indent=2))
