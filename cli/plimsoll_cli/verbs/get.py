"""`plimsoll get`: the plans of a state directory, and where each one stands."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import click

from plimsoll_cli.output.console import Output, output_option, print_json, say
from plimsoll_cli.output.tables import format_bytes, print_table, table_of
from plimsoll_cli.state.liveness import Liveness, liveness_of, plan_json, state_text
from plimsoll_cli.state.state_dir import home_option, open_state_dir
from plimsoll_operator.backends.local.state_dir import StateFolder
from plimsoll_operator.store.plans import StoredPlan
from plimsoll_planner.text.plans import duration_text

LESS_IMPORTANT = ("AGE", "ATTEMPT", "ERROR", "PEAK")


@click.command()
@home_option
@output_option
def get(home: Path, output: str) -> None:
    """List the plans of the state directory, the newest first."""
    found = asyncio.run(plans_of(home.absolute()))
    if output == Output.JSON:
        print_json([plan_json(*one) for one in found])
    elif found:
        table = table_of([plan_cells(*one) for one in found], left=("NAME", "STATE"))
        print_table(table, less_important=LESS_IMPORTANT)
    else:
        say(f"no plans in {home}; `plimsoll run plan.yaml` begins one")


async def plans_of(root: Path) -> tuple[tuple[StoredPlan, Liveness], ...]:
    """All plans of a state directory; none if nothing was ever run."""
    if StateFolder(root).is_new:
        return ()
    async with open_state_dir(root) as home:
        before = await home.store.plans.all()
        found = {plan.uid: liveness_of(home.folder, plan) for plan in before}
        plans = await home.store.plans.all()  # begun meanwhile, it is watched
        return tuple((plan, found.get(plan.uid, Liveness.WATCHED)) for plan in plans)


def plan_cells(plan: StoredPlan, liveness: Liveness) -> dict[str, str]:
    """The cells of one plan."""
    status, observed = plan.status, plan.status.observed
    return {
        "NAME": plan.name,
        "STATE": state_text(plan, liveness),
        "DEVICES": str(status.plan.gpus) if status.plan else "-",
        "PEAK": format_bytes(observed.peak_bytes) if observed else "-",
        "ERROR": f"{observed.error_percent:.2g} %" if observed else "-",
        "ATTEMPT": str(status.attempt or "-"),
        "AGE": duration_text(time.time() - plan.created_s),
    }
