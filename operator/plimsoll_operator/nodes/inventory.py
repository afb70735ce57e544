"""Machines of a cluster: its nodes with GPUs, by kind.

In: nodes as the API server lists them, and the tolerations of a plan's template. Out:
one `Offer` for all nodes that are alike, and each node with GPUs that is left out, with
the reason. Called where a plan is observed that names no table of offers. A node counts
with all its healthy GPUs, whoever uses them now: waiting for them is the scheduler's
business. Its host memory is seven eighths of what is allocatable of it. Rates, prices
and links stand in no label and are left open.

    labels of a node                        what becomes of it
    ---------------------------------------------------------------------------------
    nothing about GPUs                      counted, not named
    not ready, cordoned, a taint            left out
    the label of emulated devices           emulated devices, of the labelled memory
    memory and product of its GPUs          as many CUDA devices as are allocatable
    GPUs shared in time or by MPS           left out: each pod sees all the memory
    all GPUs sliced alike (MIG `single`)    one device: NCCL joins no slices (nccl#1716)
    slices beside GPUs (MIG `mixed`)        left out: labels state the GPUs alone
    more or fewer GPUs than labels state    left out: they are of several products
    a label that is no label, no number     left out
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from plimsoll_operator.api.quantities import amount, cores
from plimsoll_operator.kube.api import Object
from plimsoll_operator.names import EMULATED_DEVICE_LABEL
from plimsoll_operator.nodes import labels as labelled
from plimsoll_operator.nodes.taints import barring_taint
from plimsoll_operator.nodes.this_machine import (
    BETWEEN_PROCESSES,
    CROWDED_SLOWDOWN,
    MEMORY_COPY,
)
from plimsoll_planner.errors import one_line, shorten
from plimsoll_planner.records.bounds import LARGEST_DEVICE_BYTES, LARGEST_INTEGER
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.offer import EMULATED_PRODUCT, CapacityType, Offer

MIB: Final = 2**20
MOST_DEVICES: Final = 1024
"""Of a node; the largest have 16 GPUs, emulated ones a few hundred."""
MOST_DEVICE_MIB: Final = LARGEST_DEVICE_BYTES // MIB
"""Above it a label is a mistake."""
SLICE: Final = "-MIG-"
RESERVED_SHARE: Final = 8
"""One part of so many of a node's memory is left to the agents that run on each."""
CORES: Final = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?|[0-9]{1,9}m")
READ: Final = (
    EMULATED_DEVICE_LABEL,
    labelled.GPU_MEMORY,
    labelled.GPU_PRODUCT,
    labelled.GPU_COUNT,
    labelled.GPU_REPLICAS,
    labelled.GPU_SHARING,
    labelled.MIG_STRATEGY,
    labelled.MIG_STATE,
    labelled.INSTANCE_TYPE,
    *labelled.POOLS,
    labelled.REGION,
)
"""Labels that are believed, and so must be labels."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftOut:
    """A node with GPUs that no plan is made for."""

    node: str
    reason: str
    """One line, for people."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Inventory:
    """Machines of a cluster."""

    offers: tuple[Offer, ...]
    left_out: tuple[LeftOut, ...]
    num_without_gpus: int
    """Nodes without labels about GPUs."""


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Pool:
    """Properties that the nodes of one offer have in common."""

    device_kind: DeviceKind
    device_product: str
    device_mib: int
    num_devices: int
    num_concurrent: int
    """0: all of them, each on its own."""
    name: str
    region: str
    capacity_type: CapacityType

    @property
    def identity(self) -> tuple[str, str, str]:
        """Name of its offer, unless another has the same."""
        return self.name, self.region, self.capacity_type

    @property
    def long_name(self) -> str:
        """A name that no other pool of this identity has, and no label is."""
        turns = f", {self.num_concurrent} at a time" if self.num_concurrent else ""
        devices = f"{self.num_devices} x {self.device_product}"
        return f"{self.name} ({devices} of {self.device_mib} MiB{turns})"


