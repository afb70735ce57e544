"""`plimsoll report`: everything about one plan as a single page."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from plimsoll_cli.options.files import require_places, write_text
from plimsoll_cli.options.types import PATH
from plimsoll_cli.output.console import say
from plimsoll_cli.report.page import report_html
from plimsoll_cli.state.gather import find_record
from plimsoll_cli.state.state_dir import home_option


@click.command()
@click.argument("name")
@click.option("--html", type=PATH, help="Where the page goes.  [default: NAME.html]")
@home_option
def report(name: str, html: Path | None, home: Path) -> None:
    """Write all that is known of the plan NAME as a page.

    With its memory, schedule, proof and training, in one file of HTML.
    """
    place = html or Path(f"{name}.html")
    require_places({"--html": place})
    _, record = asyncio.run(find_record(home.absolute(), name))
    write_text(place, report_html(record))
    say(f"written to {place}")
