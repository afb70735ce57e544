"""`plimsoll offers`: which machines there are, with their devices and prices."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click
from rich.table import Table

from plimsoll_cli.errors import NothingMatchesError
from plimsoll_cli.option_types import ByteQuantity
from plimsoll_cli.output import (
    Output,
    format_bytes,
    new_table,
    output_option,
    print_table,
)
from plimsoll_operator.errors import InventoryError
from plimsoll_operator.nodes.this_machine import cuda_offers, emulated_offer
from plimsoll_planner.errors import UnreadableError
from plimsoll_planner.offer_catalog import parse_offers
from plimsoll_planner.records.document import read_whole
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.offer import Offer

LARGEST_TABLE_BYTES = 64 * 2**20
"""Public catalogues have a few MiB."""


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
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
        click.echo(json.dumps([offer.to_json() for offer in wanted], indent=2))
    else:
        table = offer_table(wanted)
        print_table(table, less_important=("REGION", "TERMS", "NODES", "DEVICE"))


def own_offers() -> tuple[Offer, ...]:
    """Return the offers of this machine; a broken driver is a warning, not the end."""
    try:
        cuda = cuda_offers()
    except InventoryError as error:
        click.echo(f"plimsoll: no CUDA devices listed: {error}", err=True)
        cuda = ()
    return (*cuda, emulated_offer())


def read_table(path: Path) -> tuple[Offer, ...]:
    """Read the offers of a file.

    Raises:
        UnreadableError, InvalidFieldError: see `parse_offers`.
    """
    try:
        text = read_whole(path, LARGEST_TABLE_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableError(f"{path}: not text in UTF-8: {error.reason}") from None
    return parse_offers(text, str(path)).offers


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
    """Draw the offers for a terminal; eighty columns hold a usual table."""
    currencies = {offer.currency for offer in offers if offer.currency}
    with_currency = len(currencies) > 1
    caption = (
        None if with_currency or not currencies else f"prices in {min(currencies)}"
    )
    rows = [cells(offer, with_currency=with_currency) for offer in offers]
    columns = {heading: [row[heading] for row in rows] for heading in rows[0]}
    shown = {name: column for name, column in columns.items() if set(column) != {"-"}}
    table = new_table(
        (heading, "right" if heading in NUMBERS else "left") for heading in shown
    )
    table.caption = caption
    for row in zip(*shown.values(), strict=True):
        table.add_row(*row)
    return table


NUMBERS = ("MEMORY", "COUNT", "NODES", "NODE/H", "DEVICE/H")
"""Columns that are set flush right."""


def cells(offer: Offer, *, with_currency: bool) -> dict[str, str]:
    """Return what the table shows of one offer, a dash for what is not known."""
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
