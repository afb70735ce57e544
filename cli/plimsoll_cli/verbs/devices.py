"""`plimsoll devices`: the devices that machines may be asked for by name."""

from __future__ import annotations

import click

from plimsoll_cli.errors import NothingMatchesError
from plimsoll_cli.options.named_devices import machines_on
from plimsoll_cli.output.console import Output, output_option, print_json, say
from plimsoll_cli.output.tables import format_bytes, print_table, table_of
from plimsoll_planner.device_table import Device, known_devices
from plimsoll_planner.records.model_profile import Precision
from plimsoll_planner.records.offer import Link, Offer

LESS_IMPORTANT = ("PRODUCT", "ALSO", "HOST", "BETWEEN", "FP32", "FP16")


@click.command()
@click.argument("name", required=False)
@output_option
def devices(name: str | None, output: str) -> None:
    """List the devices that --on and tables of offers may name.

    NAME is a part of their names. With it, sources are listed as well.
    """
    wanted = [one for one in known_devices() if is_named(one, name or "")]
    if not wanted:
        raise NothingMatchesError(
            f"none of {len(known_devices())} devices has {name!r} in its names; "
            "describe others in a table, for --offers"
        )
    if output == Output.JSON:
        print_json([device_json(one) for one in wanted])
        return
    rows = [cells(one, machines_on(one.name)) for one in wanted]
    table = table_of(rows, left=("DEVICE", "PRODUCT", "ALSO"))
    table.caption = (
        "MEMORY: as torch sees it. FP32, BF16, FP16: TFLOPS, dense; without its own, "
        "FP16 is as BF16. BANDWIDTH, NODE, BETWEEN, HOST: GB/s of the memory and of "
        "the links of one device in one direction, inside a machine, between machines, "
        "and to the machine's memory."
    )
    print_table(table, less_important=LESS_IMPORTANT)
    if name:
        for one in wanted:
            say("", *source_lines(one))


def is_named(device: Device, part: str) -> bool:
    """Whether a text is a part of one of a device's names."""
    names = (device.name, device.product, *device.aliases)
    return any(part.casefold() in each.casefold() for each in names)


def cells(device: Device, offer: Offer) -> dict[str, str]:
    """Cells of one device, with a dash if a value is not known."""
    rates = {one.precision: one.flop_per_s for one in offer.compute_rates}
    bandwidth = offer.memory_bandwidth_bytes_per_s
    return {
        "DEVICE": device.name,
        "MEMORY": format_bytes(offer.device_memory_bytes),
        "BANDWIDTH": in_units(bandwidth, 1e9),
        "BF16": in_units(rates.get(Precision.BF16), 1e12),
        "FP16": in_units(rates.get(Precision.FP16), 1e12),
        "FP32": in_units(rates.get(Precision.FP32), 1e12),
        "PER NODE": str(device.devices_per_node),
        "NODE": link_text(offer.link_in_node),
        "BETWEEN": link_text(offer.link_between_nodes),
        "HOST": link_text(offer.link_to_host),
        "ALSO": " ".join(device.aliases) or "-",
        "PRODUCT": device.product,
    }


def link_text(link: Link | None) -> str:
    """Bandwidth of a link in GB/s."""
    return in_units(None if link is None else link.bandwidth_bytes_per_s, 1e9)


def in_units(value: float | None, unit: float) -> str:
    """A rate in a unit; a dash if it is not known."""
    return "-" if value is None else f"{value / unit:g}"


def source_lines(device: Device) -> list[str]:
    """Where the numbers of a device are from, and of which date."""
    return [
        f"{device.name} ({device.product})",
        f"  memory  {device.memory_source} ({device.memory_date})",
        f"  rates   {device.rates_source} ({device.rates_date})",
    ]


def device_json(device: Device) -> dict[str, object]:
    """A device for machines: what its offer holds, and its sources."""
    return {
        "name": device.name,
        "aliases": list(device.aliases),
        "product": device.product,
        "offer": machines_on(device.name).to_json(),
        "memory": {"source": device.memory_source, "date": device.memory_date},
        "rates": {"source": device.rates_source, "date": device.rates_date},
    }
