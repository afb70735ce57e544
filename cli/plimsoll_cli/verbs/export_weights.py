"""`plimsoll export-weights`: trained weights in the model's own format."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import click

from plimsoll_cli.errors import CliError
from plimsoll_cli.options.home import home_option
from plimsoll_cli.output.console import Output, at_work, output_option, print_json, say
from plimsoll_cli.state.state_dir import open_existing
from plimsoll_operator.backends.local.checkpoints import checkpoints_of
from plimsoll_operator.store.plans import StoredPlan

EXPORT = "plimsoll_trainer.export"


@click.command()
@click.argument("name")
@click.option(
    "--to",
    "target",
    type=click.Path(path_type=Path),
    required=True,
    help="Folder that is made; it must not be there, or be empty.",
)
@click.option(
    "--step",
    type=click.IntRange(min=0),
    help="Which checkpoint.  [default: the newest]",
)
@home_option
@output_option
def export_weights(
    name: str, target: Path, step: int | None, home: Path, output: str
) -> None:
    """Write the weights that NAME has trained as their model's own files.

    Of a model of transformers that is a folder that from_pretrained reads; of low-rank
    adapters one that peft reads, unless they are to be merged. Nothing is trained
    meanwhile, and no device is needed: layers are read one after the other.
    """
    plan, folder = asyncio.run(checkpoints_at(home.absolute(), name))
    chosen = folder if step is None else folder / f"step-{step:08d}"
    words = (
        *(sys.executable, "-m", EXPORT),
        *("--entrypoint", plan.spec.workload.entrypoint),
        *("--args", plan.spec.workload.args),
        *("--checkpoint", str(chosen), "--to", str(target.absolute())),
    )
    with at_work(f"writing {target}"):
        done = subprocess.run(  # noqa: S603 - our own module
            words, cwd=plan.folder or None, capture_output=True, text=True, check=False
        )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["it said nothing"]
        raise CliError(lines[-1].removeprefix("plimsoll: "))
    report = json.loads(done.stdout.splitlines()[-1])
    if output == Output.JSON:
        print_json(report)
        return
    say(f"weights of {report['checkpoint']}: {report['weights']}")


async def checkpoints_at(root: Path, name: str) -> tuple[StoredPlan, Path]:
    """The newest plan of a name, and the folder in which it has saved."""
    async with open_existing(root) as home:
        plan = await home.plan(name)
        return plan, checkpoints_of(plan, home.folder.plan(plan.uid))
