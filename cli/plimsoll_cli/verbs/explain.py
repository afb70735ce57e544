"""`plimsoll explain`: why this count and not fewer, from an answer of the search."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from plimsoll_cli.errors import NoAnswerError, NothingMatchesError
from plimsoll_cli.options.files import read_answer
from plimsoll_cli.options.types import COUNT
from plimsoll_cli.output.answer_tables import (
    TUPLES_LESS_IMPORTANT,
    tuples_legend,
    tuples_table,
)
from plimsoll_cli.output.console import Output, output_option, print_json, say
from plimsoll_cli.output.tables import print_table
from plimsoll_cli.state.source import Place, PlanSource, place_options
from plimsoll_planner.records.solution import Infeasible, Solution
from plimsoll_planner.text.explain import count_text
from plimsoll_planner.text.explain import explain as explained
from plimsoll_planner.text.placements import placement_lines
from plimsoll_planner.vocabulary import IN_OPTIONS, IN_SPEC


@click.command()
@click.argument("answer")
@click.option("--gpus", type=COUNT, help="List every combination of this count.")
@place_options
@output_option
def explain(answer: str, gpus: int | None, place: Place, output: str) -> None:
    """Show why ANSWER is the fewest: a file of `plan --solution`, or a plan's name."""
    is_file = not place.cluster and is_path(answer)
    if is_file:
        found = read_answer(Path(answer))
    else:
        found = asyncio.run(of_plan(place.source(), answer))
    words = IN_OPTIONS if is_file else IN_SPEC
    certificate = found.certificate
    if gpus is not None and gpus > len(certificate.counts):
        raise NothingMatchesError(
            f"no count {gpus} in {answer}: it has 1 to {len(certificate.counts)}"
        )
    if output == Output.JSON:
        shown = certificate if gpus is None else certificate.counts[gpus - 1]
        print_json(shown.to_json())
    elif gpus is None:
        say(*explained(found), words=words)
        if isinstance(found, Solution) and found.plan.placement is not None:
            say("", *placement_lines(found.plan.placement))
    else:
        count = certificate.counts[gpus - 1]
        say(count_text(count, certificate.space), "", words=words)
        table = tuples_table(count, certificate.space.offers)
        print_table(table, less_important=TUPLES_LESS_IMPORTANT)
        say("", *tuples_legend(count), words=words)


def is_path(answer: str) -> bool:
    """Whether a word is a file, or can be nothing else: names have no dot or slash."""
    return Path(answer).exists() or "." in answer or "/" in answer


async def of_plan(source: PlanSource, name: str) -> Solution | Infeasible:
    """The answer that a plan has.

    Raises:
        NoAnswerError: it has none yet, or its place does not hold it.
        NoSuchPlanError: there is no such plan.
    """
    # Imported here, for whoever reads a file needs no plan of any place.
    from plimsoll_cli.state.shown_plan import state_text  # noqa: PLC0415

    plan, record = await source.find(name)
    if record.answer is not None:
        return record.answer
    why = "; ".join(record.unknown) or "the search has not answered"
    raise NoAnswerError(
        f"no answer of plan {name}, which is {state_text(plan)}: {why}; `describe "
        f"{name}` says where it stands"
    )
