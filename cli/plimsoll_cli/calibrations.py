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
from plimsoll_planner.overheads import MOST_COMMUNICATORS
from plimsoll_planner.records.device_overhead import DeviceOverhead


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
    """List what devices hold besides tensors, and how many ranks stand behind it.

    Every run adds what its ranks used. Eight ranks of a kind of device take the place
    of what comes with Plimsoll; one that ran out of memory counts at once.
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
    """Draw one row for each kind of device, at one sample."""
    headings = ("DEVICE", "TORCH", "NCCL", "IMAGE", "RANKS", "ALLOCATOR", "OUTSIDE")
    table = new_table(
        (name, "right" if name in headings[4:] else "left") for name in headings
    )
    for one in found:
        lines = (
            line.at(1, MOST_COMMUNICATORS) for line in (one.allocator, one.outside)
        )
        table.add_row(
            one.key.device_product,
            one.key.torch_version,
            one.key.nccl_version or "-",
            one.key.image or "-",
            str(one.num_observations),
            *(f"up to {format_bytes(line.upper_bytes)}" for line in lines),
        )
    return table
