"""Where the pods of a plan may go, judged by the scheduler's rules for affinities."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_operator.nodes.inventory import inventory_of
from plimsoll_operator.nodes.placement import MOST_TERMS, merged, node_affinity_for
from plimsoll_planner.errors import InvalidFieldError
from plimsoll_planner.records.offer import CapacityType
from tests.support.builders import an_offer
from tests.support.nodes import a_gpuless_node, a_node, an_emulated_node

MIB = 2**20
MEMORY = "nvidia.com/gpu.memory"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PATH = f"spec.template.spec.affinity.nodeAffinity.{REQUIRED}"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
KARPENTER = {
    "karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia",
    "karpenter.k8s.aws/instance-gpu-memory": "40960",
    "karpenter.sh/capacity-type": "on-demand",
}
GKE = {"cloud.google.com/gke-accelerator": "nvidia-tesla-a100"}
OFFER = an_offer(
    name="p4d.24xlarge",
    device_product="A100",
    device_memory_bytes=40960 * MIB,
    capacity_type=CapacityType.ON_DEMAND,
)
SPOT_OFFER = an_offer(
    name="p4d.24xlarge",
    device_product="A100",
    device_memory_bytes=40960 * MIB,
    capacity_type=CapacityType.SPOT,
)


def meets(labels: dict[str, str], condition: dict[str, Any]) -> bool:
    """Whether labels meet one condition."""
    value, values = labels.get(condition["key"]), condition.get("values", [])
    match condition["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and value.isdecimal() and int(value) > int(*values)
        case "Lt":
            return value is not None and value.isdecimal() and int(value) < int(*values)
    raise AssertionError(condition)


def terms_of(affinity: dict[str, Any]) -> list[dict[str, Any]]:
    """Alternatives of an affinity."""
    terms: list[dict[str, Any]] = affinity["nodeAffinity"][REQUIRED][
        "nodeSelectorTerms"
    ]
    return terms


def admits(affinity: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether a node may be used; an empty term matches none."""
    return any(
        term.get("matchExpressions")
        and all(meets(labels, one) for one in term["matchExpressions"])
        for term in terms_of(affinity)
    )


def labels_of(node: dict[str, Any]) -> dict[str, str]:
    """Labels of a node."""
    labels: dict[str, str] = node["metadata"]["labels"]
    return labels


def a_new_node(labels: dict[str, str]) -> dict[str, str]:
    """Labels of a node before feature discovery has run on it."""
    return labels_of(a_gpuless_node()) | labels


@pytest.mark.parametrize(
    ("memory", "expected"),
    [("40959", False), ("40960", True), ("81920", True), ("text", False)],
)
def test_memory_decides_and_not_the_name(memory: str, expected: bool) -> None:
    """A node of the very type that the offer names is refused where it has less."""
    affinity = node_affinity_for(OFFER)
    for product in ("NVIDIA-A100-SXM4-40GB", "Tesla-T4"):
        labels: dict[str, str | None] = {MEMORY: memory, **KARPENTER, **GKE}
        labels["nvidia.com/gpu.product"] = product
        assert admits(affinity, labels_of(a_node("n", labels))) is expected


def test_a_device_is_as_large_as_the_plan_needs() -> None:
    """A table says 80 GiB and the device tells 79.6: what is needed decides."""
    offer = an_offer(device_memory_bytes=81920 * MIB)
    labels = labels_of(a_node("n", {MEMORY: "81559"}))
    assert not admits(node_affinity_for(offer), labels)
    assert admits(node_affinity_for(offer, need_bytes=81559 * MIB), labels)
    assert not admits(node_affinity_for(offer, need_bytes=81559 * MIB + 1), labels)


@pytest.mark.parametrize(
    "labels",
    [
        {"nvidia.com/gpu.replicas": "4"},
        {"nvidia.com/gpu.slices.gi": "1"},
        {"plimsoll.dev/emulated-device": "true"},
        {"plimsoll.dev/emulated-device": "false"},
        {"karpenter.sh/capacity-type": "spot"},
        {"eks.amazonaws.com/capacityType": "SPOT"},
        {"cloud.google.com/gke-spot": "true"},
        {"kubernetes.azure.com/scalesetpriority": "spot"},
    ],
)
def test_what_is_not_as_planned_is_refused(labels: dict[str, str | None]) -> None:
    """Shared and sliced GPUs, emulated ones, and terms on which work is lost."""
    affinity = node_affinity_for(OFFER)
    assert admits(affinity, labels_of(a_node()))
    assert admits(affinity, labels_of(a_node("n", {"nvidia.com/gpu.replicas": None})))
    assert not admits(affinity, labels_of(a_node("n", labels)))


