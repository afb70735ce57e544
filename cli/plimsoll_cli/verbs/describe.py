"""`plimsoll describe`: one plan, with its conditions, its proof and its memory."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click
from rich.table import Table

from plimsoll_cli.output.console import Output, output_option, print_json, say
from plimsoll_cli.output.plan_page import outcome_lines, plan_lines, show_answer
from plimsoll_cli.output.tables import new_table, print_table
from plimsoll_cli.state.gather import find_record
from plimsoll_cli.state.liveness import plan_json, state_text
from plimsoll_cli.state.run_record import RunRecord
from plimsoll_cli.state.state_dir import home_option
from plimsoll_operator.api.status import Status
from plimsoll_operator.store.plans import StoredPlan


@click.command()
@click.argument("name")
@home_option
@output_option
def describe(name: str, home: Path, output: str) -> None:
    """Show everything about the plan NAME."""
    plan, record = asyncio.run(find_record(home.absolute(), name))
    if output == Output.JSON:
        print_json(plan_json(plan, record.liveness))
    else:
        show(plan, record)


def show(plan: StoredPlan, record: RunRecord) -> None:
    """Print a page for people."""
    state = state_text(plan, record.liveness)
    say(f"{plan.name}: {state}  (uid {plan.uid}, generation {plan.generation})")
    say(f"code in {plan.folder}: {plan.spec.workload.entrypoint}", "")
    print_table(condition_table(record.status), less_important=("SINCE",))
    shown = {condition.message for condition in record.status.conditions}
    outcome = [line for line in outcome_lines(record) if line not in shown]
    say("", *plan_lines(record), *outcome)
    show_answer(record)
    if len(record.attempts) > 1:
        print_table(attempt_table(record), less_important=())


def condition_table(status: Status) -> Table:
    """Draw the conditions."""
    headings = ("CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE")
    table = new_table((heading, "left") for heading in headings)
    table.columns[-1].max_width, table.columns[-1].no_wrap = 72, False
    for condition in status.conditions:
        table.add_row(
            condition.type,
            condition.status,
            condition.reason,
            condition.last_transition_time,
            condition.message,
        )
    return table


def attempt_table(record: RunRecord) -> Table:
    """Draw the attempts."""
    headings = ("ATTEMPT", "DEVICES", "ENDED", "WHY")
    table = new_table((heading, "left") for heading in headings)
    table.columns[-1].max_width, table.columns[-1].no_wrap = 72, False
    for attempt in record.attempts:
        ending = attempt.ending.value if attempt.ending else "-"
        devices = str(attempt.plan.num_gpus)
        table.add_row(str(attempt.number), devices, ending, attempt.message)
    return table
