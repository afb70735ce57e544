"""How much memory of the host the pods of a gang ask for after it was too little.

In: what a plan asks for beside each GPU, how many times as much is wanted, the pod, and
the nodes. Out: what to ask for. Called where a gang is started again. A pod that asks
for more than any node has would wait for ever: so no more is asked for than the largest
node has that the pod may run on, less a part for what runs on every node. Where no such
node is there yet, nobody knows what the next one will have, and all of it is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from plimsoll_operator.api.quantities import MEMORY, memory_bytes
from plimsoll_operator.api.spec import PerGPU
from plimsoll_operator.cluster.api import Object
from plimsoll_operator.cluster.inventory import num_devices_of
from plimsoll_operator.cluster.node_affinity import admits
from plimsoll_operator.names import GPU_RESOURCE

RESERVED_SHARE: Final = 8
"""One part of so many of a node's memory is left to the agents that run on each."""


def raised(
    per_gpu: PerGPU, factor: int, pod: Mapping[str, Any], nodes: Iterable[Object]
) -> PerGPU:
    """Return what to ask for beside each GPU; never less than the spec does.

    Args:
        per_gpu: what the spec asks for.
        factor: how many times as much memory is wanted.
        pod: of the gang, as it is rendered.
        nodes: of the cluster.
    """
    stated = memory_bytes(per_gpu.memory)
    num_gpus = num_gpus_of(pod)
    room = [memory // num_gpus for memory in memory_on(pod, num_gpus, nodes)]
    wanted = min(stated * factor, max(room, default=stated * factor))
    return replace(per_gpu, memory=str(max(stated, wanted)))


def num_gpus_of(pod: Mapping[str, Any]) -> int:
    """Return how many GPUs a pod asks for; 1 where it asks for none."""
    limits = (
        one["resources"]["limits"] for one in pod["containers"] if "resources" in one
    )
    asked = (int(found[GPU_RESOURCE]) for found in limits if GPU_RESOURCE in found)
    return max(asked, default=1)


def memory_on(
    pod: Mapping[str, Any], num_gpus: int, nodes: Iterable[Object]
) -> Iterator[int]:
    """Yield how many bytes a pod can have on each node that may run it."""
    for node in nodes:
        text = str(node.get("status", {}).get("allocatable", {}).get("memory"))
        has_gpus = num_devices_of(node, "allocatable") >= num_gpus
        if has_gpus and re.fullmatch(MEMORY, text) and admits(pod, node):
            memory = memory_bytes(text)
            yield memory - memory // RESERVED_SHARE
