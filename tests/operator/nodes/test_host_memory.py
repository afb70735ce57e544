"""How much memory of the host pods ask for after it was too little."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll_operator.api.spec import PerGPU
from plimsoll_operator.nodes.host_memory import (
    predicted_bytes,
    raised_text,
    short_text,
    with_memory,
)
from plimsoll_planner.records.plan import PodShape
from tests.support.nodes import a_node

TRAINER = {"name": "trainer", "resources": {"limits": {"memory": "8Gi"}}}
STATED = PerGPU(cpu="2", memory="8Gi")


def a_pod(*beside: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Build a pod, with containers beside the one that trains."""
    return {"containers": [TRAINER, *beside]} | fields


def gib_for(
    nodes: list[dict[str, Any]],
    pod: dict[str, Any] | None = None,
    *,
    factor: int = 4,
    num_pods: int = 1,
    gpus_per_pod: int = 2,
) -> float:
    """GiB that are asked for beside each GPU."""
    shape = PodShape(
        num_pods=num_pods, gpus_per_pod=gpus_per_pod, host_memory_bytes_per_pod=0
    )
    needed = STATED.memory_bytes * factor
    asked = with_memory(STATED, needed, shape, pod or a_pod(), nodes)
    return asked.memory_bytes / 2**30


def some_nodes(*amounts: object, gpus: str = "2", **fields: Any) -> list[Any]:
    """Build nodes with as much memory and some GPUs each."""
    return [a_node(gpus=gpus, allocatable={"memory": one}, **fields) for one in amounts]


@pytest.mark.parametrize(
    ("factor", "memories", "gib"),
    [
        (2, ["64Gi"], 16),
        (4, ["64Gi"], 28),
        (4, ["64Gi", "256Gi"], 32),
        (4, ["67108864Ki"], 28),
        (4, ["68719476736"], 28),
        (4, ["68719476736000m"], 28),
        (64, ["2199023255552"], 512),
        (4, ["16Gi"], 8),
        (4, [], 32),
        (4, ["much", None, "-1", "64Gi\n"], 8),
    ],
)
def test_no_more_is_asked_for_than_a_node_has(
    factor: int, memories: list[object], gib: int
) -> None:
    """Seven parts in eight of the largest, for two GPUs; and never less than stated."""
    assert gib_for(some_nodes(*memories), factor=factor) == gib


@pytest.mark.parametrize(
    ("memories", "num_pods", "gib"),
    [
        (["256Gi", "64Gi", "48Gi"], 1, 32),
        (["256Gi", "64Gi", "48Gi"], 2, 28),
        (["256Gi", "64Gi", "48Gi"], 3, 21),
        (["256Gi", "64Gi", "48Gi"], 4, 21),
    ],
)
def test_each_pod_of_a_gang_has_its_place(
    memories: list[object], num_pods: int, gib: int
) -> None:
    """One large node serves one pod; where nodes are to come, the smallest counts."""
    assert gib_for(some_nodes(*memories), num_pods=num_pods) == gib


def test_pods_on_one_node_share_it() -> None:
    """Three GPUs a pod, eight a node: two places of half of its memory."""
    nodes = some_nodes("96Gi", "96Gi", gpus="8")
    assert gib_for(nodes, num_pods=3, gpus_per_pod=3) == 14


@pytest.mark.parametrize(
    "away",
    [
        {"unschedulable": True},
        {"conditions": [{"type": "Ready", "status": "False"}]},
        {"taints": [{"key": "team", "value": "x", "effect": "NoSchedule"}]},
        {"labels": {"zone": "2"}},
        {"gpus": "1"},
    ],
)
def test_only_nodes_that_may_run_the_pod_count(away: dict[str, Any]) -> None:
    """Not one that is cordoned, broken, tainted, elsewhere, or has too few GPUs."""
    near: dict[str, Any] = {"labels": {"zone": "1"}}
    nodes = some_nodes("64Gi", **near) + some_nodes("512Gi", **(near | away))
    assert gib_for(nodes, a_pod(nodeSelector={"zone": "1"})) == 28
    tolerant = a_pod(tolerations=[{"operator": "Exists"}], nodeSelector={"zone": "1"})
    assert gib_for(nodes, tolerant) == (32 if "taints" in away else 28)


@pytest.mark.parametrize(
    ("resources", "gib"),
    [
        ({"requests": {"memory": "16Gi"}, "limits": {"memory": "99Gi"}}, 20),
        ({"limits": {"memory": "16Gi"}}, 20),
        ({"requests": {"cpu": "1"}}, 28),
        ({"limits": None, "requests": None}, 28),
        (None, 28),
    ],
)
def test_what_runs_beside_has_its_part(
    resources: dict[str, Any] | None, gib: int
) -> None:
    """Other containers, and those that start before and stay."""
    nodes = some_nodes("64Gi")
    other = {"name": "proxy", "resources": resources}
    assert gib_for(nodes, a_pod(other)) == gib
    stays = {**other, "restartPolicy": "Always"}
    assert gib_for(nodes, a_pod(initContainers=[stays])) == gib
    assert gib_for(nodes, a_pod(initContainers=[other])) == 28


def test_a_single_container_is_the_one_that_trains() -> None:
    """Whatever its name: what it asks for is not beside it."""
    own = {"containers": [{**TRAINER, "name": "main"}]}
    assert gib_for(some_nodes("64Gi"), own) == 28


@pytest.mark.parametrize(
    ("stated", "predicted_gib", "node", "asked", "note"),
    [
        ("2Gi", 6, "16Gi", "3072Mi", ""),
        ("4Gi", 6, "16Gi", "4Gi", ""),
        ("4Gi", 0, "16Gi", "4Gi", ""),
        ("2Gi", 20, "16Gi", "7168Mi", "the plan predicts 10240Mi"),
    ],
)
def test_ranks_ask_for_what_their_plan_predicts(
    stated: str, predicted_gib: int, node: str, asked: str, note: str
) -> None:
    """Two GPUs share what a pod takes; a person may state more, and not less.

    Where a node has less than that, they ask for what it has, and a note says so.
    """
    shape = PodShape(
        num_pods=1, gpus_per_pod=2, host_memory_bytes_per_pod=predicted_gib * 2**30
    )
    needed, own = predicted_bytes(shape), PerGPU(memory=stated)
    found = with_memory(own, needed, shape, a_pod(), some_nodes(node))
    assert found.memory == asked
    assert note in short_text(found, needed)
    assert bool(note) == bool(short_text(found, needed))


def test_people_are_told_both_amounts() -> None:
    """What there is now, and what was too little."""
    text = raised_text(STATED, PerGPU(memory="16384Mi"))
    assert text == "with 16384Mi of memory for each GPU: 8Gi were too little before"
