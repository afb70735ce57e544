"""The labels that describe nodes, and who sets them.

Read by the inventory, written into affinities by placement. GPU feature discovery
describes the GPUs of a node that runs; providers label nodes, some of them before they
run. Names are those of the projects' own documentation, as of late 2026.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from plimsoll_planner.records.offer import CapacityType

GPU: Final = "nvidia.com/gpu"
"""The resource that the device plugin announces, and the key of its usual taint."""
GPU_PRESENT: Final = f"{GPU}.present"
GPU_MEMORY: Final = f"{GPU}.memory"
"""MiB of one device: a GPU, or a slice where all GPUs of the node are sliced alike."""
GPU_PRODUCT: Final = f"{GPU}.product"
"""As the driver names it, with `-` for blanks; slices end in `-MIG-1g.5gb`."""
GPU_COUNT: Final = f"{GPU}.count"
"""GPUs of the product that the other labels describe."""
GPU_REPLICAS: Final = f"{GPU}.replicas"
"""Number of pods that get the same GPU at a time; 1: none is shared."""
GPU_SHARING: Final = f"{GPU}.sharing-strategy"
GPU_SLICES: Final = f"{GPU}.slices.gi"
"""On nodes alone that announce slices in the place of GPUs."""
MIG_STRATEGY: Final = "nvidia.com/mig.strategy"
MIG_STATE: Final = "nvidia.com/mig.config.state"
MIG_PREFIX: Final = "nvidia.com/mig-"
"""Opens the resources and labels of slices beside whole GPUs (`mixed`)."""

INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
POOLS: Final = (
    "karpenter.sh/nodepool",
    "eks.amazonaws.com/nodegroup",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
)
REGION: Final = "topology.kubernetes.io/region"
KARPENTER_CAPACITY: Final = "karpenter.sh/capacity-type"
EKS_CAPACITY: Final = "eks.amazonaws.com/capacityType"
GKE_SPOT: Final = "cloud.google.com/gke-spot"
SPOT: Final = (
    (KARPENTER_CAPACITY, "spot"),
    (EKS_CAPACITY, "SPOT"),
    (GKE_SPOT, "true"),
    ("cloud.google.com/gke-preemptible", "true"),
    ("kubernetes.azure.com/scalesetpriority", "spot"),
)
"""Each says that the node may be taken away, with the label's value."""
RESERVED: Final = (
    (KARPENTER_CAPACITY, "reserved"),
    (EKS_CAPACITY, "CAPACITY_BLOCK"),
)

GKE_ACCELERATOR: Final = "cloud.google.com/gke-accelerator"
KARPENTER_GPU_MEMORY: Final = "karpenter.k8s.aws/instance-gpu-memory"
"""MiB of one GPU."""
KARPENTER_GPU_MAKER: Final = "karpenter.k8s.aws/instance-gpu-manufacturer"

LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
"""Syntax of a whole label value that the API server accepts."""


def capacity_type_of(labels: Mapping[str, str]) -> CapacityType:
    """Terms of a node; on demand if nothing says otherwise."""
    if any(labels.get(key) == value for key, value in SPOT):
        return CapacityType.SPOT
    if any(labels.get(key) == value for key, value in RESERVED):
        return CapacityType.RESERVED
    return CapacityType.ON_DEMAND


def pool_name_of(labels: Mapping[str, str]) -> str:
    """Name of a node's kind: instance type, else pool, else nothing."""
    keys = (INSTANCE_TYPE, *POOLS)
    return next((labels[key] for key in keys if labels.get(key)), "")
