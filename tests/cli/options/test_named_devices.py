"""Machines by the name of their device: `--on 8xH100-80GB`."""

from __future__ import annotations

import pytest

from plimsoll_cli.options.named_devices import machines_on
from plimsoll_planner.device_table import device_named
from plimsoll_planner.errors import InvalidFieldError


@pytest.mark.parametrize(
    ("text", "name", "nodes", "count"),
    [
        ("H100-80GB", "8xH100-80GB", None, 8),
        ("h100", "8xH100-80GB", None, 8),
        ("8xH100-80GB", "8xH100-80GB", 1, 8),
        ("3xH100", "3xH100-80GB", 1, 3),
        ("32xH100", "8xH100-80GB", 4, 8),
        ("2x4xL4", "4xL4-24GB", 2, 4),
        ("1x16xH100", "16xH100-80GB", 1, 16),
        ("4xRTX-4090-24GB", "1xRTX-4090-24GB", 4, 1),
    ],
)
def test_a_text_means_machines(
    text: str, name: str, nodes: int | None, count: int
) -> None:
    """Of the usual size where there are more than one has."""
    offer = machines_on(text)
    assert (offer.name, offer.nodes_available) == (name, nodes)
    assert offer.devices_per_node == count
    assert offer.device_product
    assert offer.price_per_node_hour is None
    device = device_named(offer.name.split("x", 1)[1])
    assert device is not None
    mib = int(device.cells["DeviceMemoryMiB"])
    assert offer.device_memory_bytes == mib * 2**20


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("8xH1000", "got 'H1000', allowed is H100-80GB or"),
        ("8xQuantum", "those that `plimsoll devices` lists; other devices by a table"),
        ("0xH100", "COUNTxDEVICE such as 8xH100-80GB"),
        ("8", "COUNTxDEVICE such as 8xH100-80GB"),
        ("", "COUNTxDEVICE such as 8xH100-80GB"),
        ("12xH100", "whole machines of 8, or NODESxCOUNTxDEVICE for others"),
    ],
)
def test_what_means_none_is_refused(text: str, message: str) -> None:
    """With those that resemble it, or the form."""
    with pytest.raises(InvalidFieldError) as error:
        machines_on(text)
    assert message in str(error.value)
