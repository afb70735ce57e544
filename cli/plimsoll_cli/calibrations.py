"""`plimsoll calibrations`: what devices were seen to hold besides tensors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import click
from rich.table import Table

from plimsoll_cli.errors import NothingMatchesError
from plimsoll_cli.homes import home_option, open_old_home
from plimsoll_cli.output import (
    Output,
    format_bytes,
    new_table,
    output_option,
    print_table,
    say,
)
from plimsoll_planner.records.device_overhead import DeviceOverhead

ANYWHERE = (1, 3)
"""Samples and communicators at which a line is shown that holds everywhere."""


@click.command()
@click.option(
    "--forget",
    metavar="PRODUCT",
    help="Forget that devices of PRODUCT ran out of memory, as when something else was "
    "on them; what ranks were seen to hold stays.",
)
@home_option
@output_option
def calibrations(forget: str | None, home: Path, output: str) -> None:
    """List what devices hold besides tensors, and what stands behind it.

    Every run adds what its ranks used, which counts at the micro-batches and meshes
    that were seen; how sure that is depends on how many different plans they trained
    by. What comes with Plimsoll stays for as long as no rank, of eight or more,
    contradicts it. One that ran out of memory counts at once, until it is
    forgotten.
    """
    found = asyncio.run(known(home.absolute(), forget))
    if output == Output.JSON:
        click.echo(json.dumps([one.to_json() for one in found], indent=2))
    elif found:
        print_table(calibration_table(found), less_important=("IMAGE", "ALLOCATOR"))
    else:
        say("nothing yet: what comes with Plimsoll counts, or is assumed")


async def known(root: Path, forget: str | None) -> tuple[DeviceOverhead, ...]:
    """Return what is known, after what is to be forgotten is."""
    async with open_old_home(root) as home:
        learned = home.store.calibrations
        if forget is not None and not await learned.forget_shortages(forget):
            raise NothingMatchesError(
                f"no device of {forget} is known to have run out of memory; "
                "`plimsoll calibrations` lists the products"
            )
        return await learned.all()


def calibration_table(found: Sequence[DeviceOverhead]) -> Table:
    """Draw one row for each kind of device: the most of it where ranks were seen."""
    numbers = ("RANKS", "PLANS", "OUT OF MEMORY", "ALLOCATOR", "OUTSIDE")
    headings = ("DEVICE", "TORCH", "NCCL", "IMAGE", *numbers)
    table = new_table(
        (name, "right" if name in numbers else "left") for name in headings
    )
    for one in found:
        places = [(at.micro_batch, at.num_communicators) for at in one.seen]
        most = (
            max(line.at(*at).upper_bytes for at in places or [ANYWHERE])
            for line in (one.allocator, one.outside)
        )
        table.add_row(
            one.key.device_product,
            one.key.torch_version,
            one.key.nccl_version or "-",
            one.key.image or "-",
            str(one.num_observations),
            str(one.num_plans),
            str(one.num_shortages),
            *(f"up to {format_bytes(num_bytes)}" for num_bytes in most),
        )
    return table
