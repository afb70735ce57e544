"""Level 1 is a real control plane: it validates, authorises, schedules and controls."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab import control_plane as level_1
from tests.lab import kwok, objects, owner, slots
from tests.lab.cluster import Cluster
from tests.lab.errors import LabError
from tests.lab.gpus import RESOURCE, Gpus
from tests.lab.processes import Processes
from tests.support.ports import free_ports

pytestmark = pytest.mark.control_plane


def a_definition() -> dict[str, Any]:
    """Resource whose `depth` may not exceed its `height`."""
    rule = {"rule": "self.depth <= self.height", "message": "deeper than it is high"}
    number = {"type": "integer"}
    spec = {
        "type": "object",
        "properties": {"depth": number, "height": number},
        "x-kubernetes-validations": [rule],
    }
    schema = {"type": "object", "properties": {"spec": spec}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    names = {"plural": "hulls", "singular": "hull", "kind": "Hull"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "hulls.lab.plimsoll.dev"},
        "spec": {
            "group": "lab.plimsoll.dev",
            "scope": "Namespaced",
            "names": names,
            "versions": [version],
        },
    }


def a_hull(*, depth: int) -> dict[str, Any]:
    """Object of that resource, 10 high."""
    return {
        "apiVersion": "lab.plimsoll.dev/v1",
        "kind": "Hull",
        "metadata": {"name": f"hull-{depth}"},
        "spec": {"depth": depth, "height": 10},
    }


def test_a_rule_of_a_definition_is_enforced(
    control_plane: Cluster, namespace: str
) -> None:
    """A CEL rule refuses the object that breaks it and accepts one that does not."""
    control_plane.apply(a_definition())
    control_plane.wait("crd/hulls.lab.plimsoll.dev", "condition=Established")
    # For its first second a new resource answers 429, "storage is (re)initializing".
    lists = ("kubectl", "get", "hulls")
    control_plane.wait_until(
        "hulls", lambda: not control_plane.run(*lists, check=False).returncode
    )
    control_plane.apply(a_hull(depth=10), namespace=namespace)
    with pytest.raises(AssertionError, match="deeper than it is high"):
        control_plane.apply(a_hull(depth=11), namespace=namespace)


def test_rights_come_from_roles_alone(control_plane: Cluster, namespace: str) -> None:
    """A ServiceAccount's token is refused until a Role is bound to its account."""
    here = ("--namespace", namespace)
    control_plane.kubectl("create", "serviceaccount", "reader", *here)
    token = control_plane.kubectl("create", "token", "reader", *here).strip()
    read = ("kubectl", "get", "pods", *here, f"--token={token}")
    refused = control_plane.run(*read, check=False)
    assert f"serviceaccount:{namespace}:reader" in refused.stderr
    assert "Forbidden" in refused.stderr

    role = ("--verb=get,list", "--resource=pods")
    control_plane.kubectl("create", "role", "read", *role, *here)
    bind = ("--role=read", f"--serviceaccount={namespace}:reader")
    control_plane.kubectl("create", "rolebinding", "read", *bind, *here)
    control_plane.wait_until(
        "the right to read",
        lambda: not control_plane.run(*read, check=False).returncode,
    )


@pytest.fixture
def fake_nodes(control_plane: Cluster) -> Iterator[list[str]]:
    """Names of three nodes on paper, with eight GPUs each."""
    names = [f"fake-{number}" for number in range(3)]
    control_plane.apply(*(kwok.fake_node(name, Gpus(count=8)) for name in names))
    yield names
    control_plane.kubectl("delete", "node", *names)


EIGHT_GPUS = {"limits": {RESOURCE: "8"}}
ON_PAPER: dict[str, Any] = {
    "tolerations": [kwok.TOLERATION],
    "nodeSelector": kwok.SELECTOR,
}


def test_a_job_runs_on_nodes_that_do_not_exist(
    control_plane: Cluster, namespace: str, fake_nodes: list[str]
) -> None:
    """An Indexed Job that needs all GPUs of a fake node for each pod completes."""
    container = objects.a_container([], resources=EIGHT_GPUS)
    gang = objects.a_gang("scale", container, pods=3, **ON_PAPER)
    control_plane.apply(*gang, namespace=namespace)
    control_plane.wait("job/scale", "condition=Complete", namespace=namespace)
    pods = control_plane.get("pods", namespace=namespace)["items"]
    assert len(pods) == 3
    # A pod on paper ends at once, so that two may have had the same node in turn.
    assert {pod["spec"]["nodeName"] for pod in pods} <= set(fake_nodes)


def test_pretended_gpus_run_out(
    control_plane: Cluster, namespace: str, fake_nodes: list[str]
) -> None:
    """Of four pods that need a whole node each, three run and one is unschedulable."""
    container = objects.a_container([], resources=EIGHT_GPUS)
    pods = [
        objects.a_pod(f"pod-{number}", container, **ON_PAPER) for number in range(4)
    ]
    control_plane.apply(*pods, namespace=namespace)

    def places() -> list[str]:
        found = control_plane.get("pods", namespace=namespace)["items"]
        running = [pod for pod in found if pod["status"]["phase"] == "Running"]
        return sorted(pod["spec"]["nodeName"] for pod in running)

    control_plane.wait_until("three pods that run", lambda: len(places()) == 3)
    assert places() == fake_nodes
    found = control_plane.get("pods", namespace=namespace)["items"]
    (left,) = [pod for pod in found if pod["status"]["phase"] == "Pending"]
    reason = "jsonpath={.status.conditions[?(@.type=='PodScheduled')].reason}"
    name = left["metadata"]["name"]
    control_plane.wait(f"pod/{name}", f"{reason}=Unschedulable", namespace=namespace)


def test_two_labs_do_not_see_each_other(control_plane: Cluster, namespace: str) -> None:
    """A second control plane has objects, ports and a folder of its own."""
    second = owner.start("control-plane")
    try:
        assert second.cluster.slot != control_plane.slot
        assert namespace not in second.cluster.kubectl("get", "namespaces")
    finally:
        second.close()
    assert not second.cluster.state.exists()
    assert namespace in control_plane.kubectl("get", "namespaces")


@pytest.fixture
def taken_port() -> Iterator[int]:
    """Port of loopback that somebody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield int(listener.getsockname()[1])


@pytest.mark.parametrize("times", [1, 99])
def test_a_port_in_use_is_tried_again_and_then_named(
    times: int,
    taken_port: int,
    control_plane: Cluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Somebody may bind a port between our look and our start: another one is taken."""
    really_free = free_ports
    looks = iter(range(99))

    def ports(count: int) -> list[int]:
        found = really_free(count)
        return [found[0], taken_port, found[2]] if next(looks) < times else found

    monkeypatch.setattr(level_1, "free_ports", ports)
    with (
        slots.take() as slot,
        Processes(slot=slot, binaries=control_plane.binaries, owner=None) as processes,
    ):
        if times == 1:
            assert level_1.start_on_loopback(processes).etcd_port != taken_port
        else:
            with pytest.raises(LabError, match=r"no free ports on \S+ after 5"):
                level_1.start_on_loopback(processes)
