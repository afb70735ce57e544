"""What a cluster offers, by what its nodes tell."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_operator.names import EMULATED_DEVICE_LABEL
from plimsoll_operator.nodes.inventory import READ, inventory_of
from plimsoll_operator.nodes.this_machine import (
    BETWEEN_PROCESSES,
    CROWDED_SLOWDOWN,
    MEMORY_COPY,
)
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.offer import CapacityType, Offer
from tests.support.nodes import a_gpuless_node, a_node, an_emulated_node

MIB = 2**20
MEMORY, PRODUCT = "nvidia.com/gpu.memory", "nvidia.com/gpu.product"
AN_OFFER = Offer(
    name="p4d.24xlarge",
    region="us-east-1",
    capacity_type=CapacityType.ON_DEMAND,
    device_kind=DeviceKind.CUDA,
    device_product="NVIDIA-A100-SXM4-40GB",
    device_memory_bytes=40960 * MIB,
    devices_per_node=8,
    nodes_available=1,
    host_memory_bytes=7 * 2**37,
)


def offer_of(**fields: Any) -> Offer:
    """One offer of a cluster of one node."""
    [offer] = inventory_of([a_node(**fields)]).offers
    return offer


def reason_of(*nodes: dict[str, Any]) -> str:
    """Reason why one node is left out, after what cannot be offered at all."""
    found = inventory_of(nodes)
    assert found.offers == ()
    [left_out] = found.left_out
    assert left_out.node == nodes[0]["metadata"]["name"]
    assert left_out.reason.isprintable()
    return left_out.reason


def test_a_node_with_gpus_is_an_offer() -> None:
    """By its labels and what is allocatable; what no label tells is left open."""
    found = inventory_of([a_node()])
    assert found.offers == (AN_OFFER,)
    assert (found.left_out, found.num_without_gpus) == ((), 0)


def test_equal_nodes_are_one_offer() -> None:
    """However many GPUs of theirs are in use; the order of the nodes is nothing."""
    other = {MEMORY: "81920", PRODUCT: "NVIDIA-A100-SXM4-80GB"}
    other["node.kubernetes.io/instance-type"] = "p4de.24xlarge"
    nodes = [a_node("a"), a_node("b", dict(other)), a_node("c"), a_gpuless_node()]
    found = inventory_of(nodes)
    assert [(one.name, one.nodes_available) for one in found.offers] == [
        ("p4d.24xlarge", 2),
        ("p4de.24xlarge", 1),
    ]
    assert found.num_without_gpus == 1
    assert inventory_of(reversed(nodes)) == found


@pytest.mark.parametrize(
    ("amounts", "expected"),
    [
        (["2Ti", "1030Gi", "1Ti"], 7 * 2**37),
        (["1Ti", None], None),
        (["1Ti", "plenty"], None),
        (["99999Pi"], 2**53 - 1),
    ],
)
def test_the_least_host_memory_of_a_pool_counts(
    amounts: list[str | None], expected: int | None
) -> None:
    """Equal machines differ by a little; where one is not known, none is.

    An eighth of it is left to what runs on every node.
    """
    nodes = [a_node(str(i), allocatable={"memory": a}) for i, a in enumerate(amounts)]
    [offer] = inventory_of(nodes).offers
    assert offer.nodes_available == len(nodes)
    assert offer.host_memory_bytes == expected


@pytest.mark.parametrize(
    ("labels", "name"),
    [
        ({}, "p4d.24xlarge"),
        ({"node.kubernetes.io/instance-type": None}, "NVIDIA-A100-SXM4-40GB"),
        (
            {
                "node.kubernetes.io/instance-type": None,
                "cloud.google.com/gke-nodepool": "big",
            },
            "big",
        ),
    ],
)
def test_a_machine_has_the_name_people_know(
    labels: dict[str, str | None], name: str
) -> None:
    """Instance type, else pool, else the product of its GPUs."""
    assert offer_of(labels=labels).name == name


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("karpenter.sh/capacity-type", "on-demand", CapacityType.ON_DEMAND),
        ("karpenter.sh/capacity-type", "spot", CapacityType.SPOT),
        ("karpenter.sh/capacity-type", "reserved", CapacityType.RESERVED),
        ("eks.amazonaws.com/capacityType", "ON_DEMAND", CapacityType.ON_DEMAND),
        ("eks.amazonaws.com/capacityType", "SPOT", CapacityType.SPOT),
        ("eks.amazonaws.com/capacityType", "CAPACITY_BLOCK", CapacityType.RESERVED),
        ("cloud.google.com/gke-spot", "true", CapacityType.SPOT),
        ("cloud.google.com/gke-preemptible", "true", CapacityType.SPOT),
        ("kubernetes.azure.com/scalesetpriority", "spot", CapacityType.SPOT),
    ],
)
def test_terms_are_those_of_the_provider(
    key: str, value: str, expected: CapacityType
) -> None:
    """Each provider spells them its own way."""
    assert offer_of(labels={key: value}).capacity_type is expected


def test_pools_that_differ_never_share_an_identity() -> None:
    """One instance type with other GPUs, fewer of them, or slices gets long names."""
    nodes = [
        a_node("a"),
        a_node("b", {MEMORY: "40536"}),
        a_node("c", {PRODUCT: "NVIDIA-A100-PCIE-40GB"}),
        a_node("d", allocatable={"nvidia.com/gpu": "7"}),
        an_emulated_node(
            "e",
            labels={
                "node.kubernetes.io/instance-type": "p4d.24xlarge",
                "topology.kubernetes.io/region": "us-east-1",
            },
        ),
    ]
    offers = inventory_of(nodes).offers
    assert len({offer.identity for offer in offers}) == len(offers) == 5
    assert {offer.name for offer in offers} == {
        "p4d.24xlarge (8 x NVIDIA-A100-SXM4-40GB of 40960 MiB)",
        "p4d.24xlarge (8 x NVIDIA-A100-SXM4-40GB of 40536 MiB)",
        "p4d.24xlarge (8 x NVIDIA-A100-PCIE-40GB of 40960 MiB)",
        "p4d.24xlarge (7 x NVIDIA-A100-SXM4-40GB of 40960 MiB)",
        "p4d.24xlarge (4 x process of 512 MiB, 2 at a time)",
    }


def test_emulated_devices_are_never_called_cuda() -> None:
    """The label decides, whatever product the node claims; they share its cores."""
    offers = inventory_of([an_emulated_node(), a_node()]).offers
    assert offers == (
        AN_OFFER,
        Offer(
            name="process",
            device_kind=DeviceKind.EMULATED,
            device_product="process",
            device_memory_bytes=512 * MIB,
            devices_per_node=4,
            concurrent_devices_per_node=2,
            crowded_slowdown=CROWDED_SLOWDOWN,
            nodes_available=1,
            host_memory_bytes=7 * 2**37,
            link_in_node=BETWEEN_PROCESSES,
            link_to_host=MEMORY_COPY,
        ),
    )


@pytest.mark.parametrize(
    ("cpu", "at_a_time"), [("500m", 1), ("1", 1), ("3920m", 3), ("2.5", 2), ("64", 4)]
)
def test_whole_cores_compute_at_a_time(cpu: str, at_a_time: int) -> None:
    """As many as are allocatable, at least one, and never more than devices."""
    [offer] = inventory_of([an_emulated_node(allocatable={"cpu": cpu})]).offers
    assert offer.concurrent_devices_per_node == at_a_time


def test_gpus_that_are_sick_do_not_count() -> None:
    """Labels and capacity tell of eight; seven are allocatable."""
    assert offer_of(allocatable={"nvidia.com/gpu": "7"}).devices_per_node == 7


def test_slices_are_had_one_at_a_time() -> None:
    """Of GPUs sliced alike the label tells the memory; no two can train together."""
    labels: dict[str, str | None] = {
        PRODUCT: "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb",
        MEMORY: "4864",
        "nvidia.com/gpu.count": "56",
        "nvidia.com/gpu.slices.gi": "1",
        "nvidia.com/mig.config.state": "success",
    }
    nodes = [a_node(name, dict(labels), gpus="56") for name in "ab"]
    [offer] = inventory_of(nodes).offers
    assert (offer.devices_per_node, offer.nodes_available) == (1, 1)
    assert offer.device_memory_bytes == 4864 * MIB


def test_whole_gpus_stay_offered_where_slices_are_allowed() -> None:
    """The strategy `mixed` alone slices nothing, nor does what is left of slices."""
    assert offer_of(labels={"nvidia.com/mig.strategy": "mixed"}) == AN_OFFER
    assert (
        offer_of(
            labels={"nvidia.com/mig.strategy": "mixed"},
            allocatable={"nvidia.com/mig-1g.5gb": "0"},
        )
        == AN_OFFER
    )


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"conditions": []}, "it is not ready"),
        ({"conditions": [{"type": "Ready", "status": "Unknown"}]}, "it is not ready"),
        ({"unschedulable": True}, "it is cordoned"),
        ({"labels": {MEMORY: None}}, f"it has no label {MEMORY}"),
        ({"labels": {MEMORY: "81559MiB"}}, f"its label {MEMORY} is '81559MiB'"),
        ({"labels": {MEMORY: "-1"}}, "'-1', which is no label"),
        ({"labels": {MEMORY: "0"}}, "is '0', allowed are 1 to 1048576 MiB"),
        ({"labels": {MEMORY: "1048577"}}, "allowed are 1 to"),
        ({"labels": {MEMORY: "9" * 63}}, "allowed are 1 to"),
        ({"labels": {MEMORY: "NaN"}}, "is 'NaN', allowed are"),
        ({"labels": {MEMORY: "1e3"}}, "is '1e3', allowed are"),
        ({"labels": {MEMORY: "\u0661\u0662"}}, "which is no label"),
        ({"labels": {MEMORY: "1" * 64}}, "which is no label"),
        ({"labels": {PRODUCT: None}}, f"it has no label {PRODUCT}"),
        ({"labels": {PRODUCT: "a" * 64}}, "which is no label"),
        ({"labels": {PRODUCT: "a\nb"}}, "is 'a\\nb', which is no label"),
        ({"labels": {"topology.kubernetes.io/region": "\ud800"}}, "which is no label"),
        ({"labels": {EMULATED_DEVICE_LABEL: "false"}}, "is 'false', not 'true'"),
        ({"labels": {EMULATED_DEVICE_LABEL: ""}}, "is '', not 'true'"),
        ({"gpus": None}, "of its GPUs 'none' are allocatable"),
        ({"gpus": "0"}, "of its GPUs '0' are allocatable"),
        ({"gpus": "1k"}, "of its GPUs '1k' are allocatable"),
        ({"gpus": "1025"}, "usable are 1 to 1024"),
        ({"gpus": -1}, "of its GPUs '-1' are allocatable"),
        ({"labels": {PRODUCT: "Tesla-T4-SHARED"}}, "its GPUs are shared"),
        ({"labels": {"nvidia.com/gpu.replicas": "4"}}, "its GPUs are shared"),
        ({"labels": {"nvidia.com/gpu.sharing-strategy": "mps"}}, "GPUs are shared"),
        ({"labels": {"nvidia.com/mig.config.state": "pending"}}, "being sliced"),
        (
            {
                "labels": {"nvidia.com/mig.strategy": "mixed"},
                "allocatable": {"nvidia.com/mig-1g.5gb": "7"},
            },
            "slices (MIG) beside its GPUs",
        ),
        (
            {
                "labels": {
                    "nvidia.com/mig.strategy": "mixed",
                    "nvidia.com/mig-3g.20gb.count": "2",
                }
            },
            "slices (MIG) beside its GPUs",
        ),
        ({"labels": {"nvidia.com/gpu.count": "4"}}, "'4' GPUs and it has 8"),
    ],
)
def test_a_node_that_cannot_be_used_is_named(
    fields: dict[str, Any], reason: str
) -> None:
    """With the label, its value and what is allowed, in one line."""
    assert reason in reason_of(a_node(**fields))


@pytest.mark.parametrize("cpu", ["", "64Gi", "-1", "nan", "9" * 400])
def test_emulated_devices_need_a_number_of_cores(cpu: str) -> None:
    """How many compute at a time is told by nothing else."""
    node = an_emulated_node(allocatable={"cpu": cpu})
    assert "its allocatable cpu is" in reason_of(node)


def test_a_taint_leaves_a_node_out_unless_the_template_tolerates_it() -> None:
    """That of GPUs bars none of our pods, and the reason names the one that does."""
    gpu = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    team = {"key": "team", "value": "vision", "effect": "NoSchedule"}
    assert inventory_of([a_node(taints=[gpu])]).offers == (AN_OFFER,)
    node = a_node(taints=[gpu, team])
    assert "its taint 'team=vision:NoSchedule' is not tolerated" in reason_of(node)
    ours = {"key": "team", "operator": "Equal", "value": "vision"}
    assert inventory_of([node], [ours]).offers == (AN_OFFER,)


def test_a_node_of_nothing_is_counted() -> None:
    """The API server sends no empty parts."""
    bare: list[dict[str, Any]] = [{}, {"metadata": {}, "spec": {}, "status": {}}]
    for node in (*bare, a_gpuless_node()):
        found = inventory_of([node])
        assert (found.offers, found.left_out, found.num_without_gpus) == ((), (), 1)


@given(
    st.dictionaries(st.sampled_from(READ), st.none() | st.text(max_size=70)),
    st.none() | st.text(max_size=8) | st.integers(),
    st.booleans(),
)
def test_no_text_in_labels_is_too_odd(
    labels: dict[str, str | None], gpus: object, is_emulated: bool
) -> None:
    """Every node is offered, left out with a reason, or counted; nothing is raised."""
    build = an_emulated_node if is_emulated else a_node
    found = inventory_of([build("n", labels=labels, gpus=gpus), a_node("other")])
    own = sum(offer.nodes_available or 0 for offer in found.offers) - 1
    assert own + len(found.left_out) + found.num_without_gpus == 1
    for one in found.left_out:
        assert one.reason
        assert one.reason.isprintable()
        assert len(one.reason) < 300
    assert len({offer.identity for offer in found.offers}) == len(found.offers)


LABEL_TEXT = st.from_regex(
    r"[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?", fullmatch=True
)


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                MEMORY: st.sampled_from(["1", "2"]),
                PRODUCT: st.sampled_from(["a", "b", "a-MIG-1g.5gb"]),
                "nvidia.com/gpu.count": st.none(),
                "node.kubernetes.io/instance-type": st.none() | LABEL_TEXT,
            }
        ),
        max_size=8,
    )
)
def test_every_pool_has_an_identity_of_its_own(labels: list[dict[str, Any]]) -> None:
    """Whatever instance types are called, also like another pool's product."""
    nodes = [a_node(str(place), one) for place, one in enumerate(labels)]
    found = inventory_of(nodes)
    assert found.left_out == ()
    assert len({offer.identity for offer in found.offers}) == len(found.offers)
    instance_type = "node.kubernetes.io/instance-type"
    pools = {
        (one[MEMORY], one[PRODUCT], one[instance_type] or one[PRODUCT])
        for one in labels
    }
    assert len(found.offers) == len(pools)
