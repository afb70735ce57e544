"""The machines that a ConfigMap lists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plimsoll_operator.nodes.offers import offers_in
from plimsoll_operator.rules.question import require_sound
from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.offer_catalog import parse_offers
from tests.support.specs import a_spec

EXAMPLE = Path(__file__).parents[3] / "examples" / "offers.csv"
HEADER = "InstanceType,AcceleratorName,AcceleratorCount,DeviceMemoryMiB,Price,Currency"


def a_config_map(text: str | None, **fields: Any) -> dict[str, Any]:
    """Build the ConfigMap `gpus`, with a table if there is a text."""
    data = {} if text is None else {"data": {"offers.csv": text}}
    return {"metadata": {"name": "gpus", "namespace": "ml"}, **data, **fields}


def a_table(*rows: str) -> dict[str, Any]:
    """Build a ConfigMap with rows of machines, prices and currencies."""
    return a_config_map("\n".join((HEADER, *rows)) + "\n")


def test_a_table_is_the_offers_it_lists() -> None:
    """As the same file at home; a mark that editors put before it does not matter."""
    text = EXAMPLE.read_text()
    expected = parse_offers(text, "offers.csv").offers
    assert offers_in(a_config_map(text)) == expected
    assert offers_in(a_config_map("\ufeff" + text)) == expected


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a,A,1,8,-1,USD", "ConfigMap gpus, line 2, Price: got '-1', allowed is a num"),
        ("a,A,1,8,NaN,USD", "ConfigMap gpus, line 2, Price: got 'NaN', allowed is a n"),
        ("a,A,1,8,free,USD", "ConfigMap gpus, line 2, Price: got 'free', allowed is "),
        ("a,A,1,8,2.5,", "ConfigMap gpus, line 2, Currency: got '', allowed is an ISO"),
        ("a,A,1,8,2.5,dollar", "ConfigMap gpus, line 2, currency: got 'dollar', allow"),
        (
            "a,A,1,0,2.5,USD",
            "ConfigMap gpus, line 2, DeviceMemoryMiB: got '0', allowed",
        ),
    ],
)
def test_a_nonsense_cell_is_refused_by_name(row: str, message: str) -> None:
    """With the ConfigMap, the line and the column."""
    with pytest.raises(InvalidInputError) as caught:
        offers_in(a_table(row))
    assert message in str(caught.value)


def test_currencies_are_mixed_only_where_no_cost_is_asked() -> None:
    """What cannot be compared is refused; the fewest GPUs need no price."""
    offers = offers_in(a_table("a,A,1,8,1,USD", "b,A,2,8,2,EUR"))
    require_sound(a_spec(search={"objective": "MinimizeGPUs"}), offers)
    with pytest.raises(InvalidInputError) as caught:
        require_sound(a_spec(search={"objective": "MinimizeCost"}), offers)
    assert "spec.search.offers: got 'EUR, USD', allowed is one" in str(caught.value)


def test_a_machine_without_a_price_is_named_where_a_cost_is_asked() -> None:
    """It could be the cheapest, and nobody knows."""
    offers = offers_in(a_table("a,A,1,8,1,USD", "b,A,2,8,,"))
    with pytest.raises(InvalidInputError, match="offers: got 'b', allowed is offers"):
        require_sound(a_spec(search={"objective": "MinimizeCost"}), offers)


@pytest.mark.parametrize(
    ("config_map", "message"),
    [
        (a_config_map(None), "ConfigMap gpus: data: got '', allowed is a table named"),
        (a_config_map(None, data={"a.csv": "", "b": ""}), "got 'a.csv, b', allowed"),
        (a_config_map(None, binaryData={"offers.csv": "/w=="}), "as text in UTF-8"),
        (a_config_map(""), "ConfigMap gpus: the column InstanceType is missing"),
        (
            a_config_map(
                "InstanceType,AcceleratorName,AcceleratorCount,DeviceMemoryMiB,DeviceKind\n"
                "a,A,1,8,cuda\nb,B,1,8,emulated\n"
            ),
            "ConfigMap gpus, DeviceKind: got 'cuda, emulated', allowed is one kind",
        ),
        (
            a_table("a,A,1,8,1,USD", "a,B,2,8,2,USD"),
            "ConfigMap gpus: got 'a on-demand', allowed is lines that differ",
        ),
    ],
)
def test_a_table_that_is_none_is_refused(
    config_map: dict[str, Any], message: str
) -> None:
    """The message says what is there, and what is wanted."""
    with pytest.raises(InvalidInputError) as caught:
        offers_in(config_map)
    assert message in str(caught.value)
