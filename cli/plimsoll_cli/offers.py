"""`plimsoll offers`: which machines there are, with their devices and prices."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import click
from rich.table import Table

from plimsoll_cli.errors import NothingMatchesError
from plimsoll_cli.output import (
    ByteQuantity,
    Output,
    console,
    format_bytes,
    output_option,
)
from plimsoll_operator.local_inventory import local_offers
from plimsoll_planner.errors import UnreadableError
from plimsoll_planner.offer_catalog import parse_offers
from plimsoll_planner.records.offer import Offer


@click.command()
@click.argument("table", required=False, type=click.Path(path_type=Path))
@click.option("--product", help="Only devices whose name contains this text.")
@click.option(
    "--min-memory",
    type=ByteQuantity(),
    help="Only devices with at least this memory, as in 40GiB.",
)
@output_option
def offers(
    table: Path | None, product: str | None, min_memory: int | None, output: str
) -> None:
    """List machines, cheapest device first.

    TABLE is a CSV file in the columns of a SkyPilot catalogue; without it, what this
    machine itself offers is listed.
    """
    found = local_offers() if table is None else read_table(table)
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
        console().print(offer_table(wanted))


def read_table(path: Path) -> tuple[Offer, ...]:
    """Read the offers of a file.

    Raises:
        UnreadableError, InvalidFieldError: see `parse_offers`.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UnreadableError(f"{path}: not text in UTF-8: {error.reason}") from None
    return parse_offers(text, str(path)).offers


def cheapest_first(offer: Offer) -> tuple[bool, float, int, str]:
    """Order by price of a device, unpriced ones last, then by memory and name."""
    price = offer.price_per_device_hour
    return (
        price is None,
        float(price or 0),
        -offer.device_memory_bytes,
        offer.name,
    )


def offer_table(offers: Iterable[Offer]) -> Table:
    """Draw the offers for a terminal."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading, justify in (
        ("OFFER", "left"),
        ("DEVICE", "left"),
        ("KIND", "left"),
        ("MEMORY", "right"),
        ("PER NODE", "right"),
        ("NODES", "right"),
        ("TERMS", "left"),
        ("REGION", "left"),
        ("NODE/H", "right"),
        ("DEVICE/H", "right"),
    ):
        table.add_column(heading, justify="right" if justify == "right" else "left")
    for offer in offers:
        nodes = offer.nodes_available
        table.add_row(
            offer.name,
            offer.device_product,
            offer.device_kind,
            format_bytes(offer.device_memory_bytes),
            str(offer.devices_per_node),
            "any" if nodes is None else str(nodes),
            offer.capacity_type,
            offer.region or "-",
            price_text(offer, of_device=False),
            price_text(offer, of_device=True),
        )
    return table


def price_text(offer: Offer, *, of_device: bool) -> str:
    """Return a price for people, or a dash."""
    price = offer.price_per_device_hour if of_device else offer.price_per_node_hour
    return "-" if price is None else f"{price:.2f} {offer.currency}"
