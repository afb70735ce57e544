"""Tables of machines and prices, as people paste them."""

from __future__ import annotations

import contextlib
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.offer_catalog import OUR_COLUMNS, SKYPILOT_COLUMNS, parse_offers
from plimsoll_planner.records.model_profile import DeviceKind, Precision
from plimsoll_planner.records.offer import CapacityType, Offer

EXAMPLE = Path(__file__).parents[2] / "examples" / "offers.csv"
SKYPILOT_ROW = {
    "InstanceType": "p4d.24xlarge",
    "AcceleratorName": "Some100",
    "AcceleratorCount": "8.0",
    "vCPUs": "96.0",
    "MemoryGiB": "1152.0",
    "GpuInfo": "{'Gpus': [{'Name': 'Some100', 'Manufacturer': 'NVIDIA', 'Count': 8.0, "
    "'MemoryInfo': {'SizeInMiB': 40960}}], 'TotalGpuMemoryInMiB': 327680}",
    "Region": "us-east-1",
    "SpotPrice": "9.83",
    "Price": "32.7726",
}


def a_table(*rows: dict[str, str], columns: tuple[str, ...] = SKYPILOT_COLUMNS) -> str:
    """Write rows as CSV, every cell in quotes."""
    lines = [",".join(columns)]
    lines += [
        ",".join(
            '"' + row.get(column, "").replace('"', '""') + '"' for column in columns
        )
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def test_a_row_of_a_skypilot_catalogue_is_two_offers() -> None:
    """On demand and spot; memory from GpuInfo, money exact, prices per node."""
    catalog = parse_offers(a_table(SKYPILOT_ROW), "t")
    on_demand, spot = catalog.offers
    assert on_demand == Offer(
        name="p4d.24xlarge",
        region="us-east-1",
        capacity_type=CapacityType.ON_DEMAND,
        device_product="Some100",
        device_memory_bytes=40960 * 2**20,
        devices_per_node=8,
        price_per_node_hour=Decimal("32.7726"),
        currency="USD",
        host_memory_bytes=1152 * 2**30,
    )
    assert spot.capacity_type is CapacityType.SPOT
    assert spot.price_per_node_hour == Decimal("9.83")


def test_rows_without_an_accelerator_are_counted() -> None:
    """Catalogues list CPU machines too; they are no offers, and not lost silently."""
    cpu = SKYPILOT_ROW | {"AcceleratorName": "", "AcceleratorCount": "", "GpuInfo": ""}
    catalog = parse_offers(a_table(cpu, SKYPILOT_ROW, cpu), "t")
    assert len(catalog.offers) == 2
    assert catalog.num_rows_without_accelerator == 2


def test_a_row_without_a_price_is_an_offer() -> None:
    """Owned machines have no price; counting GPUs needs none."""
    row = SKYPILOT_ROW | {"Price": "", "SpotPrice": ""}
    (offer,) = parse_offers(a_table(row), "t").offers
    assert offer.price_per_node_hour is None
    assert offer.currency is None


def test_our_columns_are_read() -> None:
    """Links, rates, memory, kind and count of nodes, in the units of their names."""
    row = SKYPILOT_ROW | {
        "GpuInfo": "",
        "SpotPrice": "",
        "DeviceMemoryMiB": "1024",
        "Currency": "EUR",
        "DeviceKind": "emulated",
        "NodesAvailable": "3",
        "LinkInNodeGBps": "300",
        "LinkBetweenNodesGBps": "12.5",
        "Fp32TFLOPS": "19.5",
        "Bf16TFLOPS": "312",
        "Fp16TFLOPS": "125",
        "MemoryBandwidthGBps": "1555",
        "HostLinkGBps": "25",
        "HostLinkShared": "yes",
    }
    table = a_table(row, columns=SKYPILOT_COLUMNS + OUR_COLUMNS)
    (offer,) = parse_offers(table, "t").offers
    assert offer.device_memory_bytes == 2**30
    assert offer.currency == "EUR"
    assert offer.device_kind is DeviceKind.EMULATED
    assert offer.nodes_available == 3
    assert offer.link_in_node is not None
    assert offer.link_in_node.bandwidth_bytes_per_s == 3e11
    assert offer.link_between_nodes is not None
    assert offer.link_between_nodes.bandwidth_bytes_per_s == 1.25e10
    assert {r.precision: r.flop_per_s for r in offer.compute_rates} == {
        Precision.FP32: 1.95e13,
        Precision.BF16: 3.12e14,
        Precision.FP16: 1.25e14,
    }
    assert offer.memory_bandwidth_bytes_per_s == 1.555e12
    assert offer.link_to_host is not None
    assert offer.link_to_host.bandwidth_bytes_per_s == 2.5e10
    assert offer.host_link_shared


def test_a_host_that_no_cell_describes_is_not_known() -> None:
    """Neither its memory nor its link is guessed, and half a GiB is no rounding."""
    bare, half = (
        parse_offers(a_table(SKYPILOT_ROW | {"MemoryGiB": cell}), "t").offers[0]
        for cell in ("", "0.5")
    )
    assert (bare.host_memory_bytes, bare.link_to_host) == (None, None)
    assert not bare.host_link_shared
    assert half.host_memory_bytes == 2**29


def test_blanks_around_names_and_cells_do_not_matter() -> None:
    """People align their tables by hand."""
    header = "InstanceType, AcceleratorName ,AcceleratorCount,DeviceMemoryMiB"
    (offer,) = parse_offers(f"{header}\n a , B ,1, 1024 \n", "t").offers
    assert (offer.name, offer.device_product) == ("a", "B")


def test_an_endless_table_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table has a largest number of lines, and the message says which."""
    monkeypatch.setattr("plimsoll_planner.offer_catalog.LARGEST_TABLE_ROWS", 3)
    parse_offers(a_table(*[SKYPILOT_ROW] * 2), "t")
    with pytest.raises(InvalidInputError, match="at most 3 lines"):
        parse_offers(a_table(*[SKYPILOT_ROW] * 3), "t")


def test_the_example_is_readable() -> None:
    """The table that the documentation uses stays valid."""
    catalog = parse_offers(EXAMPLE.read_text(), "offers.csv")
    assert len(catalog.offers) == 10


@pytest.mark.parametrize(
    ("column", "cell", "message"),
    [
        ("Price", "-1", "t, line 2, Price: got '-1', allowed is a number such as"),
        ("Price", "12,50", "t, line 2, Price: got '12,50', allowed is a number such"),
        ("Price", "1_000", "a number such as 12.34"),
        ("Price", "\u0661\u0662", "a number such as 12.34"),
        ("Price", "NaN", "a number such as 12.34"),
        ("Price", "1e99", "a number such as 12.34"),
        ("Price", "1000000001", "at most 1000000000"),
        ("AcceleratorCount", "", "t, line 2, AcceleratorCount: got ''"),
        ("AcceleratorCount", "0", "a whole number at least 1"),
        ("AcceleratorCount", "0.5", "a whole number at least 1"),
        ("AcceleratorCount", "inf", "a number such as"),
        ("AcceleratorCount", "1_0", "a number such as"),
        ("AcceleratorCount", "many", "a number such as"),
        ("GpuInfo", "", "or give DeviceMemoryMiB"),
        ("GpuInfo", "{'Gpus': []}", "or give DeviceMemoryMiB"),
        ("GpuInfo", "__import__('os')", "or give DeviceMemoryMiB"),
        ("GpuInfo", "[" * 9999, "or give DeviceMemoryMiB"),
        ("GpuInfo", "{'MemoryInfo': {'SizeInMiB': 1e999}}", "or give DeviceMemoryMiB"),
        ("InstanceType", "a\x9b31m", "printable text"),
        ("InstanceType", "", "t, line 2, name: got '', allowed is printable text"),
        ("DeviceKind", "tpu", "one of cuda, emulated"),
        ("DeviceMemoryMiB", "99999999999", "device_memory_bytes"),
        ("LinkInNodeGBps", "0", "a number above 0"),
        ("HostLinkGBps", "0", "t, line 2, HostLinkGBps: got '0', allowed is a number"),
        ("HostLinkGBps", "-25", "a number such as 12.34"),
        ("HostLinkShared", "maybe", "got 'maybe', allowed is yes, no, or an empty"),
        ("MemoryGiB", "0", "t, line 2, MemoryGiB: got '0', allowed is a number above"),
        (
            "MemoryGiB",
            "9" * 15,
            "MemoryGiB: got '999999999999999', allowed is at most 8,",
        ),
        (
            "HostLinkGBps",
            "9" * 15,
            "'999999999999999', allowed is at most 1,000,000,",
        ),
        ("Currency", "dollars", "an ISO 4217 code such as USD"),
        ("Currency", "", "t, line 2, Currency: got '', allowed is an ISO 4217 code"),
    ],
)
def test_a_bad_cell_is_named(column: str, cell: str, message: str) -> None:
    """The error says line, column, value and bound, in one line."""
    row = SKYPILOT_ROW | {"Currency": "USD"} | {column: cell}
    table = a_table(row, columns=SKYPILOT_COLUMNS + OUR_COLUMNS)
    with pytest.raises(InvalidInputError) as caught:
        parse_offers(table, "t")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the column InstanceType is missing"),
        ("InstanceType,AcceleratorName\n", "the column AcceleratorCount is missing"),
        ("InstanceTyp,AcceleratorName\n", "did you mean InstanceType?"),
        ("Price,Price\n", "the column Price is given twice"),
        ("InstanceType;AcceleratorName\n", "separated by ';', use ',' instead"),
        ("InstanceType,Colour\n", "no such column 'Colour'; remove it"),
        (a_table(), "no line has an accelerator"),
        (a_table() + "only,three,cells\n", "line 2: not as many cells"),
        (a_table() + '"a\n', "not readable as CSV"),
    ],
)
def test_what_is_no_table_is_refused(text: str, message: str) -> None:
    """The header is checked first, with a suggestion for a misspelt column."""
    with pytest.raises(InvalidInputError) as caught:
        parse_offers(text, "t")
    assert message in str(caught.value)


@given(text=st.text(max_size=200), cell=st.text(max_size=40))
@pytest.mark.parametrize("column", SKYPILOT_COLUMNS)
def test_no_text_breaks_the_reader(column: str, text: str, cell: str) -> None:
    """Whatever is handed in, the answer is offers or an `InvalidInputError`."""
    for table in (text, a_table(SKYPILOT_ROW | {column: cell})):
        with contextlib.suppress(InvalidInputError):
            parse_offers(table, "t")
