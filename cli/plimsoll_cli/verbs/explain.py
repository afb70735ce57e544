"""`plimsoll explain`: why this count and not fewer, from an answer that was written."""

from __future__ import annotations

from pathlib import Path

import click

from plimsoll_cli.errors import NothingMatchesError
from plimsoll_cli.options.files import read_answer
from plimsoll_cli.options.types import COUNT, PATH
from plimsoll_cli.output.answer_tables import (
    TUPLES_LESS_IMPORTANT,
    tuples_legend,
    tuples_table,
)
from plimsoll_cli.output.console import Output, output_option, print_json, say
from plimsoll_cli.output.tables import print_table
from plimsoll_planner.text.explain import count_text
from plimsoll_planner.text.explain import explain as explained


@click.command()
@click.argument("solution", type=PATH)
@click.option("--gpus", type=COUNT, help="List every combination of this count.")
@output_option
def explain(solution: Path, gpus: int | None, output: str) -> None:
    """Show why the answer in SOLUTION is the fewest; written by `plan --solution`."""
    answer = read_answer(solution)
    certificate = answer.certificate
    if gpus is not None and gpus > len(certificate.counts):
        raise NothingMatchesError(
            f"no count {gpus} in {solution}: it has 1 to {len(certificate.counts)}"
        )
    if output == Output.JSON:
        shown = certificate if gpus is None else certificate.counts[gpus - 1]
        print_json(shown.to_json())
    elif gpus is None:
        say(*explained(answer))
    else:
        count = certificate.counts[gpus - 1]
        say(count_text(count, certificate.space), "")
        table = tuples_table(count, certificate.space.offers)
        print_table(table, less_important=TUPLES_LESS_IMPORTANT)
        say("", *tuples_legend(count))
