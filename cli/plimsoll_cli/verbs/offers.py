"""`plimsoll offers`: which machines there are, with their devices and prices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from rich.table import Table

from plimsoll_cli.errors import NothingMatchesError
from plimsoll_cli.options.offers import own_offers, read_table
from plimsoll_cli.options.types import PATH, ByteQuantity
from plimsoll_cli.output.console import Output, output_option, print_json
from plimsoll_cli.output.tables import (
    format_bytes,
    print_table,
    table_of,
    telling_columns,
)
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.offer import Offer


@click.command()
@click.argument("file", required=False, type=PATH)
@click.option("--product", help="Only devices whose name contains this text.")
@click.option(
    "--min-memory",
    type=ByteQuantity(),
    help="Only devices with at least this memory, as in 40GiB.",
)
@output_option
def offers(
    file: Path | None, product: str | None, min_memory: int | None, output: str
) -> None:
    """List machines, cheapest device first.

    FILE is a CSV file in the columns of a SkyPilot catalogue; without it, what this
    machine itself offers is listed.
    """
    found = own_offers() if file is None else read_table(file)
    wanted = [
        offer
        for offer in found
        if (product or "").casefold() in offer.device_product.casefold()
        and offer.device_memory_bytes >= (min_memory or 0)
    ]
    if not wanted:
        raise NothingMatchesError(
            f"none of {len(found)} offers matches; loosen --product or --min-memory"
        )
    wanted.sort(key=cheapest_first)
    if output == Output.JSON:
        print_json([offer.to_json() for offer in wanted])
    else:
        table = offer_table(wanted)
        print_table(table, less_important=("REGION", "TERMS", "NODES", "DEVICE"))


def cheapest_first(offer: Offer) -> tuple[bool, str, float, int, str]:
    """Order by price of a device, unpriced ones last, then by memory and name.

    Currencies are listed one after the other: their prices cannot be compared.
    """
    price = offer.price_per_device_hour
    return (
        price is None,
        offer.currency or "",
        float(price or 0),
        -offer.device_memory_bytes,
        offer.name,
    )


def offer_table(offers: Sequence[Offer]) -> Table:
    """The offers for a terminal; eighty columns hold a usual table."""
    currencies = {offer.currency for offer in offers if offer.currency}
    rows = [cells(offer, with_currency=len(currencies) > 1) for offer in offers]
    left = ("OFFER", "DEVICE", "TERMS", "REGION")
    table = table_of(telling_columns(rows), left=left)
    if len(currencies) == 1:
        table.caption = f"prices in {min(currencies)}"
    return table


def cells(offer: Offer, *, with_currency: bool) -> dict[str, str]:
    """Cells of one offer, with a dash if a value is not known."""
    emulated = "emulated " if offer.device_kind is DeviceKind.EMULATED else ""
    currency = f" {offer.currency}" if with_currency else ""
    nodes = offer.nodes_available
    prices = [
        "-" if price is None else f"{price:.2f}{currency}"
        for price in (offer.price_per_node_hour, offer.price_per_device_hour)
    ]
    return {
        "OFFER": offer.name,
        "DEVICE": emulated + offer.device_product,
        "MEMORY": format_bytes(offer.device_memory_bytes),
        "COUNT": str(offer.devices_per_node),
        "NODES": "any" if nodes is None else str(nodes),
        "TERMS": offer.capacity_type,
        "REGION": offer.region or "-",
        "NODE/H": prices[0],
        "DEVICE/H": prices[1],
    }
