"""`plimsoll get`: the plans of this home, and where each one stands."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import click
from rich.table import Table

from plimsoll_cli.homes import home_option, open_home
from plimsoll_cli.output import (
    Output,
    format_bytes,
    new_table,
    output_option,
    print_table,
    say,
)
from plimsoll_cli.presence import Presence, presence_of
from plimsoll_operator.api.status import ConditionType, Status, Truth
from plimsoll_operator.backends.local.state_dir import HomeFolder
from plimsoll_operator.store.plans import StoredPlan
from plimsoll_planner.plan_texts import duration_text

LESS_IMPORTANT = ("AGE", "ATTEMPT", "ERROR", "PEAK")
Looked = tuple[StoredPlan, Presence]
FOR_PEOPLE = ("Suspended", "InvalidSpec")
"""States in which a plan is left, and a person is asked for."""


@click.command()
@home_option
@output_option
def get(home: Path, output: str) -> None:
    """List the plans of this home, the newest first."""
    found = asyncio.run(plans_of(home.absolute()))
    if output == Output.JSON:
        click.echo(json.dumps([plan_json(*one) for one in found], indent=2))
    elif found:
        print_table(plan_list(found, time.time()), less_important=LESS_IMPORTANT)
    else:
        say(f"no plans in {home}; `plimsoll run plan.yaml` begins one")


async def plans_of(root: Path) -> tuple[Looked, ...]:
    """Return all plans of a home; none where nothing was ever run."""
    if HomeFolder(root).is_new:
        return ()
    async with open_home(root) as home:
        before = await home.store.plans.all()
        found = {plan.uid: presence_of(home.folder, plan) for plan in before}
        plans = await home.store.plans.all()  # begun meanwhile, it is watched
        return tuple((plan, found.get(plan.uid, Presence.WATCHED)) for plan in plans)


def plan_json(plan: StoredPlan, presence: Presence) -> dict[str, object]:
    """Return a plan as Kubernetes would write it, and what the home knows besides."""
    return {
        "metadata": {
            "name": plan.name,
            "uid": plan.uid,
            "generation": plan.generation,
        },
        "spec": plan.spec.to_json(),
        "status": plan.status.to_json(),
        "home": {
            "state": state_text(plan, presence),
            "isRun": presence is Presence.WATCHED,
        },
    }


def plan_list(plans: tuple[Looked, ...], now_s: float) -> Table:
    """Draw one row for each plan."""
    table = new_table(
        (
            *(("NAME", "left"), ("STATE", "left"), ("DEVICES", "right")),
            *(("PEAK", "right"), ("ERROR", "right"), ("ATTEMPT", "right")),
            ("AGE", "right"),
        )
    )
    for plan, presence in plans:
        status = plan.status
        observed = status.observed
        table.add_row(
            plan.name,
            state_text(plan, presence),
            str(status.plan.gpus) if status.plan else "-",
            format_bytes(observed.peak_bytes) if observed else "-",
            f"{observed.error_percent:.2g} %" if observed else "-",
            str(status.attempt or "-"),
            duration_text(now_s - plan.created_s),
        )
    return table


def state_text(plan: StoredPlan, presence: Presence) -> str:
    """Return where a plan stands: the step it is at, and whether it goes on."""
    if plan.status.is_over:
        return state_of(plan.status)
    state = "Suspended" if plan.is_suspended else state_of(plan.status)
    if presence is Presence.WATCHED:
        return state
    if presence is not Presence.GONE:
        what = "Ended" if presence is Presence.ENDED else state
        return f"{what}, unwatched"
    return state if state in FOR_PEOPLE else "Interrupted"


def state_of(status: Status) -> str:
    """Return the reason of the first step that is not True, or of the last one."""
    ended = status.condition(ConditionType.SUCCEEDED)
    if ended is None:
        return "New"
    if ended.status is not Truth.UNKNOWN:
        return ended.reason
    open_ones = [c for c in status.conditions if c.status is not Truth.TRUE]
    told = [c for c in open_ones if c.reason != "Waiting"]
    return (told or open_ones)[0].reason
