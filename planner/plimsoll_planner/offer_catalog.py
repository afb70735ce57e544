"""Reads a table of machines and prices into offers.

In: CSV text in the columns of a SkyPilot catalogue, so that people can paste what they
have, plus optional columns of ours (`OUR_COLUMNS`). Out: a catalogue of `Offer`s, two
for a row that has both an on-demand and a spot price. Called by the CLI and, for the
offers ConfigMap, by the operator. Rows without an accelerator are counted and left out.
"""

from __future__ import annotations

import csv
import difflib
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal

from plimsoll_planner.device_table import CELLS, close_names, device_named
from plimsoll_planner.errors import InvalidFieldError, UnreadableError, shorten
from plimsoll_planner.records.bounds import LARGEST_INTEGER, LARGEST_RATE
from plimsoll_planner.records.model_profile import DeviceKind, Precision
from plimsoll_planner.records.offer import CapacityType, ComputeRate, Link, Offer

SKYPILOT_COLUMNS = (
    "InstanceType",
    "AcceleratorName",
    "AcceleratorCount",
    "vCPUs",
    "MemoryGiB",
    "GpuInfo",
    "Region",
    "SpotPrice",
    "Price",
)
"""Version 7 of the catalogue; prices are those of the whole node and hour."""
MORE_SKYPILOT_COLUMNS = ("AvailabilityZone", "Arch", "LocalDiskType", "NVMeLocalDisks")
"""Seen in catalogues of some clouds; not read."""
OUR_COLUMNS = (
    "DeviceMemoryMiB",
    "Currency",
    "DeviceKind",
    "NodesAvailable",
    "LinkInNodeGBps",
    "LinkBetweenNodesGBps",
    "Fp32TFLOPS",
    "Bf16TFLOPS",
    "Fp16TFLOPS",
    "MemoryBandwidthGBps",
    "HostLinkGBps",
    "HostLinkShared",
)
NEEDED_COLUMNS = ("InstanceType", "AcceleratorName", "AcceleratorCount")
DEFAULT_CURRENCY = "USD"
"""The currency of catalogues, which have no column Currency; where there is one, each
price has its own."""
MIB, GIB = 2**20, 2**30
SIZE_IN_MIB = re.compile(r"""['"]SizeInMiB['"]\s*:\s*([0-9]{1,9})(\.0+)?\s*[,}]""")
"""In GpuInfo, which is a literal of Python in some catalogues and JSON in others:
{'Gpus': [{'Name': 'A100', 'MemoryInfo': {'SizeInMiB': 81920}}], ...}"""
NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?")
"""Plain digits: 1_000 or 1,000 must not become some other number."""
LARGEST_TABLE_ROWS = 100_000
"""The largest public catalogue has about 20,000 rows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Catalog:
    """The offers of one table."""

    offers: tuple[Offer, ...]
    num_rows_without_accelerator: int


def parse_offers(text: str, source: str) -> Catalog:
    """Read a whole table.

    Args:
        text: CSV with a header line.
        source: where it comes from; opens every message.

    Raises:
        UnreadableError: it is no such table; names the columns that lack.
        InvalidFieldError: one cell is wrong; names line, column, value and bound.
    """
    reader = csv.DictReader(io.StringIO(text), strict=True)
    offers: list[Offer] = []
    num_without = 0
    try:
        reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
        check_header(list(reader.fieldnames), source)
        for row in reader:
            line = f"{source}, line {reader.line_num}"
            if reader.line_num > LARGEST_TABLE_ROWS:
                raise UnreadableError(f"{line}: at most {LARGEST_TABLE_ROWS} lines")
            if None in row or None in row.values():
                raise UnreadableError(f"{line}: not as many cells as the header has")
            if not row["AcceleratorName"].strip():
                num_without += 1
                continue
            offers.extend(parse_row(Row(cells=row, place=line)))
    except csv.Error as error:
        raise UnreadableError(f"{source}: not readable as CSV: {error}") from None
    if not offers:
        raise UnreadableError(f"{source}: no line has an accelerator")
    return Catalog(offers=tuple(offers), num_rows_without_accelerator=num_without)


def check_header(columns: list[str], source: str) -> None:
    """Raise `UnreadableError` unless the header has what is needed, and no more."""
    if len(columns) == 1 and ";" in columns[0]:
        raise UnreadableError(f"{source}: cells are separated by ';', use ',' instead")
    allowed = (*SKYPILOT_COLUMNS, *MORE_SKYPILOT_COLUMNS, *OUR_COLUMNS)
    for column in columns:
        if column not in allowed:
            close = difflib.get_close_matches(column, allowed, n=1)
            advice = f"did you mean {close[0]}?" if close else "remove it"
            raise UnreadableError(
                f"{source}: no such column {shorten(column)}; {advice}"
            )
        if columns.count(column) > 1:
            raise UnreadableError(f"{source}: the column {column} is given twice")
    missing = [column for column in NEEDED_COLUMNS if column not in columns]
    if missing:
        raise UnreadableError(f"{source}: the column {missing[0]} is missing")


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One line of the table; an absent column is an empty cell."""

    cells: dict[str, str]
    place: str

    def text(self, column: str) -> str:
        """Cell without blanks around it; if it is empty, that of a known device."""
        found = self.cells.get(column, "").strip()
        if found or column not in CELLS:
            return found
        device = device_named(self.cells["AcceleratorName"].strip())
        return "" if device is None else device.cells[column]

    def refuse(self, column: str, allowed: str) -> InvalidFieldError:
        """Error for one cell."""
        return InvalidFieldError(f"{self.place}, {column}", self.text(column), allowed)

    def number(self, column: str) -> Decimal | None:
        """Number, or None where the cell is empty."""
        text = self.text(column)
        if text and not NUMBER.fullmatch(text):
            raise self.refuse(column, "a number such as 12.34")
        return Decimal(text) if text else None

    def whole_number(self, column: str, minimum: int) -> int | None:
        """Whole number; the catalogues write 8 as 8.0."""
        value = self.number(column)
        if value is not None and (value != int(value) or value < minimum):
            raise self.refuse(column, f"a whole number at least {minimum}")
        return None if value is None else int(value)

    def scaled(
        self, column: str, factor: float, most: float = LARGEST_RATE
    ) -> float | None:
        """Positive number times `factor`, at most `most`."""
        value = self.number(column)
        if value is None:
            return None
        if value <= 0:
            raise self.refuse(column, "a number above 0")
        scaled = float(value) * factor
        if scaled > most:
            raise self.refuse(column, f"at most {most / factor:,.0f}")
        return scaled


