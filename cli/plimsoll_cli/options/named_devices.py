"""Machines by the name of their device: `--on 8xH100-80GB`.

    H100-80GB       machines of the usual size, as many as are wanted
    4xH100-80GB     four devices of one machine
    32xH100-80GB    so many of machines of the usual size, here four of eight
    2x4xL4          two machines of four devices

In: what was typed. Out: offers without prices. Called by `problem`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from plimsoll_planner.device_table import close_names, device_named
from plimsoll_planner.errors import InvalidFieldError
from plimsoll_planner.offer_catalog import Row, make_offer
from plimsoll_planner.records.offer import CapacityType, Offer

ON = "--on"
EXAMPLES = "COUNTxDEVICE such as 8xH100-80GB, or NODESxCOUNTxDEVICE such as 2x4xL4"
PATTERN = re.compile(r"(?:([0-9]{1,6})x)?(?:([0-9]{1,6})x)?([A-Za-z].*)")


def machines_on(text: str) -> Offer:
    """The machines that a text means.

    Raises:
        InvalidFieldError: there is no such device, or no such number of machines.
    """
    match = PATTERN.fullmatch(text.strip())
    if match is None:
        raise InvalidFieldError(ON, text, EXAMPLES)
    name = match[3]
    device = device_named(name)
    if device is None:
        close = " or ".join(close_names(name)) or "those that `plimsoll devices` lists"
        rule = f"{close}; other devices by a table, with --offers"
        raise InvalidFieldError(ON, name, rule)
    nodes, count = (None if one is None else int(one) for one in match.groups()[:2])
    if 0 in (nodes, count):
        raise InvalidFieldError(ON, text, EXAMPLES)
    if nodes is not None and count is None:
        nodes, count = machines_of(text, nodes, device.devices_per_node)
    count = count or device.devices_per_node
    cells = {
        "InstanceType": device.name,
        "AcceleratorName": device.name,
        "AcceleratorCount": count,
    }
    row = Row(cells={key: str(cell) for key, cell in cells.items()}, place=ON)
    offer = make_offer(row, CapacityType.ON_DEMAND, None)
    return replace(offer, name=f"{count}x{device.name}", nodes_available=nodes)


def table_on(offers: Iterable[Offer]) -> str:
    """A table of offers, CSV, that means the same machines."""
    lines = ["InstanceType,AcceleratorName,AcceleratorCount,NodesAvailable"]
    for offer in offers:
        nodes = "" if offer.nodes_available is None else offer.nodes_available
        count = offer.devices_per_node
        lines.append(f"{offer.name},{offer.device_product},{count},{nodes}")
    return "\n".join(lines) + "\n"


def machines_of(text: str, num_devices: int, per_node: int) -> tuple[int, int]:
    """Number of machines and of devices in each, for so many devices in all."""
    if num_devices <= per_node:
        return 1, num_devices
    if num_devices % per_node:
        rule = (
            f"whole machines of {per_node}, or NODESxCOUNTxDEVICE for others, such as "
            "2x4xL4"
        )
        raise InvalidFieldError(ON, text, rule)
    return num_devices // per_node, per_node
