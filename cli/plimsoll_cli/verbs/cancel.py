"""`plimsoll cancel`: stop a plan, whoever runs it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from plimsoll_cli.options.home import home_option
from plimsoll_cli.output.console import Output, output_option, print_json, say
from plimsoll_cli.output.run_view import RunView
from plimsoll_cli.state.state_dir import StateDir, open_existing
from plimsoll_operator.api.status import ConditionType, Status, Truth
from plimsoll_operator.backends.local.loop import Loop
from plimsoll_operator.errors import AlreadyRunningError

WAIT_S = 0.5
"""Between two checks whether the plan still runs."""


@click.command()
@click.argument("name")
@home_option
@output_option
def cancel(name: str, home: Path, output: str) -> None:
    """Let the ranks of NAME save and leave; `plimsoll run` goes on."""
    outcome = asyncio.run(cancel_here(home.absolute(), name))
    if output == Output.JSON:
        print_json({"name": name, "outcome": outcome})
    else:
        say(f"{name} {outcome}")


async def cancel_here(root: Path, name: str) -> str:
    """Stop a plan, whoever runs it; the outcome in words."""
    async with open_existing(root) as home:
        plan = await home.plan(name)
        if plan.status.is_over:
            return "is over: there is nothing to stop"
        await stopped(home, name)
        return stopped_text((await home.plan(name)).status)


def stopped_text(status: Status) -> str:
    """Outcome of a plan that was asked to stop."""
    ended = status.condition(ConditionType.SUCCEEDED)
    if ended is None or ended.status is Truth.UNKNOWN:
        return "is stopped, and nothing of it runs; `plimsoll run` goes on"
    if ended.status is Truth.TRUE:
        return "had finished before it could be stopped"
    why = ": ".join(filter(None, (ended.reason, ended.message)))
    return f"had failed before it could be stopped: {why}"


async def stopped(home: StateDir, name: str) -> None:
    """Wait until nothing of a plan runs any more.

    Whoever begins to run it meanwhile is asked again, and again.
    """
    is_printed = False
    while True:
        plan = await home.plan(name)
        await home.store.plans.set_suspended(plan.uid, is_suspended=True)
        try:
            with home.folder.locked(name), RunView(is_brief=True) as view:
                backend = home.backend(await home.plan(name))
                await Loop(backend=backend, watcher=view, is_stopping=True).run()
        except AlreadyRunningError:
            if not is_printed:
                click.echo(
                    f"{name} is asked to stop; its ranks save and leave", err=True
                )
                is_printed = True
            await asyncio.sleep(WAIT_S)
        else:
            return
