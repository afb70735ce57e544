"""Nodes that exist only as objects: kwok reports them ready and their pods done.

Scheduler and controllers treat them as real, so hundreds cost next to nothing. No
container ever runs; a pod of a Job completes as soon as it is bound.
"""

from __future__ import annotations

from typing import Any

from tests.lab.gpus import Gpus

TAINT = {"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}
"""Keeps pods of real nodes away."""
TOLERATION = {"key": "kwok.x-k8s.io/node", "operator": "Exists"}
SELECTOR = {"type": "kwok"}


def fake_node(name: str, gpus: Gpus | None = None) -> dict[str, Any]:
    """Object of a large node, with pretended GPUs if asked for."""
    size = {"cpu": "64", "memory": "512Gi", "pods": "110"}
    size |= gpus.resources if gpus else {}
    labels = SELECTOR | {"kubernetes.io/hostname": name} | (gpus.labels if gpus else {})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": labels,
        },
        "spec": {"taints": [TAINT]},
        "status": {"capacity": size, "allocatable": size},
    }
