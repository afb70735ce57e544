"""Offers: those of this machine, and those that a file lists.

In: nothing, or the path of a table or of JSON. Out: offers. Called by `problem`,
`machines` and the verb `offers`.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import click

from plimsoll_cli.options.files import parse_json
from plimsoll_operator.errors import InventoryError
from plimsoll_operator.nodes.this_machine import cuda_offers, emulated_offer
from plimsoll_planner.errors import UnreadableError
from plimsoll_planner.offer_catalog import parse_offers
from plimsoll_planner.records.document import from_text, read_whole
from plimsoll_planner.records.offer import Offer

LARGEST_TABLE_BYTES = 64 * 2**20
"""Public catalogues have a few MiB."""


def own_offers() -> tuple[Offer, ...]:
    """The offers of this machine; a broken driver is a warning, not the end."""
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


def read_offers(path: Path) -> tuple[Offer, ...]:
    """Read offers from JSON (one Offer, or a list) or from a CSV table."""
    if path.suffix.casefold() != ".json":
        return read_table(path)
    content = read_whole(path)
    value = parse_json(content, path)
    if not isinstance(value, list):
        return (from_text(content, Offer, str(path)),)
    entries = cast("list[object]", value)
    return tuple(
        Offer.from_json(entry, f"{path}: Offer[{place}]")
        for place, entry in enumerate(entries)
    )