def test_a_plan_for_a_slice_may_have_one() -> None:
    """Or a whole GPU: what counts is the memory."""
    sliced = {
        "nvidia.com/gpu.slices.gi": "1",
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb",
        "nvidia.com/gpu.count": "56",
        MEMORY: "4864",
    }
    node = a_node("n", {**sliced}, gpus="56")
    [offer] = inventory_of([node]).offers
    assert admits(node_affinity_for(offer), labels_of(node))
    assert admits(node_affinity_for(offer), labels_of(a_node()))


def test_emulated_devices_stay_apart() -> None:
    """A plan for them goes nowhere else, and by memory as well."""
    [offer] = inventory_of([an_emulated_node()]).offers
    affinity = node_affinity_for(offer)
    assert admits(affinity, labels_of(an_emulated_node()))
    less = an_emulated_node(labels={MEMORY: "511"})
    assert not admits(affinity, labels_of(less))
    assert not admits(affinity, labels_of(a_node()))
    assert not admits(affinity, a_new_node({INSTANCE_TYPE: offer.name}))
    assert not admits(node_affinity_for(OFFER), labels_of(an_emulated_node()))


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({INSTANCE_TYPE: "p4d.24xlarge"}, True),
        ({INSTANCE_TYPE: "g4dn.xlarge"}, False),
        (GKE, True),
        ({"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"}, False),
        (KARPENTER, True),
        (KARPENTER | {"karpenter.k8s.aws/instance-gpu-memory": "24576"}, False),
        (KARPENTER | {"karpenter.k8s.aws/instance-gpu-manufacturer": "amd"}, False),
        (KARPENTER | {"karpenter.sh/capacity-type": "spot"}, False),
        ({}, False),
    ],
)
def test_a_node_to_be_made_is_known_by_its_provider(
    labels: dict[str, str], expected: bool
) -> None:
    """So that an autoscaler makes one, and no other."""
    assert admits(node_affinity_for(OFFER), a_new_node(labels)) is expected


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({INSTANCE_TYPE: "p4d.24xlarge"}, False),
        ({INSTANCE_TYPE: "p4d.24xlarge", "karpenter.sh/capacity-type": "spot"}, True),
        (
            {INSTANCE_TYPE: "p4d.24xlarge", "eks.amazonaws.com/capacityType": "SPOT"},
            True,
        ),
        (GKE, False),
        (GKE | {"cloud.google.com/gke-spot": "true"}, True),
        (KARPENTER, False),
        (KARPENTER | {"karpenter.sh/capacity-type": "spot"}, True),
    ],
)
def test_spot_nodes_are_made_where_they_were_planned(
    labels: dict[str, str], expected: bool
) -> None:
    """No other is bought for them; one that is there and stays will do."""
    affinity = node_affinity_for(SPOT_OFFER)
    assert admits(affinity, a_new_node(labels)) is expected
    assert admits(affinity, labels_of(a_node()))


@pytest.mark.parametrize("product", ["A100-80GB", "Tesla T9", "A100"])
def test_gke_is_asked_for_no_smaller_accelerator(product: str) -> None:
    """A table that calls a device of 80 GiB an A100 gets none by that name."""
    offer = an_offer(device_product=product, device_memory_bytes=81920 * MIB)
    conditions = [
        c for t in terms_of(node_affinity_for(offer)) for c in t["matchExpressions"]
    ]
    asked = [c["values"] for c in conditions if c["key"].endswith("gke-accelerator")]
    assert asked == ([["nvidia-a100-80gb"]] if product == "A100-80GB" else [])


def test_a_name_that_is_no_label_is_not_asked_for() -> None:
    """The API server would refuse the whole pod."""
    offer = an_offer(name="p4d (8 x A100)", device_memory_bytes=MIB)
    text = str(node_affinity_for(offer))
    assert INSTANCE_TYPE not in text
    assert "p4d" not in text


@given(
    st.dictionaries(
        st.sampled_from(
            [
                MEMORY,
                "nvidia.com/gpu.replicas",
                "plimsoll.dev/emulated-device",
                INSTANCE_TYPE,
                *KARPENTER,
                *GKE,
            ]
        ),
        st.sampled_from(
            ["1", "4", "40959", "40960", "true", "spot", "p4d.24xlarge", "nvidia"]
        ),
    ),
    st.sampled_from([OFFER, SPOT_OFFER]),
)
def test_no_alternative_is_weaker_than_memory(
    labels: dict[str, str], offer: Any
) -> None:
    """A node that tells less is refused, whatever else it says of itself."""
    told = labels.get(MEMORY)
    is_small = told is not None and not (told.isdecimal() and int(told) >= 40960)
    if is_small or "plimsoll.dev/emulated-device" in labels:
        assert not admits(node_affinity_for(offer), labels)


def affinity_of(*terms: dict[str, Any], **others: Any) -> dict[str, Any]:
    """Build a user's affinity of several alternatives."""
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}, **others}}


def wants(key: str, *values: str) -> dict[str, Any]:
    """Build the term that one label has one of some values."""
    return {"matchExpressions": [{"key": key, "operator": "In", "values": [*values]}]}