def inventory_of(
    nodes: Iterable[Object], tolerations: Sequence[Object] = ()
) -> Inventory:
    """The offers of a cluster, in an order that the nodes' does not change.

    `nodes` are all, or those that a template's `nodeSelector` picks. `tolerations` are
    those of the template; that of GPUs is taken for given.
    """
    pools: defaultdict[Pool, list[int]] = defaultdict(list)
    left_out: list[LeftOut] = []
    num_without = 0
    for node in nodes:
        if not tells_of_gpus(node):
            num_without += 1
        elif reason := reason_against(node, tolerations):
            name = one_line(str(node.get("metadata", {}).get("name", "")))
            left_out.append(LeftOut(node=name, reason=reason))
        else:
            pools[pool_of(node)].append(host_bytes_of(node))
    return Inventory(
        offers=offers_of(pools),
        left_out=tuple(sorted(left_out, key=lambda one: (one.node, one.reason))),
        num_without_gpus=num_without,
    )


def labels_of(node: Object) -> Mapping[str, str]:
    """The labels of a node."""
    found: Mapping[str, str] = node.get("metadata", {}).get("labels") or {}
    return found


def resources_of(node: Object, part: str) -> Mapping[str, str]:
    """A node's `capacity`, or what is `allocatable` of it."""
    found: Mapping[str, str] = node.get("status", {}).get(part) or {}
    return found


def tells_of_gpus(node: Object) -> bool:
    """Whether a node announces GPUs, or is labelled as one that has some."""
    labels = labels_of(node)
    keys = (labelled.GPU_PRESENT, labelled.GPU_MEMORY, EMULATED_DEVICE_LABEL)
    return (
        labelled.GPU in resources_of(node, "allocatable")
        or labelled.GPU in resources_of(node, "capacity")
        or any(key in labels for key in keys)
    )


def whole_number(text: str, most: int) -> int:
    """A number from 1 to `most`, 0 where the text is none."""
    is_short = text.isascii() and text.isdecimal() and len(text) <= len(str(most))
    number = int(text) if is_short else 0
    return number if number <= most else 0


def num_devices_of(node: Object, part: str) -> int:
    """Number of GPUs that the device plugin announces, 0 if it is no number."""
    announced = str(resources_of(node, part).get(labelled.GPU, ""))
    return whole_number(announced, MOST_DEVICES)


def reason_against(node: Object, tolerations: Sequence[Object]) -> str:
    """Why a node is left out, nothing where it is not."""
    return (
        reason_of_state(node, tolerations)
        or reason_of_text(labels_of(node))
        or reason_of_devices(node)
        or reason_of_kind(node)
    )


def reason_of_state(node: Object, tolerations: Sequence[Object]) -> str:
    """Reason that keeps pods off a node, whatever it has."""
    conditions = node.get("status", {}).get("conditions") or ()
    ready = [one.get("status") for one in conditions if one.get("type") == "Ready"]
    if ready != ["True"]:
        return "it is not ready"
    if node.get("spec", {}).get("unschedulable"):
        return "it is cordoned"
    taint = barring_taint(node, tolerations)
    if taint is None:
        return ""
    value = f"={taint['value']}" if taint.get("value") else ""
    name = shorten(f"{taint.get('key')}{value}:{taint.get('effect')}")
    return f"its taint {name} is not tolerated by the template"


def reason_of_text(labels: Mapping[str, str]) -> str:
    """Which label is none that an API server would take."""
    for key in READ:
        if not labelled.LABEL_VALUE.fullmatch(labels.get(key, "")):
            return f"its label {key} is {shorten(labels[key])}, which is no label"
    return ""


def reason_of_devices(node: Object) -> str:
    """Fault in the number or the memory of a node's devices."""
    if not num_devices_of(node, "allocatable"):
        found = resources_of(node, "allocatable").get(labelled.GPU, "none")
        return (
            f"of its GPUs {shorten(str(found))} are allocatable, usable are 1 to "
            f"{MOST_DEVICES}: is its device plugin running?"
        )
    memory = labels_of(node).get(labelled.GPU_MEMORY)
    if memory is None:
        return f"it has no label {labelled.GPU_MEMORY}: does feature discovery run?"
    if not whole_number(memory, MOST_DEVICE_MIB):
        allowed = f"allowed are 1 to {MOST_DEVICE_MIB} MiB"
        return f"its label {labelled.GPU_MEMORY} is {shorten(memory)}, {allowed}"
    return ""


