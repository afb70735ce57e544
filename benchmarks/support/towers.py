"""Random training graphs: towers of operators with skips, and their backward pass.

In: a size and a seed. Out: a `GraphProfile`. Called by `benchmarks.placement` and the
tests of the planner for graphs.

Each tower is a chain of forward nodes; a node may also read a neighbouring tower, or a
node far behind (a skip). Backward nodes mirror them: node i's reads what i returned,
and the gradients of all that read i. One in ten has a parameter with Adam's state.
"""

from __future__ import annotations

import random

from plimsoll_planner.records.graph_profile import (
    GraphEdges,
    GraphProfile,
    HoldColumns,
    NodeColumns,
    ParameterColumns,
    StorageColumns,
    digest_of_graph,
)

CROSS, HAS_PARAMETER = 0.05, 0.1
SHORTEST_SKIP = 20
SKIP_SHARE = 0.02


def towers(num_nodes: int, num_towers: int, seed: int = 0) -> GraphProfile:
    """A graph of about so many nodes: as many levels as the towers have, twice."""
    rng = random.Random(seed)  # noqa: S311 - the same graph every time
    num_levels = max(num_nodes // (2 * num_towers), 1)
    num_forward = num_levels * num_towers
    edges = forward_edges(num_levels, num_towers, rng)
    last = 2 * num_forward - 1
    backward = [(last - target, last - source) for source, target in edges]
    saved = [(node, last - node) for node in range(num_forward)]
    seconds = [rng.lognormvariate(-9.2, 0.7) for _ in range(num_forward)]
    num_bytes = [int(rng.lognormvariate(13.5, 1)) for _ in range(num_forward)]
    owners = [node for node in range(num_forward) if rng.random() < HAS_PARAMETER]
    return graph_profile(
        seconds=[*seconds, *(2 * one for one in reversed(seconds))],
        num_bytes=[*num_bytes, *reversed(num_bytes)],
        edges=sorted({*edges, *backward, *saved}),
        parameters=[
            (node, last - node, int(rng.lognormvariate(11.6, 1))) for node in owners
        ],
    )


def forward_edges(
    num_levels: int, num_towers: int, rng: random.Random
) -> list[tuple[int, int]]:
    """Edges between levels: along a tower, across, and over many levels."""
    edges: set[tuple[int, int]] = set()
    for level in range(1, num_levels):
        for tower in range(num_towers):
            target = level * num_towers + tower
            edges.add((target - num_towers, target))
            if rng.random() < CROSS:
                other = rng.randrange(num_towers)
                edges.add(((level - 1) * num_towers + other, target))
            if level > SHORTEST_SKIP and rng.random() < SKIP_SHARE:
                behind = rng.randrange(level - SHORTEST_SKIP, level - 1)
                edges.add((behind * num_towers + tower, target))
    return sorted(edges)


def graph_profile(
    *,
    seconds: list[float],
    num_bytes: list[int],
    edges: list[tuple[int, int]],
    parameters: list[tuple[int, int, int]],
) -> GraphProfile:
    """A graph whose nodes each return a storage of their own.

    Args:
        seconds: of each node.
        num_bytes: of what each node returns.
        edges: source and target, all of values.
        parameters: node, node of the gradient, bytes; Adam's state is twice that.
    """
    length = len(seconds)
    sizes = tuple(size for _, _, size in parameters)
    operators = ("forward", "backward")
    nodes = NodeColumns(
        name=tuple(f"node_{node}" for node in range(length)),
        operator=tuple(int(2 * node >= length) for node in range(length)),
        seconds=tuple(seconds),
        output_bytes=tuple(num_bytes),
        is_contiguous=(True,) * length,
        workspace_bytes=(0,) * length,
        packed_workspace_bytes=(0,) * length,
        mixed_workspace_bytes=(0,) * length,
        group=tuple(range(length)),
        is_random=(False,) * length,
    )
    parts = (
        operators,
        nodes,
        GraphEdges(
            source=tuple(source for source, _ in edges),
            target=tuple(target for _, target in edges),
            carries_value=(True,) * len(edges),
        ),
        StorageColumns(num_bytes=tuple(num_bytes), is_parameter=(False,) * length),
        HoldColumns(node=tuple(range(length)), storage=tuple(range(length))),
        ParameterColumns(
            name=tuple(f"weight_{node}" for node, _, _ in parameters),
            node=tuple(node for node, _, _ in parameters),
            gradient=tuple(gradient for _, gradient, _ in parameters),
            parameter_bytes=sizes,
            gradient_bytes=sizes,
            optimizer_bytes=tuple(2 * size for size in sizes),
            step_bytes=sizes,
        ),
        (length - 1,),
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
