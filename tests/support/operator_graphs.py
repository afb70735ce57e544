"""Small operator graphs: by hand, and random ones with everything a graph may have."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

from plimsoll_planner.records.graph_profile import (
    GraphEdges,
    GraphProfile,
    HoldColumns,
    NodeColumns,
    ParameterColumns,
    StorageColumns,
    digest_of_graph,
)
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.offer import Link
from plimsoll_planner.records.placement_plan import (
    Contributor,
    ContributorKind,
    DevicePeak,
    PlacementBounds,
    PlacementPlan,
    SendColumns,
)

LINK = Link(bandwidth_bytes_per_s=1e6, latency_s=1e-4)
"""On which random graphs below send about as long as they compute."""


@dataclass(kw_only=True)
class Node:
    """One node; `holds` are storages of others, in whose group it then is."""

    seconds: float | None = 1e-3
    output_bytes: int = 1000
    inputs: tuple[int, ...] = ()
    waits_for: tuple[int, ...] = ()
    holds: tuple[int, ...] | None = None
    """Storages; None: one of its own."""
    own_bytes: int | None = None
    """Of the storage of its own; None: as many as it sends."""
    more_bytes: tuple[int, ...] = ()
    """Of each further storage of its own, also of a node that has `holds`."""
    workspace_bytes: int = 0
    packed_workspace_bytes: int | None = None
    """None: as many, however arguments lie."""
    mixed_workspace_bytes: int | None = None
    is_contiguous: bool = True


@dataclass(kw_only=True)
class Weight:
    """One parameter."""

    node: int
    gradient: int | None = None
    num_bytes: int
    step_bytes: int = 0


@dataclass(kw_only=True)
class Made:
    """Columns of a graph while it grows."""

    storage_bytes: list[int] = field(default_factory=list[int])
    pairs: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    group: list[int] = field(default_factory=list[int])


def a_graph(
    nodes: list[Node],
    weights: list[Weight] | None = None,
    outputs: tuple[int, ...] = (),
    standing: tuple[int, ...] = (),
) -> GraphProfile:
    """Build a profile; `standing` are storages of parameters."""
    made, weights = Made(), weights or []
    for place, node in enumerate(nodes):
        add_storages(made, place, node)
    edges = [
        (source, place, carries)
        for place, node in enumerate(nodes)
        for sources, carries in ((node.inputs, True), (node.waits_for, False))
        for source in sources
    ]
    parts = (
        ("op",),
        columns_of(nodes, made.group),
        GraphEdges(
            source=tuple(one[0] for one in edges),
            target=tuple(one[1] for one in edges),
            carries_value=tuple(one[2] for one in edges),
        ),
        StorageColumns(
            num_bytes=tuple(made.storage_bytes),
            is_parameter=tuple(
                one in standing for one in range(len(made.storage_bytes))
            ),
        ),
        HoldColumns(
            node=tuple(node for node, _ in made.pairs),
            storage=tuple(storage for _, storage in made.pairs),
        ),
        parameters_of(weights),
        outputs,
    )
    return GraphProfile(
        graph_digest=digest_of_graph(*parts),
        operators=parts[0],
        nodes=parts[1],
        edges=parts[2],
        storages=parts[3],
        holds=parts[4],
        parameters=parts[5],
        outputs=parts[6],
    )


def a_graph_profile() -> GraphProfile:
    """Three nodes: the third returns the gradient of the first one's weight."""
    return a_graph(
        [
            Node(output_bytes=100),
            Node(output_bytes=10, inputs=(0,)),
            Node(output_bytes=100, inputs=(0, 1)),
        ],
        [Weight(node=0, gradient=2, num_bytes=100, step_bytes=7)],
        outputs=(1,),
    )


def a_placement(**fields: Any) -> PlacementPlan:
    """That graph on two devices, worked out by hand.

    The first node stands on device 0 and sends to device 1, which sends the gradient
    back; each send is over before the next node runs.
    """
    weight = {"parameter_bytes": 100, "gradient_bytes": 100, "optimizer_bytes": 200}
    nothing = dict.fromkeys(weight, 0)
    first = DevicePeak(
        **(weight | {"peak_bytes": 500, "place": 0, "value_bytes": 100}),
        received_bytes=0,
        transient_bytes=0,
        contributors=(
            Contributor(name="n0", num_bytes=100, kind=ContributorKind.VALUE),
        ),
    )
    second = DevicePeak(
        **(nothing | {"peak_bytes": 210, "place": 2, "value_bytes": 110}),
        received_bytes=100,
        transient_bytes=0,
        contributors=(
            Contributor(name="n2", num_bytes=100, kind=ContributorKind.VALUE),
            Contributor(name="n0", num_bytes=100, kind=ContributorKind.RECEIVED),
            Contributor(name="n1", num_bytes=10, kind=ContributorKind.VALUE),
        ),
    )
    defaults: dict[str, Any] = {
        "graph_digest": a_graph_profile().graph_digest,
        "num_devices": 2,
        "capacity_bytes": 1000,
        "link": LINK,
        "send_window": 1,
        "method": "by hand",
        "devices": (0, 1, 1),
        "order": (0, 1, 2),
        "sends": SendColumns(
            node=(0, 2),
            destination=(1, 0),
            begin=(0, 2),
            end=(0, 2),
            num_bytes=(100, 100),
        ),
        "peaks": (first, second),
        "makespan_s": 3.4e-3,
        "bounds": PlacementBounds(
            states_bytes=200,
            cut_bytes=305,
            group_bytes=500,
            largest_group="n0",
            node_bytes=500,
            largest_node="n0",
            critical_path_s=3e-3,
            work_s=1.5e-3,
        ),
        "verdict": Verdict.FITS,
    }
    return PlacementPlan(**(defaults | fields))