def reason_of_kind(node: Object) -> str:
    """Why devices of their kind are not what the labels state."""
    emulated = labels_of(node).get(EMULATED_DEVICE_LABEL)
    if emulated is None:
        return reason_of_gpus(node)
    if emulated != "true":
        return f"its label {EMULATED_DEVICE_LABEL} is {shorten(emulated)}, not 'true'"
    if not CORES.fullmatch(cpu := str(resources_of(node, "allocatable").get("cpu"))):
        return f"its allocatable cpu is {shorten(cpu)}, which is no number of cores"
    return ""


def reason_of_gpus(node: Object) -> str:
    """Why a GPU that a pod gets is not the one that the labels describe."""
    labels = labels_of(node)
    product = labels.get(labelled.GPU_PRODUCT, "")
    if not product:
        return f"it has no label {labelled.GPU_PRODUCT}: does feature discovery run?"
    if (
        product.endswith("-SHARED")
        or labels.get(labelled.GPU_SHARING, "none") not in ("", "none")
        or labels.get(labelled.GPU_REPLICAS, "1") not in ("", "0", "1")
    ):
        return "its GPUs are shared, so that no pod has all the memory of one"
    if (state := labels.get(labelled.MIG_STATE, "success")) not in ("", "success"):
        return f"its GPUs are being sliced (MIG): {state}"
    if labels.get(labelled.MIG_STRATEGY) == "mixed" and has_slices(node):
        return "it has slices (MIG) beside its GPUs, which its labels do not describe"
    count = labels.get(labelled.GPU_COUNT)
    there = num_devices_of(node, "capacity") or num_devices_of(node, "allocatable")
    if count is not None and count != str(there):
        return (
            f"its labels state {shorten(count)} GPUs and it has {there}: they are of "
            "several products"
        )
    return ""


def has_slices(node: Object) -> bool:
    """Whether a node announces slices beside whole GPUs."""
    announced = resources_of(node, "allocatable").items()
    keys = [key for key, number in announced if str(number) != "0"]
    return any(key.startswith(labelled.MIG_PREFIX) for key in (*keys, *labels_of(node)))


def pool_of(node: Object) -> Pool:
    """Kind of a node that may be used."""
    labels = labels_of(node)
    num_devices = num_devices_of(node, "allocatable")
    is_emulated = EMULATED_DEVICE_LABEL in labels
    product = EMULATED_PRODUCT if is_emulated else labels[labelled.GPU_PRODUCT]
    cpu = str(resources_of(node, "allocatable").get("cpu")) if is_emulated else ""
    return Pool(
        device_kind=DeviceKind.EMULATED if is_emulated else DeviceKind.CUDA,
        device_product=product,
        device_mib=whole_number(labels[labelled.GPU_MEMORY], MOST_DEVICE_MIB),
        num_devices=1 if SLICE in product else num_devices,
        num_concurrent=max(1, min(num_devices, int(cores(cpu)))) if cpu else 0,
        name=labelled.pool_name_of(labels) or product,
        region=labels.get(labelled.REGION, ""),
        capacity_type=labelled.capacity_type_of(labels),
    )


def host_bytes_of(node: Object) -> int:
    """Bytes of a node's memory that ranks can have, 0 where it states no amount."""
    allocatable = amount(resources_of(node, "allocatable").get("memory"))
    return allocatable - allocatable // RESERVED_SHARE


def offers_of(pools: Mapping[Pool, Sequence[int]]) -> tuple[Offer, ...]:
    """An offer for each pool, CUDA first; names are long where they must be.

    A pool has the host memory of each of its nodes, which differ by a little; an offer
    has the least of them.
    """
    shared = Counter(pool.identity for pool in pools)
    return tuple(
        Offer(
            name=pool.name if shared[pool.identity] == 1 else pool.long_name,
            region=pool.region,
            capacity_type=pool.capacity_type,
            device_kind=pool.device_kind,
            device_product=pool.device_product,
            device_memory_bytes=pool.device_mib * MIB,
            devices_per_node=pool.num_devices,
            concurrent_devices_per_node=pool.num_concurrent or None,
            crowded_slowdown=CROWDED_SLOWDOWN if pool.num_concurrent else 1.0,
            nodes_available=1 if SLICE in pool.device_product else len(pools[pool]),
            host_memory_bytes=min(*pools[pool], LARGEST_INTEGER) or None,
            link_in_node=BETWEEN_PROCESSES if pool.num_concurrent else None,
            link_to_host=MEMORY_COPY if pool.num_concurrent else None,
        )
        for pool in sorted(pools)
    )
