"""`plimsoll report`: everything about one plan as a single page."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import click

from plimsoll_cli.options.files import require_places, write_text
from plimsoll_cli.options.grid import grid_limit_s, grid_options
from plimsoll_cli.options.types import PATH
from plimsoll_cli.output.console import Output, at_work, output_option, print_json, say
from plimsoll_cli.output.grid_search import with_grid
from plimsoll_cli.report.page import report_html
from plimsoll_cli.state.run_record import RunRecord
from plimsoll_cli.state.source import Place, place_options
from plimsoll_planner.records.solution import Solution


@click.command()
@click.argument("name")
@click.option("--html", type=PATH, help="Where the page goes.  [default: NAME.html]")
@click.option(
    "--frontier",
    is_flag=True,
    help="Search at other speeds as well, and draw memory against speed.",
)
@grid_options("if it was searched before")
@place_options
@output_option
def report(
    name: str,
    html: Path | None,
    frontier: bool,
    grid: bool | None,
    grid_seconds: float | None,
    place: Place,
    output: str,
) -> None:
    """Write all that is known of the plan NAME as a page.

    With its memory, schedule, proof and training, in one file of HTML.
    """
    page = html or Path(f"{name}.html")
    limit_s = grid_limit_s(is_asked=grid, seconds=grid_seconds, is_usual=False)
    require_places({"--html": page})
    _, record = asyncio.run(place.source().find(name))
    if grid is not None:
        record = with_grid_or_none(record, limit_s)
    if frontier:
        with at_work("searching at other speeds"):
            record = with_frontier(record)
    write_text(page, report_html(record))
    if output == Output.JSON:
        print_json({"name": name, "page": str(page)})
    else:
        say(f"written to {page}")


def with_frontier(record: RunRecord) -> RunRecord:
    """The record with memory against speed in its answer, if that has a plan."""
    # Imported here, for most reports need no search.
    from plimsoll_planner.search.frontier import frontier_of  # noqa: PLC0415

    answer = record.answer
    problem = record.problem_of(answer.plan) if isinstance(answer, Solution) else None
    if problem is None or not isinstance(answer, Solution):
        say("there is no plan yet: memory against speed is left out")
        return record
    if problem.places_operators:
        say("operators are placed one by one: memory against speed is left out")
        return record
    frontier = frontier_of(problem, answer.plan)
    return replace(record, answer=replace(answer, frontier=frontier))


def with_grid_or_none(record: RunRecord, limit_s: float | None) -> RunRecord:
    """The record with a grid that is searched now, or with none."""
    problem, answer = record.problem, record.answer
    if problem is None or answer is None:
        say("there is no answer yet: other counts and micro-batches are left out")
        return record
    if limit_s is None:
        return replace(record, answer=replace(answer, grid=None))
    return replace(record, answer=with_grid(problem, answer, limit_s))
