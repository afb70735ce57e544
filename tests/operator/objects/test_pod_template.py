"""Pods out of the templates that people write: what is added, kept, and refused."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_operator.api.spec import PerGPU
from plimsoll_operator.nodes.placement import node_affinity_for
from plimsoll_operator.objects.pod_template import (
    CHECKPOINTS,
    CODE,
    GRACE_S,
    NOBODY,
    RESTRICTED,
    SHARED_MEMORY,
    PodParts,
    Release,
    milli,
    pod_template,
)
from plimsoll_planner.errors import InvalidFieldError
from plimsoll_planner.pod_names import ROOT
from plimsoll_planner.records.document import from_text
from plimsoll_planner.records.task import Task
from tests.support.api_values import JUNK, TEXTS
from tests.support.builders import an_offer
from tests.support.cluster_objects import TASK

RELEASE = Release(runtime_image="runtime.example/r", ingest_url="http://ingest.example")
GPU = "nvidia.com/gpu"
CONTAINER = "spec.template.spec.containers[0]"


def parts(**fields: Any) -> PodParts:
    """Build what a pod of two GPUs has of ours."""
    defaults: dict[str, Any] = {
        "task": TASK,
        "labels": {"plimsoll.dev/plan": "tiny"},
        "num_gpus": 2,
        "per_gpu": PerGPU(cpu="1500m", memory="2Gi"),
    }
    return PodParts(**(defaults | fields))


def a_template(container: dict[str, Any] | None = None, **pod: Any) -> dict[str, Any]:
    """Build a template with one container.

    Args:
        container: fields beside its image.
        pod: other fields of the pod.
    """
    one = {"image": "torch.example/t"} | (container or {})
    return {"spec": {"containers": [one], **pod}}


def made(template: dict[str, Any], **fields: Any) -> Any:
    """Pod that is made of a template."""
    return pod_template(template, parts(**fields), RELEASE)["spec"]


def main(template: dict[str, Any], **fields: Any) -> Any:
    """Container that is ours."""
    [container] = made(template, **fields)["containers"]
    return container


def named(entries: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Entries of a list by their names."""
    return {one["name"]: one for one in entries}


def test_a_plain_template_becomes_a_pod_of_ours() -> None:
    """Interpreter, code, task, token and share of the node are all there."""
    pod = made(a_template())
    [container] = pod["containers"]
    assert container["name"] == "trainer"
    assert (container["command"], container["args"]) == (
        ["python3"],
        [f"{CODE}/start.py"],
    )
    told = {one["name"]: one["value"] for one in container["env"]}
    assert from_text(told["PLIMSOLL_TASK"], Task) == TASK
    assert told["PLIMSOLL_INGEST_URL"] == RELEASE.ingest_url
    assert told["PLIMSOLL_IMAGE"] == "torch.example/t"
    assert {one["name"] for one in container["volumeMounts"]} == set(
        named(pod["volumes"])
    )
    assert pod["restartPolicy"] == "Never"
    assert pod["automountServiceAccountToken"] is False
    assert pod["terminationGracePeriodSeconds"] == GRACE_S


@pytest.mark.parametrize(
    ("user", "ours"), [(0, {"runAsUser": NOBODY}), (1000, {}), (None, {})]
)
def test_what_prepares_a_pod_of_root_is_not_root(
    user: int | None, ours: dict[str, int]
) -> None:
    """The kubelet would not start it: it may not be root, and inherits who runs."""
    context = {} if user is None else {"runAsUser": user}
    [code, *_] = made(a_template(securityContext=context))["initContainers"]
    assert code["securityContext"] == RESTRICTED | ours


def test_what_a_person_gave_stays_and_ours_is_added() -> None:
    """Volumes, variables, mounts, tolerations, init containers and sidecars."""
    template = a_template(
        {
            "name": "mine",
            "command": ["/opt/venv/bin/python"],
            "env": [{"name": "HF_HOME", "value": "/data"}],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            "terminationMessagePolicy": "File",
            "securityContext": {"runAsUser": 1000},
        },
        volumes=[{"name": "data", "emptyDir": {}}],
        tolerations=[{"operator": "Exists"}],
        initContainers=[{"name": "fetch", "image": "fetch.example/f"}],
        terminationGracePeriodSeconds=30,
        automountServiceAccountToken=True,
        serviceAccountName="mine",
    )
    pod = made(template)
    [container] = pod["containers"]
    assert container["name"] == "mine"
    assert container["command"] == ["/opt/venv/bin/python"]
    assert container["env"][0] == {"name": "HF_HOME", "value": "/data"}
    assert container["volumeMounts"][0] == {"name": "data", "mountPath": "/data"}
    assert container["terminationMessagePolicy"] == "File"
    assert container["securityContext"] == {"runAsUser": 1000}
    assert pod["volumes"][0] == {"name": "data", "emptyDir": {}}
    assert pod["tolerations"] == [
        {"operator": "Exists"},
        {"key": GPU, "operator": "Exists"},
    ]
    assert [one["name"] for one in pod["initContainers"]] == ["plimsoll-code", "fetch"]
    assert pod["terminationGracePeriodSeconds"] == 30
    assert pod["automountServiceAccountToken"] is True
    assert pod["serviceAccountName"] == "mine"