def add_storages(made: Made, place: int, node: Node) -> None:
    """Give a node its storages and its group."""
    held, added = list(node.holds or ()), list(node.more_bytes)
    if node.holds is None:
        added.insert(0, node.output_bytes if node.own_bytes is None else node.own_bytes)
        made.group.append(max(made.group, default=-1) + 1)
    else:
        holder = next(n for n, s in made.pairs if s == held[0])
        made.group.append(made.group[holder])
    for num_bytes in added:
        held.append(len(made.storage_bytes))
        made.storage_bytes.append(num_bytes)
    made.pairs += [(place, storage) for storage in held]


def parameters_of(weights: list[Weight]) -> ParameterColumns:
    """Columns of parameters with Adam's state."""
    sizes = tuple(weight.num_bytes for weight in weights)
    return ParameterColumns(
        name=tuple(f"w{place}" for place in range(len(weights))),
        node=tuple(weight.node for weight in weights),
        gradient=tuple(weight.gradient for weight in weights),
        parameter_bytes=sizes,
        gradient_bytes=sizes,
        optimizer_bytes=tuple(2 * size for size in sizes),
        step_bytes=tuple(weight.step_bytes for weight in weights),
    )


def columns_of(nodes: list[Node], group: list[int]) -> NodeColumns:
    """Columns of nodes, all of one operator."""
    return NodeColumns(
        name=tuple(f"n{place}" for place in range(len(nodes))),
        operator=(0,) * len(nodes),
        seconds=tuple(node.seconds for node in nodes),
        output_bytes=tuple(node.output_bytes for node in nodes),
        is_contiguous=tuple(node.is_contiguous for node in nodes),
        workspace_bytes=tuple(node.workspace_bytes for node in nodes),
        packed_workspace_bytes=tuple(
            other_workspace(node, node.packed_workspace_bytes) for node in nodes
        ),
        mixed_workspace_bytes=tuple(
            other_workspace(node, node.mixed_workspace_bytes) for node in nodes
        ),
        group=tuple(group),
        is_random=(False,) * len(nodes),
    )


def other_workspace(node: Node, stated: int | None) -> int:
    """Workspace of a node whose arguments were sent."""
    return node.workspace_bytes if stated is None else stated


def random_graph(num_nodes: int, seed: int, several: float = 0.0) -> GraphProfile:
    """A graph with views, writes in place, waits, kept values and parameters.

    `several` is the share of nodes that have a storage more.
    """
    rng = random.Random(seed)  # noqa: S311 - the seed is in the test's name
    nodes: list[Node] = []
    owned: list[int | None] = []
    """Storage of each node's own."""
    num_storages = 0
    for place in range(num_nodes):
        near = range(max(0, place - 12), place)
        num_inputs = rng.randint(1, 2) if place > 2 else 0
        inputs = tuple(sorted({rng.choice(near) for _ in range(num_inputs)}))
        viewed = [one for one in inputs if owned[one] is not None]
        is_view = bool(viewed) and rng.random() < 0.2
        has_more = several > 0 and rng.random() < several
        waits = {rng.choice(near)} - set(inputs) if place > 3 else set[int]()
        nodes.append(
            Node(
                seconds=rng.choice([0.0, rng.uniform(1e-4, 3e-3)]),
                output_bytes=rng.randint(0, 4000),
                inputs=inputs,
                waits_for=tuple(waits) if rng.random() < 0.1 else (),
                holds=(owned[viewed[0]] or 0,) if is_view else None,
                own_bytes=rng.randint(0, 4000),
                more_bytes=(rng.randint(0, 2000),) if has_more else (),
                workspace_bytes=rng.choice([0, 0, rng.randint(0, 3000)]),
                packed_workspace_bytes=rng.choice([None, rng.randint(0, 3000)]),
                mixed_workspace_bytes=rng.choice([None, rng.randint(0, 3000)]),
                is_contiguous=rng.random() < 0.8,
            )
        )
        owned.append(None if is_view else num_storages)
        num_storages += (not is_view) + has_more
    behind = num_nodes // 2
    sources = [place for place in range(behind) if owned[place] is not None]
    chosen = rng.sample(sources, min(len(sources), 1 + num_nodes // 12))
    weights = [
        Weight(
            node=place,
            gradient=rng.choice([None, rng.randrange(behind, num_nodes)]),
            num_bytes=rng.randint(1, 3000),
            step_bytes=rng.randint(0, 2000),
        )
        for place in chosen
    ]
    standing: list[int] = []
    for weight in weights:
        if rng.random() < 0.5:
            standing.append(owned[weight.node] or 0)
            weight.num_bytes = max(weight.num_bytes, nodes[weight.node].own_bytes or 0)
    outputs = tuple(sorted({num_nodes - 1, rng.randrange(num_nodes)}))
    return a_graph(nodes, weights, outputs, tuple(standing))


def without_seconds(profile: GraphProfile, place: int) -> GraphProfile:
    """A graph of which nobody knows how long one node takes."""
    seconds = list(profile.nodes.seconds)
    seconds[place] = None
    return replace(profile, nodes=replace(profile.nodes, seconds=tuple(seconds)))
