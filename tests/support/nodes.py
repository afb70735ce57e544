"""Nodes as the API server lists them; a test overrides only what it is about."""

from __future__ import annotations

from typing import Any

from plimsoll_operator.names import EMULATED_DEVICE_LABEL

A_NODE_LABELS = {
    "node.kubernetes.io/instance-type": "p4d.24xlarge",
    "topology.kubernetes.io/region": "us-east-1",
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/gpu.memory": "40960",
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB",
    "nvidia.com/gpu.replicas": "1",
    "nvidia.com/gpu.sharing-strategy": "none",
    "nvidia.com/mig.strategy": "single",
}
"""As GPU feature discovery leaves them on a node whose GPUs are whole."""
READY = {"type": "Ready", "status": "True"}


def a_node(
    name: str = "a",
    labels: dict[str, str | None] | None = None,
    *,
    gpus: object = "8",
    allocatable: dict[str, Any] | None = None,
    conditions: list[Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Build a node with eight GPUs of 40 GiB.

    Args:
        name: of the node.
        labels: beside those of such a node; None takes one away.
        gpus: announced by its device plugin; None: there is no such resource.
        allocatable: beside cpu and GPUs, or in their place.
        conditions: of its status; it is ready by default.
        spec: fields of its spec.
    """
    together: dict[str, str | None] = {**A_NODE_LABELS, **(labels or {})}
    capacity: dict[str, object] = {"cpu": "95690m", "memory": "1Ti"}
    capacity |= {} if gpus is None else {"nvidia.com/gpu": gpus}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {k: v for k, v in together.items() if v is not None},
        },
        "spec": spec,
        "status": {
            "capacity": capacity,
            "allocatable": capacity | (allocatable or {}),
            "conditions": [READY] if conditions is None else conditions,
        },
    }


def an_emulated_node(name: str = "e", **fields: Any) -> dict[str, Any]:
    """Build a node of four emulated devices on two cores, labelled like an H100."""
    labels = {
        EMULATED_DEVICE_LABEL: "true",
        "node.kubernetes.io/instance-type": None,
        "topology.kubernetes.io/region": None,
        "nvidia.com/gpu.count": "4",
        "nvidia.com/gpu.memory": "512",
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    }
    labels |= fields.pop("labels", {})
    given = {"gpus": "4", "allocatable": {"cpu": "2"}} | fields
    return a_node(name, labels, **given)


def a_gpuless_node(name: str = "c") -> dict[str, Any]:
    """Build a node that knows nothing of GPUs."""
    return a_node(name, dict.fromkeys(A_NODE_LABELS), gpus=None)
