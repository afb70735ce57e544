"""Placement of the pods of a plan: on nodes with enough memory, whatever their name.

In: the offer that a plan is made for, and the affinity of the user's own template. Out:
a node affinity. Called where pods are rendered. No alternative is weaker than memory: a
node that states the memory of its GPUs is judged by that alone, and only one that does
not, as a node that an autoscaler has yet to make, by what its provider promises.

    alternative            a node matches that                       for
    ---------------------------------------------------------------------------------
    1, 2  discovery        states enough memory, and shares no GPU   nodes that are here
    3..   instance type    is the machine that the offer names       any autoscaler
    then  GKE              has the accelerator that the offer names  auto-provisioning
    then  Karpenter        is of a type with enough memory           Karpenter on AWS

Karpenter tries them in this order, from the first on. The number of GPUs is asked for
by the pods, not here. The region is not: a table may name one where nodes name none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final

from plimsoll_operator.kube.api import Object
from plimsoll_operator.kube.template_fields import POD_PATH, list_of
from plimsoll_operator.names import EMULATED_DEVICE_LABEL
from plimsoll_operator.nodes import labels as labelled
from plimsoll_operator.nodes.inventory import MIB, SLICE
from plimsoll_planner.errors import InvalidFieldError
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.offer import CapacityType, Offer
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.record import mapping_of

Expressions = list[Object]
NODES: Final = "nodeAffinity"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
TERMS: Final = "nodeSelectorTerms"
PARTS: Final = ("matchExpressions", "matchFields")
AFFINITY_PATH: Final = f"{POD_PATH}.affinity"
TERMS_PATH: Final = f"{AFFINITY_PATH}.{NODES}.{REQUIRED}.{TERMS}"
MOST_TERMS: Final = 256
"""Of an affinity: each is tried on each node, and all of them are in each pod."""
GKE_ACCELERATORS: Final = {
    "T4": ("nvidia-tesla-t4", 15360),
    "L4": ("nvidia-l4", 23034),
    "A100": ("nvidia-tesla-a100", 40960),
    "A100-80GB": ("nvidia-a100-80gb", 81920),
    "H100": ("nvidia-h100-80gb", 81559),
    "H100-80GB": ("nvidia-h100-80gb", 81559),
    "H100-MEGA-80GB": ("nvidia-h100-mega-80gb", 81559),
    "H200": ("nvidia-h200-141gb", 143771),
}
"""Names of GKE for the accelerators of a SkyPilot catalogue, and the MiB that their
driver shows."""


def affinity_for(plan: HybridPlan) -> Object:
    """Affinity to nodes for the pods of a plan: all that have the memory it needs."""
    offer = plan.offers[0]
    need_bytes = min(plan.peak_bytes or math.inf, offer.device_memory_bytes)
    return node_affinity_for(offer, need_bytes=int(need_bytes))


def node_affinity_for(offer: Offer, *, need_bytes: int | None = None) -> Object:
    """The affinity that the pods of a plan need.

    A plan may be known to need fewer bytes of device memory, `need_bytes`, than the
    offer has: tables often state 80 GiB for devices that state 79.6.
    """
    least_bytes = offer.device_memory_bytes if need_bytes is None else need_bytes
    least_mib = max(1, -(-least_bytes // MIB))
    always = kind_expressions(offer)
    stated = [above(labelled.GPU_MEMORY, least_mib)]
    if offer.device_kind is DeviceKind.EMULATED:
        return required([[*always, *stated]])
    unstated = [expression(labelled.GPU_MEMORY, "DoesNotExist")]
    here = (
        [expression(labelled.GPU_REPLICAS, "Lt", "2")],
        [expression(labelled.GPU_REPLICAS, "DoesNotExist")],
    )
    new = (one for provider in PROVIDERS for one in provider(offer, least_mib))
    return required(
        [
            *([*always, *stated, *unshared] for unshared in here),
            *([*always, *unstated, *promised] for promised in new),
        ]
    )


def kind_expressions(offer: Offer) -> Expressions:
    """Expressions that every node must meet: the kind of device, and no worse terms.

    What is planned on spot may run on nodes that stay; only the reverse loses work.
    """
    if offer.device_kind is DeviceKind.EMULATED:
        return [expression(EMULATED_DEVICE_LABEL, "In", "true")]
    found = [expression(EMULATED_DEVICE_LABEL, "DoesNotExist")]
    if SLICE not in offer.device_product:
        found.append(expression(labelled.GPU_SLICES, "DoesNotExist"))
    if offer.capacity_type is not CapacityType.SPOT:
        found += [expression(key, "NotIn", value) for key, value in labelled.SPOT]
    return found


def by_instance_type(offer: Offer, least_mib: int) -> Iterator[Expressions]:
    """Yield the machine of the offer's name, on its terms."""
    del least_mib  # the table states the memory of the machine
    if not labelled.LABEL_VALUE.fullmatch(offer.name):
        return
    mine = expression(labelled.INSTANCE_TYPE, "In", offer.name)
    if offer.capacity_type is not CapacityType.SPOT:
        yield [mine]
        return
    for key, value in labelled.SPOT:
        yield [mine, expression(key, "In", value)]