def test_the_container_named_trainer_is_ours_among_several() -> None:
    """The others are left as they are, wherever they stand."""
    sidecar = {"name": "proxy", "image": "proxy.example/p", "args": ["--fast"]}
    template = a_template({"name": "trainer"})
    template["spec"]["containers"].insert(0, sidecar)
    first, second = made(template)["containers"]
    assert first == sidecar
    assert second["args"] == [f"{CODE}/start.py"]


def test_labels_are_merged_and_ours_win() -> None:
    """Pods are selected by ours."""
    template = a_template() | {
        "metadata": {
            "labels": {"team": "a", "plimsoll.dev/plan": "another"},
            "annotations": {"note": "kept"},
        }
    }
    found = pod_template(template, parts(), RELEASE)["metadata"]
    assert found["labels"] == {"team": "a", "plimsoll.dev/plan": "tiny"}
    assert found["annotations"] == {"note": "kept"}


def test_each_part_of_a_task_is_there_where_it_is_wanted() -> None:
    """Inputs, checkpoints, the Service, priority and affinity; else nothing of them."""
    affinity = node_affinity_for(an_offer())
    full = made(
        a_template(),
        inputs="tiny-plan-1",
        claim="ckpt",
        subdomain="tiny-ranks",
        priority_class="high",
        affinity=affinity,
    )
    volumes = named(full["volumes"])
    assert volumes["plimsoll-inputs"]["configMap"] == {"name": "tiny-plan-1"}
    assert volumes["plimsoll-checkpoints"]["persistentVolumeClaim"] == {
        "claimName": "ckpt"
    }
    mounts = named(full["containers"][0]["volumeMounts"])
    assert mounts["plimsoll-checkpoints"]["mountPath"] == CHECKPOINTS
    assert (full["subdomain"], full["priorityClassName"]) == ("tiny-ranks", "high")
    assert full["affinity"] == affinity
    plain = made(a_template(priorityClassName="low"), num_gpus=0)
    assert plain["priorityClassName"] == "low"
    assert not {"subdomain", "affinity", "tolerations"} & set(plain)


def test_an_affinity_is_narrowed_and_never_replaced() -> None:
    """What keeps pods together or apart stays."""
    mine: dict[str, Any] = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}
    }
    found = made(a_template(affinity=mine), affinity=node_affinity_for(an_offer()))
    assert found["affinity"] == mine | node_affinity_for(an_offer())


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        (
            {},
            {
                "requests": {"cpu": "3000m", "memory": str(4 * 2**30)},
                "limits": {"memory": str(4 * 2**30), GPU: "2"},
            },
        ),
        (
            {"requests": {"cpu": "1", "memory": "1Gi"}},
            {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {GPU: "2"}},
        ),
        (
            {"limits": {"cpu": "8", "memory": "9Gi"}},
            {
                "requests": {"memory": "9Gi"},
                "limits": {"cpu": "8", "memory": "9Gi", GPU: "2"},
            },
        ),
        (
            {"limits": {"rdma/hca": "1"}, "claims": []},
            {
                "requests": {"cpu": "3000m", "memory": str(4 * 2**30)},
                "limits": {"rdma/hca": "1", "memory": str(4 * 2**30), GPU: "2"},
                "claims": [],
            },
        ),
    ],
)
def test_what_a_person_asks_for_of_a_node_stays(
    given_: dict[str, Any], expected: dict[str, Any]
) -> None:
    """The rest is `launch.perGPU` times the GPUs of the pod."""
    assert main(a_template({"resources": given_}))["resources"] == expected


def test_a_person_may_name_the_cache() -> None:
    """As on a claim, where the tokens of a data set are made once for all pods."""
    cache = {"name": "PLIMSOLL_CACHE", "value": "/models/cache"}
    assert cache in main(a_template({"env": [cache]}))["env"]


def test_a_pod_without_gpus_gets_the_share_of_one() -> None:
    """A replay asks for no device, and still for cores and memory."""
    found = main(a_template(), num_gpus=0)["resources"]
    assert found["requests"] == {"cpu": "1500m", "memory": str(2 * 2**30)}
    assert GPU not in found["limits"]


def test_cores_are_rounded_up() -> None:
    """Kubernetes knows thousandths, and nothing asks for none."""
    assert [milli(Decimal(n)) for n in ("0.0001", "1", "1.2345")] == [
        "1m",
        "1000m",
        "1235m",
    ]


def test_shared_memory_of_a_person_is_used() -> None:
    """Who mounts there has set a size; all else that we mount is ours alone."""
    mine = [{"name": "big", "mountPath": SHARED_MEMORY}]
    mounts = main(a_template({"volumeMounts": mine}))["volumeMounts"]
    assert [one["mountPath"] for one in mounts].count(SHARED_MEMORY) == 1


