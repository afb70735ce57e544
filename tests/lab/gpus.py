"""GPUs that nodes only pretend to have, as scheduler and operator see them.

A device plugin would announce the resource, GPU feature discovery would set the labels;
a real kubelet keeps both and admits pods against them. Nothing computes: a container
that asks for such a GPU finds no device. Every such node says so in a label.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from tests.lab.cluster import Cluster

RESOURCE = "nvidia.com/gpu"
EMULATED_LABEL = "plimsoll.dev/emulated-device"


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpus:
    """The GPUs of one node."""

    count: int = 1
    memory_mib: int = 81559  # as nvidia-smi shows an H100 of 80 GB
    product: str = "NVIDIA-H100-80GB-HBM3"

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the node."""
        return {
            f"{RESOURCE}.present": "true",
            f"{RESOURCE}.count": str(self.count),
            f"{RESOURCE}.memory": str(self.memory_mib),
            f"{RESOURCE}.product": self.product,
            EMULATED_LABEL: "true",
        }

    @property
    def resources(self) -> dict[str, str]:
        """Entry of the node's capacity and allocatable."""
        return {RESOURCE: str(self.count)}


def pretend(cluster: Cluster, node: str, gpus: Gpus) -> None:
    """Give a node GPUs, in place of those it has."""
    status = {"status": {"capacity": gpus.resources, "allocatable": gpus.resources}}
    labels = {"metadata": {"labels": gpus.labels}}
    patch = ("patch", "node", node, "--type=merge", "-p")
    cluster.kubectl(*patch, json.dumps(status), "--subresource=status")
    cluster.kubectl(*patch, json.dumps(labels))
