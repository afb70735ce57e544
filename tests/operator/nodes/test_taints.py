"""Which taints keep pods off a node: the scheduler's rules, case by case."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll_operator.nodes.taints import barring_taint, tolerates
from tests.support.nodes import a_node

TAINT = {"key": "team", "value": "vision", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        ({"key": "team", "value": "vision"}, True),
        ({"key": "team", "operator": "Equal", "value": "vision"}, True),
        ({"key": "team", "value": "speech"}, False),
        ({"key": "team"}, False),
        ({"key": "other", "value": "vision"}, False),
        ({"key": "team", "operator": "Exists"}, True),
        ({"key": "other", "operator": "Exists"}, False),
        ({"operator": "Exists"}, True),
        ({"value": "vision"}, False),
        ({"operator": "Exists", "effect": "NoSchedule"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "team", "operator": "Exists", "effect": ""}, True),
        ({"key": "team", "operator": "Gt", "value": "vision"}, False),
    ],
)
def test_a_toleration_lifts_the_taints_it_names(
    toleration: dict[str, Any], expected: bool
) -> None:
    """By key, value and effect; what is left out in it matches all, but the value."""
    assert tolerates(toleration, TAINT) is expected


def test_a_taint_without_a_value_is_lifted_by_its_key() -> None:
    """An absent value and an empty one are the same."""
    taint = {"key": "team", "effect": "NoSchedule"}
    assert tolerates({"key": "team", "value": ""}, taint)
    assert tolerates({"key": "team"}, taint)


def test_to_stay_for_some_seconds_is_not_to_stay() -> None:
    """Training is evicted when they are over; being scheduled has no such end."""
    some = {"key": "team", "operator": "Exists", "tolerationSeconds": 300}
    assert not tolerates(some, TAINT | {"effect": "NoExecute"})
    assert tolerates(some, TAINT)


@pytest.mark.parametrize(
    ("effect", "bars"),
    [("NoSchedule", True), ("NoExecute", True), ("PreferNoSchedule", False)],
)
def test_only_what_keeps_pods_off_bars(effect: str, bars: bool) -> None:
    """A preference of the scheduler's is no reason."""
    taint = TAINT | {"effect": effect}
    assert barring_taint(a_node(taints=[taint]), ()) == (taint if bars else None)