@pytest.mark.parametrize(
    ("template", "path"),
    [
        ({}, "spec.template.spec.containers"),
        ({"spec": None}, "spec.template.spec.containers"),
        ({"spec": []}, "spec.template.spec"),
        ({"spec": {"containers": {"a": 1}}}, "spec.template.spec.containers"),
        ({"spec": {"containers": ["a"]}}, "spec.template.spec.containers"),
        (
            {"spec": {"containers": [{"image": "a"}, {"image": "b"}]}},
            "spec.template.spec.containers",
        ),
        (
            {"spec": {"containers": [{"name": "trainer", "image": "a"}] * 2}},
            "spec.template.spec.containers",
        ),
        (a_template({"image": ""}), f"{CONTAINER}.image"),
        (a_template({"image": 3}), f"{CONTAINER}.image"),
        (a_template({"args": ["-c"]}), f"{CONTAINER}.args"),
        (a_template({"env": "A=b"}), f"{CONTAINER}.env"),
        (a_template({"env": [{"name": "RANK"}]}), f"{CONTAINER}.env[0].name"),
        (
            a_template({"env": [{"name": "A"}, {"name": "PLIMSOLL_TASK"}]}),
            f"{CONTAINER}.env[1].name",
        ),
        (a_template({"volumeMounts": {"a": 1}}), f"{CONTAINER}.volumeMounts"),
        (
            a_template({"volumeMounts": [{"name": "a", "mountPath": CODE}]}),
            f"{CONTAINER}.volumeMounts[0].mountPath",
        ),
        (
            a_template({"volumeMounts": [{"mountPath": f"{ROOT}/work/"}]}),
            f"{CONTAINER}.volumeMounts[0].mountPath",
        ),
        (a_template({"resources": []}), f"{CONTAINER}.resources"),
        (
            a_template({"resources": {"requests": 1}}),
            f"{CONTAINER}.resources.requests",
        ),
        (
            a_template({"resources": {"limits": {GPU: 1}}}),
            f"{CONTAINER}.resources.limits",
        ),
        (
            a_template({"resources": {"requests": {GPU: 1}}}),
            f"{CONTAINER}.resources.requests",
        ),
        (a_template(restartPolicy="Always"), "spec.template.spec.restartPolicy"),
        (a_template(nodeName="a"), "spec.template.spec.nodeName"),
        (a_template(hostname="a"), "spec.template.spec.hostname"),
        (a_template(subdomain="a"), "spec.template.spec.subdomain"),
        (a_template(volumes="a"), "spec.template.spec.volumes"),
        (
            a_template(volumes=[{"name": "a"}, {"name": "plimsoll-code"}]),
            "spec.template.spec.volumes[1].name",
        ),
        (
            a_template({"name": "plimsoll-x"}),
            "spec.template.spec.containers[0].name",
        ),
        (
            a_template(initContainers=[{"name": "plimsoll-code"}]),
            "spec.template.spec.initContainers[0].name",
        ),
        (a_template(tolerations=3), "spec.template.spec.tolerations"),
        (a_template(affinity=[1]), "spec.template.spec.affinity"),
        (a_template() | {"metadata": 3}, "spec.template.metadata"),
        (a_template() | {"metadata": {"labels": 3}}, "spec.template.metadata.labels"),
    ],
)
def test_what_makes_no_pod_is_refused_by_its_place(
    template: dict[str, Any], path: str
) -> None:
    """The message names the field, so that a person finds it in the manifest."""
    with pytest.raises(InvalidFieldError) as refused:
        made(template, affinity=node_affinity_for(an_offer()))
    assert refused.value.path == path


def test_names_that_only_begin_alike_are_free() -> None:
    """`RANK` is ours, and `RANKING` is not; whole families are by their prefix."""
    for name in ("RANKING", "WORLD_SIZE_LIMIT", "MASTERS"):
        main(a_template({"env": [{"name": name}]}))
    for name in ("MASTER_ADDR", "PET_NNODES", "WORLD_SIZE"):
        with pytest.raises(InvalidFieldError, match=name):
            main(a_template({"env": [{"name": name}]}))


LISTS = st.lists(
    st.dictionaries(
        st.sampled_from(["name", "image", "env", "args", "mountPath", "resources"]),
        JUNK | st.just("trainer"),
    )
)
TEMPLATES = st.fixed_dictionaries(
    {},
    optional={
        "metadata": JUNK | st.fixed_dictionaries({"labels": JUNK}),
        "spec": JUNK
        | st.fixed_dictionaries(
            {"containers": LISTS | JUNK},
            optional=dict.fromkeys(
                ("volumes", "initContainers", "tolerations", "affinity"), LISTS | JUNK
            ),
        ),
        "junk": st.dictionaries(TEXTS, JUNK),
    },
)


@given(TEMPLATES)
def test_any_json_is_made_a_pod_or_refused_and_never_changed(
    template: dict[str, Any],
) -> None:
    """Nothing else is raised: a pass of the loop must end in words for a person."""
    before = copy.deepcopy(template)
    whole = parts(affinity=node_affinity_for(an_offer()), claim="c", inputs="i")
    with suppress(InvalidFieldError):
        found = pod_template(template, whole, RELEASE)
        json.dumps(found)
        assert found["spec"]["restartPolicy"] == "Never"
    assert template == before
