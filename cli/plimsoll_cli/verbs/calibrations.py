"""`plimsoll calibrations`: bytes observed on devices besides tensors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import click
from rich.table import Table

from plimsoll_cli.errors import NothingMatchesError
from plimsoll_cli.options.files import parse_json
from plimsoll_cli.options.home import home_option
from plimsoll_cli.options.types import PATH
from plimsoll_cli.output.console import Output, output_option, print_json, say
from plimsoll_cli.output.tables import format_bytes, print_table, table_of
from plimsoll_cli.state.state_dir import open_existing, open_state_dir
from plimsoll_operator.store.learning import learn_measured
from plimsoll_planner.overhead.observed import FEWEST_RANKS
from plimsoll_planner.records.device_overhead import DeviceOverhead
from plimsoll_planner.records.document import read_whole
from plimsoll_planner.records.rehearsal import MeasuredRanks
from plimsoll_planner.text.counts import counted

OBSERVED = "observed"
"""Field of the file of `make gpu` that holds its ranks."""
ANYWHERE = (1, 3)
"""Samples and communicators at which a line is shown that holds everywhere."""


@click.command()
@click.option(
    "--forget",
    metavar="PRODUCT",
    help="Forget that devices of PRODUCT ran out of memory, as when something else was "
    "on them; what ranks were seen to hold stays.",
)
@click.option(
    "--learn",
    type=PATH,
    help="Let what `make gpu` measured count: its gpu.json, or MeasuredRanks.",
)
@home_option
@output_option
def calibrations(
    forget: str | None, learn: Path | None, home: Path, output: str
) -> None:
    """List what devices hold besides tensors, and what stands behind it.

    Every run adds what its ranks used, which counts at the micro-batches and meshes
    that were seen; how sure that is depends on how many different plans they trained
    by. What comes with Plimsoll stays for as long as no rank, of eight or more,
    contradicts it. One that ran out of memory counts at once, until it is
    forgotten.
    """
    root = home.absolute()
    if learn is not None:
        ranks = measured_ranks(learn)
        asyncio.run(learn_from(root, ranks))
        click.echo(
            f"{counted(len(ranks.ranks), 'rank')} of {learn} kept; for a device that "
            f"Plimsoll comes with figures of, measured ranks count from {FEWEST_RANKS} "
            "on",
            err=True,
        )
    found = asyncio.run(known(root, forget))
    if output == Output.JSON:
        print_json([one.to_json() for one in found])
    elif found:
        print_table(calibration_table(found), less_important=("IMAGE", "ALLOCATOR"))
    else:
        say("nothing yet: what comes with Plimsoll counts, or is assumed")


def measured_ranks(path: Path) -> MeasuredRanks:
    """The ranks in a file that `make gpu` wrote, or in one of their own.

    Raises:
        UnreadableError, InvalidFieldError: it holds none, or none that can be read.
    """
    value = parse_json(read_whole(path), path)
    if isinstance(value, dict):
        parts = cast("dict[str, object]", value)
        value = parts.get(OBSERVED, parts)
    return MeasuredRanks.from_json(value, f"{path}: {MeasuredRanks.__name__}")


async def learn_from(root: Path, found: MeasuredRanks) -> None:
    """Keep ranks in a state directory, and fit anew; known ones are kept once."""
    async with open_state_dir(root) as home:
        for rank in found.ranks:
            await learn_measured(home.store, rank, time.time())


async def known(root: Path, forget: str | None) -> tuple[DeviceOverhead, ...]:
    """Calibrations of a state directory, without those to forget."""
    async with open_existing(root) as home:
        learned = home.store.calibrations
        if forget is not None and not await learned.forget_shortages(forget):
            raise NothingMatchesError(
                f"no device of {forget} is known to have run out of memory; "
                "`plimsoll calibrations` lists the products"
            )
        return await learned.all()


def calibration_table(found: Sequence[DeviceOverhead]) -> Table:
    """One row for each kind of device."""
    rows = [calibration_cells(one) for one in found]
    return table_of(rows, left=("DEVICE", "TORCH", "NCCL", "IMAGE"))


def calibration_cells(one: DeviceOverhead) -> dict[str, str]:
    """The cells of one kind of device: the most of it at what ranks were seen at."""
    places = [(at.micro_batch, at.num_communicators) for at in one.seen] or [ANYWHERE]
    allocator = max(one.allocator.at(*at).upper_bytes for at in places)
    outside = max(one.outside.at(*at).upper_bytes for at in places)
    return {
        "DEVICE": one.key.device_product,
        "TORCH": one.key.torch_version,
        "NCCL": one.key.nccl_version or "-",
        "IMAGE": one.key.image or "-",
        "RANKS": str(one.num_observations),
        "PLANS": str(one.num_plans),
        "OUT OF MEMORY": str(one.num_shortages),
        "ALLOCATOR": f"up to {format_bytes(allocator)}",
        "OUTSIDE": f"up to {format_bytes(outside)}",
    }
