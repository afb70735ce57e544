"""How much memory of the host pods ask for after it was too little."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll_operator.api.spec import PerGPU
from plimsoll_operator.cluster.host_memory import raised
from plimsoll_operator.names import GPU_RESOURCE
from tests.support.nodes import a_node

GIB = 2**30
STATED = PerGPU(cpu="2", memory="8Gi")


def a_pod(num_gpus: int = 2, **fields: Any) -> dict[str, Any]:
    """Build a pod, with a container beside the one that trains."""
    limits = {GPU_RESOURCE: str(num_gpus)} if num_gpus else {}
    main = {"name": "main", "resources": {"limits": limits}}
    return {"containers": [{"name": "proxy"}, main]} | fields


@pytest.mark.parametrize(
    ("factor", "memories", "gib"),
    [
        (2, ["64Gi"], 16),
        (4, ["64Gi"], 28),
        (4, ["64Gi", "256Gi"], 32),
        (4, ["67108864Ki"], 28),
        (4, [str(64 * GIB)], 28),
        (4, ["16Gi"], 8),
        (4, [], 32),
        (4, ["much", None, "-1", "64Gi\n"], 32),
    ],
)
def test_no_more_is_asked_for_than_a_node_has(
    factor: int, memories: list[object], gib: int
) -> None:
    """Seven parts in eight of the largest, for two GPUs; and never less than stated."""
    nodes = [a_node(allocatable={"memory": one}) for one in memories]
    found = raised(STATED, factor, a_pod(), nodes)
    assert found == PerGPU(cpu="2", memory=str(gib * GIB))


def test_only_nodes_that_may_run_the_pod_count() -> None:
    """With enough GPUs, and as its node selector says."""
    small = a_node("a", {"zone": "1"}, allocatable={"memory": "64Gi"})
    few = a_node("b", {"zone": "1"}, gpus="1")
    other = a_node("c", {"zone": "2"})
    pod = a_pod(nodeSelector={"zone": "1"})
    assert raised(STATED, 4, pod, [small, few, other]).memory == str(28 * GIB)
    assert raised(STATED, 4, a_pod(), [small, few]).memory == str(28 * GIB)


def test_a_pod_without_gpus_asks_for_one_share() -> None:
    """As it did before."""
    found = raised(
        STATED, 4, a_pod(num_gpus=0), [a_node(allocatable={"memory": "16Gi"})]
    )
    assert found.memory == str(14 * GIB)
