"""Devices by name: whole rows, from which tables of offers take what they lack."""

from __future__ import annotations

import re

import pytest

from plimsoll_planner.device_table import (
    CELLS,
    Device,
    close_names,
    device_named,
    known_devices,
)
from plimsoll_planner.errors import InvalidFieldError
from plimsoll_planner.offer_catalog import parse_offers
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.units import GIB, MIB

NAMED_GIB = re.compile(r"-(\d+)GB$")
DATE = re.compile(r"20\d\d(-\d\d(-\d\d)?)?")


@pytest.mark.parametrize("device", known_devices(), ids=lambda one: one.name)
def test_a_row_is_whole(device: Device) -> None:
    """Memory is below the size on the box, by a tenth at most, but for ECC's share."""
    offer = row(device.name)
    size = NAMED_GIB.search(device.name)
    assert size is not None
    gigabytes = int(size[1])
    assert 0.9 * gigabytes < offer.device_memory_bytes / GIB < gigabytes
    assert offer.compute_rates
    assert offer.memory_bandwidth_bytes_per_s
    assert offer.link_in_node is not None
    assert offer.link_to_host is not None
    assert device.product
    assert 1 <= device.devices_per_node <= 8
    assert set(device.cells) == set(CELLS)
    stated = float(device.memory_source.split(" GiB")[0])
    assert 0 <= stated * GIB - offer.device_memory_bytes <= 10 * MIB
    for source, date in (
        (device.memory_source, device.memory_date),
        (device.rates_source, device.rates_date),
    ):
        assert len(source) > 10
        assert DATE.fullmatch(date), date


def row(name: str, **cells: str) -> Offer:
    """The offer of a table with one line."""
    columns = {"InstanceType": "a", "AcceleratorName": name, "AcceleratorCount": "8"}
    columns |= cells
    text = f"{','.join(columns)}\n{','.join(columns.values())}\n"
    [offer] = parse_offers(text, "t").offers
    return offer


def test_no_name_is_of_two_devices() -> None:
    """Whatever clouds call them."""
    names = [
        name.casefold()
        for device in known_devices()
        for name in {device.name, *device.aliases}
    ]
    assert len(names) == len(set(names))


def test_a_line_of_a_table_wins_over_the_device() -> None:
    """Also over the size on the box, which GpuInfo of public catalogues has."""
    known = device_named("h100")
    assert known is not None
    assert row("H100").device_memory_bytes == int(known.cells["DeviceMemoryMiB"]) * MIB
    box = "{'Gpus': [{'MemoryInfo': {'SizeInMiB': 81920}}]}"
    assert row("H100", GpuInfo=f'"{box}"') == row("H100")
    assert row("H100", DeviceMemoryMiB="100").device_memory_bytes == 100 * MIB
    assert row("Hx", GpuInfo=f'"{box}"').device_memory_bytes == 81920 * MIB


def test_an_unknown_device_needs_its_memory() -> None:
    """The message names those that resemble it."""
    with pytest.raises(InvalidFieldError) as error:
        row("H100-80")
    text = str(error.value)
    assert "H100-80GB" in text
    assert "or give DeviceMemoryMiB" in text
    with pytest.raises(InvalidFieldError, match="`plimsoll devices` lists them"):
        row("zzz")
    assert close_names("a100 80gb")[0] == "A100-80GB"
