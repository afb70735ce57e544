"""A plan and the graph it was made from, read back as arrays.

In: a `PlacementPlan` and a `GraphProfile`. Out: `Placed`. Called by `actions` and
`fullest`, and by whoever checks a plan before it runs.
"""

from __future__ import annotations

import numpy as np

from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.graph.arrays import graph_of, integers
from plimsoll_planner.graph.curve import Curve
from plimsoll_planner.graph.order import positions
from plimsoll_planner.graph.transfers import Placed, all_sends
from plimsoll_planner.records.graph_profile import GraphProfile
from plimsoll_planner.records.placement_plan import PlacementPlan

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


def require_exact(plan: PlacementPlan, profile: GraphProfile) -> None:
    """Raise `InvalidInputError` unless sends and peaks of a plan follow from the rest.

    So that a plan that was written by hand, or by another release, does not run with
    peaks that nobody computed.
    """
    placed = placed_of(plan, profile)
    sends, told = all_sends(placed), plan.sends
    columns = (sends.node, sends.destination, sends.begin, sends.end)
    if [column.tolist() for column in columns] != [
        list(column) for column in (told.node, told.destination, told.begin, told.end)
    ]:
        raise InvalidInputError(
            f"the sends of the placement do not follow from its order: {AGAIN}"
        )
    found = Curve(placed).peak.tolist()
    for device, (peak, exact) in enumerate(zip(plan.peaks, found, strict=True)):
        if peak.peak_bytes != exact:
            raise InvalidInputError(
                f"the placement states a peak of {peak.peak_bytes} bytes for device "
                f"{device}, and by its order it is {exact}: {AGAIN}"
            )
