"""Which profile a spec asks for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from plimsoll_operator.rules.profile_request import profile_request_of
from tests.support.builders import an_offer
from tests.support.specs import a_spec


@pytest.mark.parametrize(
    ("per_node", "fields", "degrees"),
    [
        ((8,), {}, (1, 2, 4, 8)),
        ((2, 4), {}, (1, 2, 4)),
        ((1,), {}, (1,)),
        ((8,), {"search": {"maxGPUs": 3}}, (1, 2)),
        ((2,), {"override": {"tensor": 1}}, (1, 2)),
        ((2,), {"override": {"tensor": 6}}, (1, 2, 6)),
    ],
)
def test_layers_are_split_as_a_node_can(
    per_node: tuple[int, ...], fields: dict[str, Any], degrees: tuple[int, ...]
) -> None:
    """No degree that no plan may have is probed, but the one that a person fixed."""
    offers = [an_offer(devices_per_node=devices) for devices in per_node]
    found = profile_request_of(a_spec(**fields), offers, "here", is_here=True)
    assert found.tensor_degrees == degrees


def test_another_node_asks_for_another_profile_only_if_more_is_to_be_split() -> None:
    """The key is that of the degrees: nodes of 8 and 16 devices have the same."""
    keys = [
        profile_request_of(
            a_spec(), [an_offer(devices_per_node=devices)], "here", is_here=True
        ).key
        for devices in (4, 8, 16)
    ]
    assert keys[0] != keys[1] == keys[2]


@pytest.mark.parametrize(
    ("batch", "fields", "sizes"),
    [
        (8, {}, ()),
        (8, {"search": {"engine": "graph"}}, (1, 2, 4, 8)),
        (12, {"search": {"engine": "graph"}}, (1, 2, 4)),
        (7, {"search": {"engine": "graph"}}, (1,)),
        (
            12,
            {"search": {"engine": "graph"}, "override": {"microBatch": 3}},
            (1, 2, 3, 4),
        ),
    ],
)
def test_an_engine_that_places_operators_needs_graphs(
    batch: int, fields: dict[str, Any], sizes: tuple[int, ...]
) -> None:
    """Of micro-batches that divide the batch; it splits no layers."""
    training = {"globalBatchSize": batch, "steps": 20}
    spec = a_spec(training=training, **fields)
    offers = [an_offer(devices_per_node=2)]
    found = profile_request_of(spec, offers, "here", is_here=True)
    assert found.graph_micro_batches == sizes
    assert found.tensor_degrees == ((1,) if sizes else (1, 2))


def test_requests_without_graphs_keep_their_keys() -> None:
    """As they were before there were graphs: profiles in the store are found."""
    offers = [an_offer(devices_per_node=2)]
    found = profile_request_of(a_spec(), offers, "here", is_here=True)
    before = "e136415c276a44e290ac79ee15e5bcb51bd08d99d35b1450dc530e01a22723ea"
    assert found.key == f"sha256:{before}"
    assert replace(found, graph_micro_batches=(1,)).key != found.key
