"""The machines that a plan of this home may use, as they were when it was begun.

In: offers, or what the store keeps of them. Out: the other one. What this machine has
changes by the minute, so a plan goes on with what it began with.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import cast

from plimsoll_operator.store.plans import StoredPlan
from plimsoll_planner.records.offer import Offer

OFFERS = "offers"


def kept(offers: Sequence[Offer]) -> dict[str, str]:
    """Return offers as the store keeps them."""
    return {OFFERS: json.dumps([offer.to_json() for offer in offers])}


def offers_of(plan: StoredPlan) -> tuple[Offer, ...]:
    """Return the offers of a plan."""
    found = cast("list[object]", json.loads(plan.tables[OFFERS]))
    return tuple(Offer.from_json(value, OFFERS) for value in found)
