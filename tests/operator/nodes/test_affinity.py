"""Nodes that a template's required affinity admits, as the scheduler judges."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll_operator.nodes.affinity import admits
from plimsoll_planner.errors import InvalidFieldError

NODE = {"metadata": {"name": "a", "labels": {"zone": "1", "size": "40"}}}


def part(key: str, operator: str, *values: Any) -> dict[str, Any]:
    """Build a requirement."""
    return {"key": key, "operator": operator, "values": list(values)}


def pod(*terms: Any) -> dict[str, Any]:
    """Build a pod that requires one of some terms."""
    required = {"nodeSelectorTerms": list(terms)}
    kind = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"affinity": {"nodeAffinity": {kind: required}}}


@pytest.mark.parametrize(
    ("one", "holds"),
    [
        (part("zone", "In", "1", "2"), True),
        (part("zone", "In", "2"), False),
        (part("zone", "NotIn", "2"), True),
        (part("zone", "NotIn", "1"), False),
        (part("team", "NotIn", "x"), True),
        (part("zone", "Exists"), True),
        (part("team", "Exists"), False),
        (part("team", "DoesNotExist"), True),
        (part("zone", "DoesNotExist"), False),
        (part("size", "Gt", "39"), True),
        (part("size", "Gt", "40"), False),
        (part("size", "Lt", "41"), True),
        (part("size", "Lt", "x"), False),
        (part("zone", "Gt", "0", "1"), False),
        (part("team", "Gt", "1"), False),
        (part("zone", "Near", "1"), False),
        (part("zone", "In", 1), False),
        ({"key": "zone", "operator": "In", "values": "1"}, False),
        ({"key": "size", "operator": "Gt", "values": [None]}, False),
        ({}, False),
        ("zone", False),
    ],
    ids=str,
)
def test_a_requirement_holds_as_for_the_scheduler(one: Any, holds: bool) -> None:
    """What the API server would refuse holds nowhere, and is no fault of ours."""
    assert admits(pod({"matchExpressions": [one]}), NODE) is holds


def test_terms_are_alternatives_and_their_parts_are_not() -> None:
    """An empty term admits no node, and neither does an empty list of terms."""
    right, wrong = part("zone", "In", "1"), part("zone", "In", "2")
    by_name = {"matchFields": [part("metadata.name", "In", "a")]}
    assert admits(pod({"matchExpressions": [wrong]}, by_name), NODE)
    assert not admits(pod({"matchExpressions": [right, wrong]}), NODE)
    assert not admits(pod(by_name | {"matchExpressions": [wrong]}), NODE)
    assert not admits(pod({}), NODE)
    assert not admits(pod(), NODE)
    assert admits({}, NODE)
    assert admits({"affinity": {"podAffinity": {}}}, NODE)


def test_the_node_selector_holds_as_well() -> None:
    """All of its labels."""
    one = pod({"matchExpressions": [part("zone", "Exists")]})
    assert admits(one | {"nodeSelector": {"zone": "1"}}, NODE)
    assert not admits(one | {"nodeSelector": {"zone": "2"}}, NODE)


def test_what_is_no_affinity_is_refused() -> None:
    """By its path."""
    with pytest.raises(InvalidFieldError, match=r"spec\.template\.spec\.affinity"):
        admits({"affinity": "here"}, NODE)
