"""Offers of like machines, which are searched once.

In: offers. Out: for each the first one that is alike. Called by `tuple_context`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from plimsoll_planner.records.offer import CapacityType, Offer


def first_alike(offers: Sequence[Offer]) -> list[int]:
    """For each offer the place of the first one with such machines.

    Only what a machine is called, where it is, on which terms, at what price and how
    many there are may differ: ranks hold and take the same on each of them.
    """
    places: dict[Hashable, int] = {}
    return [
        places.setdefault(
            replace(
                offer,
                name="any",
                region="",
                capacity_type=CapacityType.ON_DEMAND,
                nodes_available=None,
                price_per_node_hour=None,
                currency=None,
            ),
            place,
        )
        for place, offer in enumerate(offers)
    ]