def parse_row(row: Row) -> Iterator[Offer]:
    """Yield the offers of one line: on demand, spot, or one without a price."""
    prices = {
        CapacityType.ON_DEMAND: row.number("Price"),
        CapacityType.SPOT: row.number("SpotPrice"),
    }
    known = {kind: price for kind, price in prices.items() if price is not None}
    unpriced: dict[CapacityType, Decimal | None] = {CapacityType.ON_DEMAND: None}
    for capacity_type, price in (known or unpriced).items():
        try:
            yield make_offer(row, capacity_type, price)
        except InvalidFieldError as error:
            if error.path.startswith(row.place):
                raise
            field = error.path.removeprefix("Offer.")
            place = f"{row.place}, {field}"
            raise InvalidFieldError(place, error.value, error.allowed) from None


def make_offer(row: Row, capacity_type: CapacityType, price: Decimal | None) -> Offer:
    """Build one offer from a line."""
    count = row.whole_number("AcceleratorCount", 1)
    if count is None:
        raise row.refuse("AcceleratorCount", "a whole number at least 1")
    return Offer(
        name=row.text("InstanceType"),
        region=row.text("Region"),
        capacity_type=capacity_type,
        device_kind=device_kind(row),
        device_product=row.text("AcceleratorName"),
        device_memory_bytes=device_memory_bytes(row),
        devices_per_node=count,
        nodes_available=row.whole_number("NodesAvailable", 0),
        price_per_node_hour=price,
        currency=None if price is None else currency(row),
        link_in_node=link(row.scaled("LinkInNodeGBps", 1e9)),
        link_between_nodes=link(row.scaled("LinkBetweenNodesGBps", 1e9)),
        compute_rates=tuple(compute_rates(row)),
        memory_bandwidth_bytes_per_s=row.scaled("MemoryBandwidthGBps", 1e9),
        host_memory_bytes=host_memory_bytes(row),
        link_to_host=link(row.scaled("HostLinkGBps", 1e9)),
        host_link_shared=is_host_link_shared(row),
    )