VALUES = st.sampled_from(["1", "2", "3"])
LABELS = st.dictionaries(st.sampled_from(["a", "b", "c"]), VALUES)
TERMS = st.lists(
    st.fixed_dictionaries(
        {
            "matchExpressions": st.lists(
                st.builds(
                    lambda key, operator, value: {
                        "key": key,
                        "operator": operator,
                        "values": [value],
                    },
                    st.sampled_from(["a", "b", "c"]),
                    st.sampled_from(["In", "NotIn", "Gt", "Lt"]),
                    VALUES,
                ),
                max_size=3,
            )
        }
    ),
    min_size=1,
    max_size=4,
)


@given(TERMS, TERMS, LABELS)
def test_both_affinities_hold(
    users: list[dict[str, Any]], ours: list[dict[str, Any]], labels: dict[str, str]
) -> None:
    """A node is admitted exactly where the user's admits it and ours does."""
    one, other = affinity_of(*users), affinity_of(*ours)
    expected = admits(one, labels) and admits(other, labels)
    assert admits(merged(one, other), labels) is expected


def test_what_a_user_wants_besides_is_kept() -> None:
    """Preferences, rules about pods, and conditions on fields."""
    field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    users = affinity_of(
        {"matchFields": [field]},
        preferredDuringSchedulingIgnoredDuringExecution=[{"weight": 1}],
    ) | {"podAntiAffinity": {"x": "y"}}
    ours = affinity_of(wants("a", "1"), wants("b", "2"))
    found = merged(users, ours)
    assert found["podAntiAffinity"] == {"x": "y"}
    nodes = found["nodeAffinity"]
    assert nodes["preferredDuringSchedulingIgnoredDuringExecution"] == [{"weight": 1}]
    assert terms_of(found) == [
        {**wants("a", "1"), "matchFields": [field]},
        {**wants("b", "2"), "matchFields": [field]},
    ]


@pytest.mark.parametrize(
    "users",
    [
        None,
        {},
        {"podAffinity": {}},
        {"nodeAffinity": None},
        {"nodeAffinity": {}},
        {"nodeAffinity": {REQUIRED: None}},
    ],
)
def test_ours_stands_alone_where_a_user_has_none(users: Any) -> None:
    """However nothing is written; what is asked of pods stays."""
    ours = affinity_of(wants("a", "1"))
    assert merged(users, ours) == (users or {}) | ours


def test_what_matches_no_node_goes_on_matching_none() -> None:
    """An empty term, and no term, which the API server then refuses by name."""
    ours = affinity_of(wants("a", "1"))
    assert terms_of(merged(affinity_of({}), ours)) == [{}]
    assert terms_of(merged(affinity_of(), ours)) == []


@pytest.mark.parametrize(
    ("users", "message"),
    [
        ([1], "spec.template.spec.affinity: got [1], allowed is a mapping"),
        ("x", "spec.template.spec.affinity: got 'x', allowed is a mapping"),
        ({"nodeAffinity": [1]}, "affinity.nodeAffinity: got [1], allowed is a mapping"),
        ({"nodeAffinity": {REQUIRED: 1}}, f"{PATH}: got 1, allowed is a mapping"),
        (
            {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": {"a": 1}}}},
            f"{PATH}.nodeSelectorTerms: got {{'a': 1}}, allowed is a list",
        ),
        (
            {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": ["x"]}}},
            "nodeSelectorTerms[0]: got 'x', allowed is a mapping",
        ),
        (
            affinity_of({"matchExpressions": {"key": "a"}}),
            "[0].matchExpressions: got {'key': 'a'}, allowed is a list",
        ),
    ],
)
def test_an_affinity_that_is_none_is_named(users: Any, message: str) -> None:
    """By its path in the plan; what is inside a condition the API server judges."""
    with pytest.raises(InvalidFieldError) as caught:
        merged(users, affinity_of(wants("a", "1")))
    assert message in str(caught.value)


def test_endless_alternatives_are_refused() -> None:
    """Each is tried on each node: the message says how many there may be."""
    ours = node_affinity_for(OFFER)
    most = MOST_TERMS // len(terms_of(ours))
    users = [wants("a", str(number)) for number in range(most + 1)]
    assert len(terms_of(merged(affinity_of(*users[:-1]), ours))) <= MOST_TERMS
    with pytest.raises(InvalidFieldError, match=f"allowed is at most {most} terms"):
        merged(affinity_of(*users), ours)


def test_every_node_of_an_offer_is_admitted() -> None:
    """What the inventory counts, pods of a plan for it may use."""
    nodes = [
        a_node("a"),
        a_node("b", {MEMORY: "81920", "karpenter.sh/capacity-type": "spot"}),
        a_node("c", {MEMORY: "24576", "nvidia.com/gpu.replicas": None}),
        an_emulated_node("d"),
    ]
    for node in nodes:
        [offer] = inventory_of([node]).offers
        assert admits(node_affinity_for(offer), labels_of(node))
