"""`plimsoll offers`: which machines there are, with their devices and prices."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
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
from plimsoll_planner.records.model_profile import DeviceKind
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


def offer_table(offers: Sequence[Offer]) -> Table:
    """Draw the offers for a terminal; eighty columns hold a usual table."""
    currencies = {offer.currency for offer in offers if offer.currency}
    in_cells = len(currencies) > 1
    caption = None if in_cells or not currencies else f"prices in {currencies.pop()}"
    table = Table(
        box=None,
        header_style="bold",
        pad_edge=False,
        collapse_padding=True,
        caption=caption,
        caption_justify="left",
    )
    for heading in ("OFFER", "DEVICE"):
        table.add_column(heading, no_wrap=True)
    for heading in ("MEMORY", "COUNT", "NODES"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("TERMS", "REGION"):
        table.add_column(heading, no_wrap=True)
    for heading in ("NODE/H", "DEVICE/H"):
        table.add_column(heading, justify="right", no_wrap=True)
    for offer in offers:
        table.add_row(*cells(offer, with_currency=in_cells))
    return table


def cells(offer: Offer, *, with_currency: bool) -> Iterable[str]:
    """Yield what the table shows of one offer."""
    emulated = offer.device_kind is DeviceKind.EMULATED
    yield offer.name
    yield f"emulated {offer.device_product}" if emulated else offer.device_product
    yield format_bytes(offer.device_memory_bytes)
    yield str(offer.devices_per_node)
    yield "any" if offer.nodes_available is None else str(offer.nodes_available)
    yield offer.capacity_type
    yield offer.region or "-"
    for price in (offer.price_per_node_hour, offer.price_per_device_hour):
        currency = f" {offer.currency}" if with_currency else ""
        yield "-" if price is None else f"{price:.2f}{currency}"