def by_gke_accelerator(offer: Offer, least_mib: int) -> Iterator[Expressions]:
    """Yield the accelerator of the offer's product, where GKE has it so large."""
    name, mib = GKE_ACCELERATORS.get(offer.device_product.upper(), ("", 0))
    if mib < least_mib:
        return
    mine = expression(labelled.GKE_ACCELERATOR, "In", name)
    if offer.capacity_type is CapacityType.SPOT:
        yield [mine, expression(labelled.GKE_SPOT, "In", "true")]
    else:
        yield [mine]


def by_karpenter_memory(offer: Offer, least_mib: int) -> Iterator[Expressions]:
    """Yield all types with enough memory; Karpenter takes the cheapest of them."""
    mine = [
        expression(labelled.KARPENTER_GPU_MAKER, "In", "nvidia"),
        above(labelled.KARPENTER_GPU_MEMORY, least_mib),
    ]
    if offer.capacity_type is CapacityType.SPOT:
        mine.append(expression(labelled.KARPENTER_CAPACITY, "In", "spot"))
    yield mine


Provider = Callable[[Offer, int], Iterator[Expressions]]
PROVIDERS: Final[tuple[Provider, ...]] = (
    by_instance_type,
    by_gke_accelerator,
    by_karpenter_memory,
)
"""Each knows how one provider promises the memory of nodes that are not there yet."""


def expression(key: str, operator: str, *values: str) -> Object:
    """One condition on a label."""
    found: Object = {"key": key, "operator": operator}
    return found | {"values": list(values)} if values else found


def above(key: str, least_mib: int) -> Object:
    """The condition that a label says at least so many MiB."""
    return expression(key, "Gt", str(least_mib - 1))


def required(alternatives: list[Expressions]) -> Object:
    """The affinity to nodes that meet one of several lists of conditions."""
    terms = [{"matchExpressions": one} for one in alternatives]
    return {NODES: {REQUIRED: {TERMS: terms}}}


def merged(users: object, ours: Object) -> Object:
    """The user's own affinity, None if a template has none, narrowed by ours.

    The terms of an affinity are alternatives: ours are added to each of the user's. An
    empty term matches no node and stays empty, for with ours in it it would match some.

    Raises:
        InvalidFieldError: the user's is no affinity, or has too many terms.
    """
    affinity = mapping_of(users or {}, AFFINITY_PATH)
    nodes = mapping_of(affinity.get(NODES) or {}, f"{AFFINITY_PATH}.{NODES}")
    theirs = required_terms(users)
    if theirs is None:
        return affinity | {NODES: nodes | ours[NODES]}
    mine: list[Object] = ours[NODES][REQUIRED][TERMS]
    if len(theirs) * len(mine) > MOST_TERMS:
        rule = f"at most {MOST_TERMS // len(mine)} terms"
        raise InvalidFieldError(TERMS_PATH, f"{len(theirs)} terms", rule)
    both = [both_of(one, other) for one in theirs for other in mine]
    selector = mapping_of(nodes[REQUIRED], AFFINITY_PATH)
    return affinity | {NODES: nodes | {REQUIRED: selector | {TERMS: both}}}


def required_terms(users: object) -> list[Object] | None:
    """The terms that the `affinity` of a template requires of nodes; None: it has none.

    Raises:
        InvalidFieldError: it is no affinity.
    """
    affinity = mapping_of(users or {}, AFFINITY_PATH)
    path = f"{AFFINITY_PATH}.{NODES}"
    nodes = mapping_of(affinity.get(NODES) or {}, path)
    if nodes.get(REQUIRED) is None:
        return None
    selector = mapping_of(nodes[REQUIRED], f"{path}.{REQUIRED}")
    return terms_of(selector.get(TERMS), TERMS_PATH)


def terms_of(found: object, path: str) -> list[Object]:
    """The terms of a user's affinity, each with lists of conditions.

    Raises:
        InvalidFieldError: they are none.
    """
    terms: list[Object] = []
    for number, one in enumerate(list_of(found, path)):
        term = mapping_of(one, f"{path}[{number}]")
        for part in PARTS:
            list_of(term.get(part), f"{path}[{number}].{part}")
        terms.append(term)
    return terms


def both_of(one: Object, other: Object) -> Object:
    """The term that matches what both match; an empty one matches nothing."""
    if not all(any(term.get(part) for part in PARTS) for term in (one, other)):
        return {}
    joined = {part: [*(one.get(part) or ()), *other.get(part, ())] for part in PARTS}
    return one | {part: both for part, both in joined.items() if both}