def currency(row: Row) -> str:
    """Currency of a price; where there is a column, no cell is guessed."""
    text = row.text("Currency")
    if not text and "Currency" in row.cells:
        raise row.refuse("Currency", "an ISO 4217 code such as USD, beside a price")
    return text or DEFAULT_CURRENCY


def device_kind(row: Row) -> DeviceKind:
    """Kind of device; CUDA unless the line says otherwise."""
    text = row.text("DeviceKind") or DeviceKind.CUDA.value
    if text not in list(DeviceKind):
        raise row.refuse("DeviceKind", f"one of {', '.join(DeviceKind)}")
    return DeviceKind(text)


def device_memory_bytes(row: Row) -> int:
    """Memory of one device: our column, else what is known of it, else GpuInfo.

    GpuInfo has the size that is on the box.
    """
    mib = row.whole_number("DeviceMemoryMiB", 1)
    if mib is None:
        found = SIZE_IN_MIB.search(row.text("GpuInfo"))
        mib = int(found[1]) if found else 0
    if mib == 0 and row.text("GpuInfo"):
        rule = "a mapping with Gpus[0].MemoryInfo.SizeInMiB, or give DeviceMemoryMiB"
        raise row.refuse("GpuInfo", rule)
    if mib == 0:
        close = " or ".join(close_names(row.text("AcceleratorName")))
        known = f"such as {close}" if close else "`plimsoll devices` lists them"
        rule = f"a device that is known, {known}; or give DeviceMemoryMiB"
        raise row.refuse("AcceleratorName", rule)
    return mib * MIB


def host_memory_bytes(row: Row) -> int | None:
    """Memory of the node besides its devices, or None where it is unknown."""
    num_bytes = row.scaled("MemoryGiB", GIB, LARGEST_INTEGER)
    return None if num_bytes is None else int(num_bytes)


def is_host_link_shared(row: Row) -> bool:
    """Whether the devices of a node share one link to its memory.

    Each has its own, unless the line says otherwise.
    """
    text = row.text("HostLinkShared") or "no"
    if text not in {"yes", "no"}:
        raise row.refuse("HostLinkShared", "yes, no, or an empty cell")
    return text == "yes"


def link(bandwidth_bytes_per_s: float | None) -> Link | None:
    """Link of the given bandwidth, or None where it is unknown."""
    if bandwidth_bytes_per_s is None:
        return None
    return Link(bandwidth_bytes_per_s=bandwidth_bytes_per_s)


def compute_rates(row: Row) -> Iterable[ComputeRate]:
    """Yield the peak rates that the line states."""
    columns = {
        Precision.FP32: "Fp32TFLOPS",
        Precision.BF16: "Bf16TFLOPS",
        Precision.FP16: "Fp16TFLOPS",
    }
    for precision, column in columns.items():
        flop_per_s = row.scaled(column, 1e12)
        if flop_per_s is not None:
            yield ComputeRate(precision=precision, flop_per_s=flop_per_s)
