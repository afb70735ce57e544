"""`plimsoll describe`: one plan, with its conditions, its proof and its memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import click
from rich.table import Table

from plimsoll_cli.output.console import Output, output_option, print_json, say
from plimsoll_cli.output.plan_page import (
    checkpoint_lines,
    outcome_lines,
    plan_lines,
    show_answer,
)
from plimsoll_cli.output.tables import new_table, print_table
from plimsoll_cli.state.run_record import RunRecord
from plimsoll_cli.state.shown_plan import ShownPlan, plan_json, state_text
from plimsoll_cli.state.source import Place, place_options
from plimsoll_operator.rules.summary import revision_status, revision_text

CONDITION_HEADINGS = ("CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE")
ATTEMPT_HEADINGS = ("ATTEMPT", "DEVICES", "ENDED", "WHY")
REVISION_HEADINGS = ("ATTEMPT", "REVISED WHILE IT RAN")


@click.command()
@click.argument("name")
@place_options
@output_option
def describe(name: str, place: Place, output: str) -> None:
    """Show everything about the plan NAME."""
    plan, record = asyncio.run(place.source().find(name))
    if output == Output.JSON:
        print_json(plan_json(plan))
    else:
        show(plan, record)


def show(plan: ShownPlan, record: RunRecord) -> None:
    """Print a page for people."""
    state = state_text(plan)
    say(f"{plan.name}: {state}  (uid {plan.uid}, generation {plan.generation})")
    say(plan.code, *checkpoint_lines(record), "")
    conditions = [
        (one.type, one.status, one.reason, one.last_transition_time, one.message)
        for one in record.status.conditions
    ]
    print_table(text_table(CONDITION_HEADINGS, conditions), less_important=("SINCE",))
    shown = {condition.message for condition in record.status.conditions}
    outcome = [line for line in outcome_lines(record) if line not in shown]
    say("", *plan_lines(record), *outcome)
    show_answer(record)
    if len(record.attempts) > 1:
        attempts = [
            (str(one.number), str(one.plan.num_gpus), one.ending or "-", one.message)
            for one in record.attempts
        ]
        print_table(text_table(ATTEMPT_HEADINGS, attempts), less_important=())
    if record.revisions:
        rows = [
            (str(one.attempt), revision_text(revision_status(one.recorded)))
            for one in record.revisions
        ]
        print_table(text_table(REVISION_HEADINGS, rows), less_important=())
    say(*(f"not known here: {part}" for part in record.unknown))


def text_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Table of texts, the last of which may fold."""
    table = new_table((heading, "left") for heading in headings)
    table.columns[-1].max_width, table.columns[-1].no_wrap = 72, False
    for row in rows:
        table.add_row(*row)
    return table
