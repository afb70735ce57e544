"""A real scheduler puts pods of a plan on nodes with enough memory, and on no others.

Nodes are on paper (kwok), and all of them are there for each pod, so that a pod that is
not bound is one that the affinity keeps off.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from plimsoll_operator.names import EMULATED_DEVICE_LABEL
from plimsoll_operator.nodes.inventory import inventory_of
from plimsoll_operator.nodes.placement import merged, node_affinity_for
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.offer import Offer
from tests.lab import kwok, objects
from tests.lab.cluster import Cluster
from tests.lab.gpus import RESOURCE, Gpus
from tests.support.builders import an_offer

pytestmark = pytest.mark.control_plane

MIB = 2**20
GROUP = "test.plimsoll.dev/placement"
"""Keeps pods to the nodes of this file, as a user's own affinity would."""
INSTANCE_TYPE = "node.kubernetes.io/instance-type"


def a_machine(
    name: str, memory_mib: int | None, product: str, **labels: str
) -> dict[str, Any]:
    """Node with two GPUs; without memory, discovery has not run on it."""
    gpus = Gpus(count=2, memory_mib=memory_mib or 1, product=product)
    node = kwok.fake_node(name, gpus)
    del node["metadata"]["labels"][EMULATED_DEVICE_LABEL]
    if memory_mib is None:
        del node["metadata"]["labels"][f"{RESOURCE}.memory"]
    node["metadata"]["labels"] |= {GROUP: "true", **labels}
    return node


MACHINES = (
    a_machine("place-small", 40960, "NVIDIA-H100-80GB-HBM3"),
    a_machine("place-large", 81559, "Tesla-T4"),
    a_machine("place-shared", 81559, "Tesla-T4", **{f"{RESOURCE}.replicas": "4"}),
    a_machine("place-new", None, "", **{INSTANCE_TYPE: "huge.8xlarge"}),
    a_machine("place-odd", None, "", **{INSTANCE_TYPE: "tiny.large"}),
    a_machine("place-emulated", 97871, "a", **{EMULATED_DEVICE_LABEL: "true"}),
)


@pytest.fixture(scope="module")
def server(control_plane: Cluster) -> Iterator[Cluster]:
    """Server that has the machines, ready."""
    control_plane.apply(*MACHINES)
    names = [node["metadata"]["name"] for node in MACHINES]
    for name in names:
        control_plane.wait(f"node/{name}", "condition=Ready")
    yield control_plane
    control_plane.kubectl("delete", "node", *names)


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Server and namespace of a test's pods."""

    server: Cluster
    namespace: str

    def start(self, name: str, offer: Offer, **users: Any) -> None:
        """Make a pod of a plan for an offer, in a template with a user's affinity."""
        container = objects.a_container([], resources={"limits": {RESOURCE: "1"}})
        both = merged(users or _only(GROUP, "true"), node_affinity_for(offer))
        tolerations = [kwok.TOLERATION]
        pod = objects.a_pod(name, container, tolerations=tolerations, affinity=both)
        self.server.apply(pod, namespace=self.namespace)

    def pod(self, name: str) -> dict[str, Any]:
        """Pod as it is now."""
        return self.server.get("pod", name, namespace=self.namespace)

    def node_of(self, name: str, offer: Offer, **users: Any) -> str:
        """Start a pod, wait until it is bound, and return its node."""
        self.start(name, offer, **users)
        where = "jsonpath={.spec.nodeName}"
        self.server.wait(f"pod/{name}", where, namespace=self.namespace)
        return str(self.pod(name)["spec"]["nodeName"])

    def waits(self, name: str, offer: Offer, **users: Any) -> bool:
        """Start a pod and return whether the scheduler finds no node for it."""
        self.start(name, offer, **users)

        def decision() -> str:
            conditions = self.pod(name)["status"].get("conditions", [])
            found = [one for one in conditions if one["type"] == "PodScheduled"]
            return str(found[0].get("reason", found[0]["status"])) if found else ""

        self.server.wait_until(f"a decision on {name}", lambda: bool(decision()))
        return decision() == "Unschedulable"


@pytest.fixture
def place(server: Cluster, namespace: str) -> Place:
    """Place for pods, with no one else's in it."""
    return Place(server=server, namespace=namespace)


def _only(key: str, *values: str) -> dict[str, Any]:
    """User's own affinity to nodes with a label."""
    condition = {"key": key, "operator": "In", "values": [*values]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [condition]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    return {"nodeAffinity": required}


def an_offer_of(memory_mib: int, **fields: Any) -> Offer:
    """Offer of a device of so much memory."""
    return an_offer(device_memory_bytes=memory_mib * MIB, **fields)


def test_pods_go_where_the_memory_is(place: Place) -> None:
    """Exactly enough will do, one MiB less does not, whatever products are named."""
    exact = an_offer_of(81559, device_product="NVIDIA-H100-80GB-HBM3")
    assert place.node_of("exact", exact) == "place-large"
    assert place.waits("more", an_offer_of(81560, device_product="Tesla-T4"))


def test_many_pods_never_land_on_less(place: Place) -> None:
    """Two fit on the one node with enough; the third waits, beside free GPUs."""
    offer = an_offer_of(40961)
    for name in ("first", "second"):
        assert place.node_of(name, offer) == "place-large"
    assert place.waits("third", offer)


def test_a_node_that_tells_nothing_is_taken_by_its_type(place: Place) -> None:
    """As one is that an autoscaler has just made; another type is not."""
    new = an_offer_of(200_000, name="huge.8xlarge")
    assert place.node_of("new", new) == "place-new"
    assert place.waits("other", an_offer_of(200_000, name="other.8xlarge"))


def test_cuda_and_emulated_devices_stay_apart(place: Place) -> None:
    """Neither kind's pods land on the other's nodes, though memory would do."""
    emulated = an_offer_of(
        512,
        device_kind=DeviceKind.EMULATED,
        device_product="process",
        compute_rates=(),
        link_in_node=None,
    )
    for name in ("first", "second"):
        assert place.node_of(name, emulated) == "place-emulated"
    assert place.waits("third", emulated)
    assert place.waits("cuda", an_offer_of(97871))


def test_a_user_narrows_and_never_widens(place: Place) -> None:
    """The node a user insists on is refused where it has too little memory."""
    offer, hostname = an_offer_of(81559), "kubernetes.io/hostname"
    wrong = ("place-small", "place-shared", "place-emulated")
    assert place.waits("wrong", offer, **_only(hostname, *wrong))
    right = _only(hostname, *wrong, "place-large")
    assert place.node_of("right", offer, **right) == "place-large"


def test_what_the_server_lists_is_the_inventory(server: Cluster) -> None:
    """Offers from nodes as a real API server gives them, the rest with its reason."""
    listed = server.get("nodes", f"--selector={GROUP}=true")["items"]
    found = inventory_of(listed, [kwok.TOLERATION])
    assert [
        (one.device_kind, one.device_memory_bytes // MIB) for one in found.offers
    ] == [
        (DeviceKind.CUDA, 40960),
        (DeviceKind.CUDA, 81559),
        (DeviceKind.EMULATED, 97871),
    ]
    reasons = {one.node: one.reason for one in found.left_out}
    assert set(reasons) == {"place-new", "place-odd", "place-shared"}
    assert "no label nvidia.com/gpu.memory" in reasons["place-new"]
    untolerated = inventory_of(listed)
    assert untolerated.offers == ()
    assert all("its taint" in one.reason for one in untolerated.left_out)
