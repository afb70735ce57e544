"""The devices that are known by name: what torch sees of their memory, rates, links.

In: a name such as `H100-80GB`, or one that clouds have for it. Out: cells in the
columns of a table of offers. Called by `offer_catalog`, which takes from here what a
line of a table leaves open, and by the verb `devices`.

    DeviceMemoryMiB   the capacity in torch's messages, not that of nvidia-smi or of a
                      price table, which is up to 1 % larger; the least that was seen
    Bf16TFLOPS        dense, with sums in fp32; Fp16TFLOPS where there is no bf16, for
                      it is as fast wherever both are
    Link...GBps       of one device, in one direction

Each row of the table states its sources and their dates.
"""

from __future__ import annotations

import csv
import difflib
import io
from dataclasses import dataclass
from functools import cache
from importlib import resources

CELLS = (
    "DeviceMemoryMiB",
    "MemoryBandwidthGBps",
    "Fp32TFLOPS",
    "Bf16TFLOPS",
    "Fp16TFLOPS",
    "LinkInNodeGBps",
    "LinkBetweenNodesGBps",
    "HostLinkGBps",
)
"""Columns of a table of offers that a device fills."""
ALIKE = 0.5
"""Ratio of difflib, from which on a name is taken for another one misspelled."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """One row of the table."""

    name: str
    aliases: tuple[str, ...]
    product: str
    """Name of the device by torch."""
    devices_per_node: int
    """Of the usual machine with this device."""
    cells: dict[str, str]
    """By `CELLS`; empty where nothing is known."""
    memory_source: str
    memory_date: str
    rates_source: str
    rates_date: str


@cache
def known_devices() -> tuple[Device, ...]:
    """All rows of the table."""
    text = (
        resources.files("plimsoll_planner").joinpath("devices.csv").read_text("utf-8")
    )
    return tuple(
        Device(
            name=row["Device"],
            aliases=tuple(filter(None, row["Aliases"].split(";"))),
            product=row["Product"],
            devices_per_node=int(row["DevicesPerNode"]),
            cells={column: row[column] for column in CELLS},
            memory_source=row["MemorySource"],
            memory_date=row["MemoryDate"],
            rates_source=row["RatesSource"],
            rates_date=row["RatesDate"],
        )
        for row in csv.DictReader(io.StringIO(text))
    )


def device_named(name: str) -> Device | None:
    """The device of a name, None if the table has none; case does not matter."""
    return by_name().get(name.casefold())


@cache
def by_name() -> dict[str, Device]:
    """Devices by all of their names, in lower case."""
    return {
        name.casefold(): device
        for device in known_devices()
        for name in (device.name, *device.aliases)
    }


def close_names(name: str) -> list[str]:
    """Names of the table that resemble one that it does not have, the closest first."""
    names = [device.name for device in known_devices()]
    folded = {each.casefold(): each for each in names}
    close = difflib.get_close_matches(name.casefold(), folded, n=3, cutoff=ALIKE)
    return [folded[each] for each in close]
