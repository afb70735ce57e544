"""`plimsoll delete`: forget a plan, its checkpoints and its logs."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

import click

from plimsoll_cli.errors import PlanUnderWayError
from plimsoll_cli.options.home import home_option
from plimsoll_cli.output.console import Output, output_option, print_json, say
from plimsoll_cli.state.state_dir import open_existing


@click.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@home_option
@output_option
def delete(name: str, yes: bool, home: Path, output: str) -> None:
    """Forget the plan NAME and its checkpoints, also of earlier runs of that name.

    Its logs go with it. What was measured of its workload and ranks stays.
    """
    text = f"delete {name} with its checkpoints and logs?"
    is_deleted = yes or is_confirmed(text)
    if is_deleted:
        asyncio.run(delete_here(home.absolute(), name))
    if output == Output.JSON:
        print_json({"name": name, "isDeleted": is_deleted})
    else:
        say(f"{name} is {'deleted' if is_deleted else 'kept'}")


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
    async with open_existing(root) as home:
        await home.plan(name)
        with home.folder.locked(name):
            plan = await home.plan(name)
            backend = home.backend(plan)
            if not plan.status.is_over and backend.processes.alive():
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
