"""Memory of the host that the pods of a worker group ask for.

At first that is what the plan predicts, or more if a person states more. Then it may
have been too little. In: what was asked for beside each GPU, how many times as much is
wanted, the pods and the nodes. Out: what to ask for. Called where a worker group is
started. One that asks for more than its nodes have would wait for ever, so each pod
must have its place:

    a node's places    as many as its GPUs are enough for
    room of a place    an equal part of its host memory (`host_bytes_of`), less what
                       other containers of the pod ask for
    bound              the smallest room of the largest places, one for each pod

Whoever uses a node now counts for nothing, as with GPUs. Where there are fewer places
than pods an autoscaler is to make nodes, and the smallest of those that are there
counts; where there are none nobody knows, and all of it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from plimsoll_operator.api.quantities import amount
from plimsoll_operator.api.spec import PerGPU
from plimsoll_operator.kube.api import Object
from plimsoll_operator.kube.template_fields import MAIN
from plimsoll_operator.nodes.affinity import admits
from plimsoll_operator.nodes.inventory import (
    MIB,
    host_bytes_of,
    num_devices_of,
    reason_of_state,
)
from plimsoll_planner.records.plan import PodShape


def predicted_bytes(pods: PodShape) -> int:
    """Memory beside each GPU that a plan predicts.

    What an entry point keeps, such as data, is not predicted.
    """
    return -(-pods.host_memory_bytes_per_pod // pods.gpus_per_pod)


def with_memory(
    per_gpu: PerGPU,
    needed_bytes: int,
    pods: PodShape,
    pod: Mapping[str, Any],
    nodes: Iterable[Object],
) -> PerGPU:
    """Resources of each GPU with so much memory, as far as there is room.

    Never less than the spec asks for; `pod` is the spec rendered with that.
    """
    rooms = sorted(rooms_of(pods, pod, nodes), reverse=True)[: pods.num_pods]
    stated = per_gpu.memory_bytes
    most = rooms[-1] // pods.gpus_per_pod if rooms else needed_bytes
    wanted = min(-(-needed_bytes // MIB), most // MIB)
    return replace(per_gpu, memory=f"{wanted}Mi") if wanted * MIB > stated else per_gpu


def raised_text(stated: PerGPU, raised_to: PerGPU) -> str:
    """A note about it for people."""
    return (
        f"with {raised_to.memory} of memory for each GPU: {stated.memory} were too "
        "little before"
    )


def short_text(asked: PerGPU, needed_bytes: int) -> str:
    """A note for people where nodes have less than a plan predicts, else nothing."""
    if asked.memory_bytes >= needed_bytes:
        return ""
    return (
        f"with {asked.memory} of memory for each GPU, as much as nodes have room for: "
        f"the plan predicts {-(-needed_bytes // MIB)}Mi"
    )


def rooms_of(
    pods: PodShape, pod: Mapping[str, Any], nodes: Iterable[Object]
) -> Iterator[int]:
    """Yield how many bytes there are for the container that trains, place by place."""
    others = sum(map(asked_for, containers_beside(pod)))
    for node in nodes:
        num_places = num_devices_of(node, "allocatable") // pods.gpus_per_pod
        tolerations = pod.get("tolerations") or ()
        if num_places and admits(pod, node) and not reason_of_state(node, tolerations):
            yield from [host_bytes_of(node) // num_places - others] * num_places


def containers_beside(pod: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the containers that run as long as the one that trains."""
    containers = pod["containers"]
    yield from (
        one for one in containers if len(containers) > 1 and one["name"] != MAIN
    )
    for one in pod.get("initContainers") or ():
        if one.get("restartPolicy") == "Always":
            yield one


def asked_for(container: Mapping[str, Any]) -> int:
    """The bytes that a container asks for; an unset request is the limit."""
    resources: Mapping[str, Any] = container.get("resources") or {}
    limits: Mapping[str, Any] = resources.get("limits") or {}
    requests: Mapping[str, Any] = resources.get("requests") or {}
    return amount(requests.get("memory", limits.get("memory")))
