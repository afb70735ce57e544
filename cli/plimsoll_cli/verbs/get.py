"""`plimsoll get`: the plans of this home, and where each one stands."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import click
from rich.table import Table

from plimsoll_cli.output.amounts import format_bytes
from plimsoll_cli.output.console import Output, output_option, print_json, say
from plimsoll_cli.output.tables import new_table, print_table
from plimsoll_cli.state.liveness import Liveness, liveness_of
from plimsoll_cli.state.plan_state import plan_json, state_text
from plimsoll_cli.state.state_dir import home_option, open_state_dir
from plimsoll_operator.backends.local.state_dir import StateFolder
from plimsoll_operator.store.plans import StoredPlan
from plimsoll_planner.text.plans import duration_text

LESS_IMPORTANT = ("AGE", "ATTEMPT", "ERROR", "PEAK")
Looked = tuple[StoredPlan, Liveness]


@click.command()
@home_option
@output_option
def get(home: Path, output: str) -> None:
    """List the plans of this home, the newest first."""
    found = asyncio.run(plans_of(home.absolute()))
    if output == Output.JSON:
        print_json([plan_json(*one) for one in found])
    elif found:
        print_table(plan_list(found, time.time()), less_important=LESS_IMPORTANT)
    else:
        say(f"no plans in {home}; `plimsoll run plan.yaml` begins one")


async def plans_of(root: Path) -> tuple[Looked, ...]:
    """All plans of a state directory; none if nothing was ever run."""
    if StateFolder(root).is_new:
        return ()
    async with open_state_dir(root) as home:
        before = await home.store.plans.all()
        found = {plan.uid: liveness_of(home.folder, plan) for plan in before}
        plans = await home.store.plans.all()  # begun meanwhile, it is watched
        return tuple((plan, found.get(plan.uid, Liveness.WATCHED)) for plan in plans)


def plan_list(plans: tuple[Looked, ...], now_s: float) -> Table:
    """Draw one row for each plan."""
    table = new_table(
        (
            *(("NAME", "left"), ("STATE", "left"), ("DEVICES", "right")),
            *(("PEAK", "right"), ("ERROR", "right"), ("ATTEMPT", "right")),
            ("AGE", "right"),
        )
    )
    for plan, liveness in plans:
        status = plan.status
        observed = status.observed
        table.add_row(
            plan.name,
            state_text(plan, liveness),
            str(status.plan.gpus) if status.plan else "-",
            format_bytes(observed.peak_bytes) if observed else "-",
            f"{observed.error_percent:.2g} %" if observed else "-",
            str(status.attempt or "-"),
            duration_text(now_s - plan.created_s),
        )
    return table
