"""A captured graph with its costs as the planner's record, and whether both agree.

In: a captured graph and costs. Out: a `GraphProfile`. Called by whoever profiles; a
rank calls `require_same` with the profile that its plan was made from.
"""

from __future__ import annotations

from plimsoll_planner.records.graph_profile import (
    GraphEdges,
    GraphProfile,
    HoldColumns,
    NodeColumns,
    ParameterColumns,
    StorageColumns,
    digest_of_graph,
)
from plimsoll_trainer.errors import OtherWorkloadError
from plimsoll_trainer.placed.costs import UNKNOWN, Costs, OperatorCost, OptimizerCost
from plimsoll_trainer.placed.graph import CapturedGraph, Kind, State, is_sent_as_it_lies

FREE = OperatorCost(
    seconds=0.0, workspace_bytes=0, packed_workspace_bytes=0, mixed_workspace_bytes=0
)
NOTHING = OptimizerCost(state_bytes=0, step_bytes=0)
AGAIN = "profile and place this model again"


def profile_of(graph: CapturedGraph, costs: Costs = UNKNOWN) -> GraphProfile:
    """Record of a graph; what has no cost takes nothing."""
    operators = tuple(dict.fromkeys(node.operator for node in graph.nodes))
    nodes = node_columns(graph, operators, costs)
    parts = (
        operators,
        nodes,
        edges_of(graph),
        storage_columns(graph, costs),
        HoldColumns(
            node=tuple(i for i, node in enumerate(graph.nodes) for _ in node.storages),
            storage=tuple(one for node in graph.nodes for one in node.storages),
        ),
        parameter_columns(graph, costs),
        (graph.loss,),
    )
    return GraphProfile(
        graph_digest=digest_of_graph(*parts),
        operators=operators,
        nodes=nodes,
        edges=parts[2],
        storages=parts[3],
        holds=parts[4],
        parameters=parts[5],
        outputs=parts[6],
    )


def node_columns(
    graph: CapturedGraph, operators: tuple[str, ...], costs: Costs
) -> NodeColumns:
    """Columns of nodes."""
    place = {operator: at for at, operator in enumerate(operators)}
    nodes = graph.nodes
    found = [costs.operators.get(node.operator, FREE) for node in nodes]
    return NodeColumns(
        name=tuple(node.name for node in nodes),
        operator=tuple(place[node.operator] for node in nodes),
        seconds=tuple(cost.seconds for cost in found),
        output_bytes=tuple(
            sum(form.num_bytes for form in node.forms if form) for node in nodes
        ),
        is_contiguous=tuple(is_sent_as_it_lies(node) for node in nodes),
        workspace_bytes=tuple(cost.workspace_bytes for cost in found),
        packed_workspace_bytes=tuple(cost.packed_workspace_bytes for cost in found),
        mixed_workspace_bytes=tuple(cost.mixed_workspace_bytes for cost in found),
        group=graph.groups,
        is_random=tuple(node.is_random for node in nodes),
    )


def edges_of(graph: CapturedGraph) -> GraphEdges:
    """Edges, in the order of arguments: a subtrahend is no minuend."""
    edges = [
        (source, target, carries)
        for target, node in enumerate(graph.nodes)
        for sources, carries in ((node.inputs, True), (node.waits, False))
        for source in sources
    ]
    return GraphEdges(
        source=tuple(source for source, _, _ in edges),
        target=tuple(target for _, target, _ in edges),
        carries_value=tuple(carries for _, _, carries in edges),
    )


def storage_columns(graph: CapturedGraph, costs: Costs) -> StorageColumns:
    """Columns of storages: what kernels hold, and no less than what was captured.

    Those of states stay as captured, whatever wrote into them: `parameter_columns`
    counts the same bytes.
    """
    standing = {
        storage
        for node in graph.nodes
        if node.kind is Kind.STATE
        for storage in node.storages
    }
    num_bytes = list(graph.storage_bytes)
    for node in graph.nodes:
        held = costs.operators.get(node.operator, FREE).storage_bytes
        for storage, found in zip(node.storages, held, strict=False):
            if storage not in standing:
                num_bytes[storage] = max(num_bytes[storage], found)
    return StorageColumns(
        num_bytes=tuple(num_bytes),
        is_parameter=tuple(i in standing for i in range(len(graph.storage_bytes))),
    )


def parameter_columns(graph: CapturedGraph, costs: Costs) -> ParameterColumns:
    """Columns of parameters and buffers."""

    def optimizer(state: State) -> OptimizerCost:
        if state.gradient is None:
            return NOTHING
        return costs.optimizers.get(graph.nodes[state.node].form.text, NOTHING)

    states = graph.states
    sizes = [graph.nodes[state.node].form.num_bytes for state in states]
    return ParameterColumns(
        name=tuple(state.name for state in states),
        node=tuple(state.node for state in states),
        gradient=tuple(state.gradient for state in states),
        parameter_bytes=tuple(
            sum(graph.storage_bytes[one] for one in graph.nodes[state.node].storages)
            for state in states
        ),
        gradient_bytes=tuple(
            0 if state.gradient is None else size
            for state, size in zip(states, sizes, strict=True)
        ),
        optimizer_bytes=tuple(optimizer(state).state_bytes for state in states),
        step_bytes=tuple(optimizer(state).step_bytes for state in states),
    )


def require_same(graph: CapturedGraph, profile: GraphProfile) -> None:
    """Raise `OtherWorkloadError` unless a graph is the one that was profiled.

    It names the first node that differs.
    """
    columns, sources = profile.nodes, sources_of(profile)
    for index, node in enumerate(graph.nodes):
        if index == profile.num_nodes:
            break
        planned = (
            profile.operators[columns.operator[index]],
            sources[index],
            columns.name[index],
        )
        found = (node.operator, [*node.inputs, *node.waits], node.name)
        if planned != found:
            words = ("operator", "nodes that it reads", "name")
            fields = zip(words, planned, found, strict=True)
            what, before, now = next(one for one in fields if one[1] != one[2])
            raise OtherWorkloadError(
                f"node {index} ({node.name}) of the model is another one than when it "
                f"was placed, {what} {now} in the place of {before}: {AGAIN}"
            )
    if len(graph.nodes) != profile.num_nodes:
        raise OtherWorkloadError(
            f"the model has {len(graph.nodes)} nodes, and had {profile.num_nodes} when "
            f"it was placed: {AGAIN}"
        )
    gradients = tuple(state.gradient for state in graph.states)
    if gradients != profile.parameters.gradient:
        raise OtherWorkloadError(
            f"other parameters are trained than when the model was placed: {AGAIN}"
        )


def sources_of(profile: GraphProfile) -> list[list[int]]:
    """Nodes that each node reads or waits for, in the order of edges."""
    found: list[list[int]] = [[] for _ in range(profile.num_nodes)]
    for source, target in zip(profile.edges.source, profile.edges.target, strict=True):
        found[target].append(source)
    return found
