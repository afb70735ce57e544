"""Which nodes the required node affinity of a template admits.

In: a node, and the pod of a template. Out: whether its pods may be put there. Called by
`machines`, so that no plan is made for nodes on which its pods would wait for ever. The
rules are those of the scheduler: terms are alternatives, all parts of a term must hold,
and an empty term holds nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from plimsoll_operator.kube.api import Object
from plimsoll_operator.nodes.placement import required_terms


def admits(pod: Mapping[str, Any], node: Object) -> bool:
    """Whether a pod's node selector and required node affinity hold on a node.

    Raises:
        InvalidFieldError: the affinity is none.
    """
    labels: dict[str, str] = node["metadata"].get("labels") or {}
    if not (pod.get("nodeSelector") or {}).items() <= labels.items():
        return False
    terms = required_terms(pod.get("affinity"))
    fields = {"metadata.name": node["metadata"]["name"]}
    return terms is None or any(term_holds(term, labels, fields) for term in terms)


def term_holds(
    term: Mapping[str, Any], labels: Mapping[str, str], fields: Mapping[str, str]
) -> bool:
    """Whether all parts of a term hold; an empty one does not."""
    parts = [
        *((part, labels) for part in term.get("matchExpressions") or ()),
        *((part, fields) for part in term.get("matchFields") or ()),
    ]
    return bool(parts) and all(part_holds(part, facts) for part, facts in parts)


def part_holds(part: object, facts: Mapping[str, str]) -> bool:
    """Whether one requirement holds; one that nobody can read does not."""
    if not isinstance(part, dict):
        return False
    asked = cast("dict[str, Any]", part)
    found, given = facts.get(str(asked.get("key"))), asked.get("values")
    listed = cast("list[object]", given) if isinstance(given, list) else []
    values = [value for value in listed if isinstance(value, str)]
    holds = {
        "In": found in values,
        "NotIn": found not in values,
        "Exists": found is not None,
        "DoesNotExist": found is None,
        "Gt": is_beyond(found, values, 1),
        "Lt": is_beyond(found, values, -1),
    }
    return holds.get(str(asked.get("operator")), False)


def is_beyond(found: str | None, values: list[str], direction: int) -> bool:
    """Whether a label is a whole number above, or below, the only value."""
    try:
        [limit] = map(int, values)
        return found is not None and direction * (int(found) - limit) > 0
    except (TypeError, ValueError):
        return False
