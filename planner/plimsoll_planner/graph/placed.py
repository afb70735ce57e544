"""A plan and the graph it was made from, read back as arrays.

In: a `PlacementPlan` and a `GraphProfile`. Out: `Placed`. Called before a plan runs,
is replayed or drawn; `place` takes the columns of sends from here.
"""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np

from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.graph.arrays import graph_of, integers
from plimsoll_planner.graph.bounds import bounds_of
from plimsoll_planner.graph.curve import Curve
from plimsoll_planner.graph.order import positions
from plimsoll_planner.graph.transfers import Placed, all_sends
from plimsoll_planner.records.graph_profile import GraphProfile
from plimsoll_planner.records.placement_plan import (
    PlacementBounds,
    PlacementPlan,
    SendColumns,
)

AGAIN = "place this graph again"


def placed_of(plan: PlacementPlan, profile: GraphProfile) -> Placed:
    """Graph, devices and order of a plan.

    Raises:
        InvalidInputError: the plan is of another graph, or breaks its order.
    """
    if plan.graph_digest != profile.graph_digest:
        raise InvalidInputError(
            f"the placement is of the graph {plan.graph_digest}, and this is "
            f"{profile.graph_digest}: {AGAIN}"
        )
    for noun, found, wanted in (
        ("groups", len(plan.devices), profile.num_groups),
        ("nodes", len(plan.order), profile.num_nodes),
    ):
        if found != wanted:
            raise InvalidInputError(
                f"the placement has {found} {noun}, and the graph {wanted}: {AGAIN}"
            )
    graph, place = graph_of(profile), positions(integers(plan.order))
    late = np.flatnonzero(place[graph.after.source] >= place[graph.after.target])
    if len(late):
        ends = graph.after.source[late[0]], graph.after.target[late[0]]
        first, then = (graph.names[end] for end in ends)
        raise InvalidInputError(
            f"the placement runs {then} before {first}, which it needs: {AGAIN}"
        )
    return Placed(
        graph=graph,
        device=integers(plan.devices)[graph.group],
        place=place,
        num_devices=plan.num_devices,
        window=plan.send_window,
    )


def require_exact(plan: PlacementPlan, profile: GraphProfile) -> Placed:
    """The same, of a plan whose sends, bounds and peaks follow from the rest.

    So that a plan that was written by hand, or by another release, does not run with
    numbers that nobody computed. The profile is the one that it was made from, with
    costs.

    Raises:
        InvalidInputError: they do not follow, or see `placed_of`.
    """
    placed = placed_of(plan, profile)
    if send_columns(placed) != plan.sends:
        raise InvalidInputError(
            f"the sends of the placement do not follow from its order: {AGAIN}"
        )
    require_bounds(plan.bounds, bounds_of(placed.graph, plan.num_devices))
    found = Curve(placed).peak.tolist()
    for device, (peak, exact) in enumerate(zip(plan.peaks, found, strict=True)):
        if peak.peak_bytes != exact:
            raise InvalidInputError(
                f"the placement states a peak of {peak.peak_bytes} bytes for device "
                f"{device}, and by its order it is {exact}: {AGAIN}"
            )
    return placed


def require_bounds(stated: PlacementBounds, found: PlacementBounds) -> None:
    """Raise `InvalidInputError` unless bounds are those of the graph.

    Seconds are sums, which may be rounded in another way elsewhere.
    """
    for field in fields(stated):
        one, other = getattr(stated, field.name), getattr(found, field.name)
        is_close = isinstance(one, float) and math.isclose(one, other)
        if one != other and not is_close:
            raise InvalidInputError(
                f"the placement states {one} as bound {field.name}, and by its graph "
                f"it is {other}: {AGAIN}"
            )


def send_columns(placed: Placed) -> SendColumns:
    """Sends of a placement as its record has them."""
    sends = all_sends(placed)
    return SendColumns(
        node=tuple(sends.node.tolist()),
        destination=tuple(sends.destination.tolist()),
        begin=tuple(sends.begin.tolist()),
        end=tuple(sends.end.tolist()),
        num_bytes=tuple(placed.graph.output_bytes[sends.node].tolist()),
    )
