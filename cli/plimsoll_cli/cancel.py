"""`plimsoll cancel` and `plimsoll delete`: stop a plan, or forget it."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

import click

from plimsoll_cli.errors import PlanUnderWayError
from plimsoll_cli.homes import Home, home_option, open_old_home
from plimsoll_cli.output import say
from plimsoll_cli.run_view import RunView
from plimsoll_operator.api.status import ConditionType, Status, Truth
from plimsoll_operator.backends.local.loop import Loop
from plimsoll_operator.errors import AlreadyRunningError

WAIT_S = 0.5
"""Between two looks at whether whoever runs the plan has left."""


@click.command()
@click.argument("name")
@home_option
def cancel(name: str, home: Path) -> None:
    """Let the ranks of NAME save and leave; `plimsoll run` goes on."""
    asyncio.run(cancel_here(home.absolute(), name))


async def cancel_here(root: Path, name: str) -> None:
    """Stop a plan, whoever runs it."""
    async with open_old_home(root) as home:
        plan = await home.plan(name)
        if plan.status.is_over:
            say(f"{name} is over: there is nothing to stop")
            return
        await stopped(home, name)
        say(f"{name} {stopped_text((await home.plan(name)).status)}")


def stopped_text(status: Status) -> str:
    """Return what became of a plan that was asked to stop."""
    ended = status.condition(ConditionType.SUCCEEDED)
    if ended is None or ended.status is Truth.UNKNOWN:
        return "is stopped, and nothing of it runs; `plimsoll run` goes on"
    if ended.status is Truth.TRUE:
        return "had finished before it could be stopped"
    why = ": ".join(filter(None, (ended.reason, ended.message)))
    return f"had failed before it could be stopped: {why}"


async def stopped(home: Home, name: str) -> None:
    """Wait until nothing of a plan runs any more.

    Whoever begins to run it meanwhile is asked again, and again.
    """
    is_told = False
    while True:
        plan = await home.plan(name)
        await home.store.plans.set_suspended(plan.uid, is_suspended=True)
        try:
            with home.folder.locked(name), RunView(is_brief=True) as view:
                backend = home.backend(await home.plan(name))
                await Loop(backend=backend, watcher=view, is_stopping=True).run()
        except AlreadyRunningError:
            if not is_told:
                click.echo(
                    f"{name} is asked to stop; its ranks save and leave", err=True
                )
                is_told = True
            await asyncio.sleep(WAIT_S)
        else:
            return


@click.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@home_option
def delete(name: str, yes: bool, home: Path) -> None:
    """Forget the plan NAME and its checkpoints, also of earlier runs of that name.

    Its logs go with it. What was measured of its workload and ranks stays.
    """
    text = f"delete {name} with its checkpoints and logs?"
    if yes or is_confirmed(text):
        asyncio.run(delete_here(home.absolute(), name))
    else:
        say(f"{name} is kept")


def is_confirmed(question: str) -> bool:
    """Ask a person.

    Raises:
        UsageError: there is nobody.
    """
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise  # Ctrl-C
        raise click.UsageError("nobody can answer here: delete with --yes") from None


async def delete_here(root: Path, name: str) -> None:
    """Forget a plan that nobody runs."""
    async with open_old_home(root) as home:
        await home.plan(name)
        with home.folder.locked(name):
            plan = await home.plan(name)
            backend = home.backend(plan)
            if not plan.status.is_over and backend.children.alive():
                raise PlanUnderWayError(
                    f"ranks of {name} run, and nobody watches them: `plimsoll cancel "
                    f"{name}` lets them save and leave"
                )
            backend.end_all()
            for one in await home.store.plans.of_name(name):
                for folder in (
                    home.backend(one).checkpoints,
                    home.folder.plan(one.uid).root,
                ):
                    if folder.exists():
                        await asyncio.to_thread(shutil.rmtree, folder)
            await home.store.plans.delete(name)
        say(f"{name} is deleted")
