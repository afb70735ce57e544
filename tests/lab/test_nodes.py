"""Level 2 is real nodes: containers run, are limited, found by name, and lost."""

from __future__ import annotations

import shutil
import urllib.request
from pathlib import Path

import pytest

from tests.lab import archives, images, objects
from tests.lab import control_plane as level_one
from tests.lab.cluster import Cluster
from tests.lab.gpus import EMULATED_LABEL, RESOURCE, Gpus, pretend
from tests.lab.host_packages import has_torch
from tests.lab.host_python import host_python

pytestmark = pytest.mark.nodes

MEET = """
i=0
until nslookup meet-$((1 - JOB_COMPLETION_INDEX)).meet.$NAMESPACE.svc.cluster.local
do i=$((i + 1)); [ $i -lt 100 ] || exit 1; sleep 0.1; done
"""
REDUCE = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.full((4,), dist.get_rank() + 1.0)
dist.all_reduce(total)
os.write(1, f"sum {total.tolist()}\\n".encode())  # whole, beside the other rank's
dist.destroy_process_group()
"""
ALLOCATE = "block = bytearray(128 << 20); print(len(block))"
ALLOCATE_IN_A_CHILD = f"""
import subprocess, sys
done = subprocess.run([sys.executable, "-c", "{ALLOCATE}"])
sys.exit(1 if done.returncode else 0)
"""


@pytest.fixture
def gpus(nodes: Cluster) -> None:
    """Let each node pretend to have one GPU."""
    for node in nodes.nodes:
        pretend(nodes, node, Gpus(count=1))


def is_ready(cluster: Cluster, node: str) -> str:
    """Status of a node's Ready condition: True, False or Unknown."""
    conditions = cluster.get("node", node)["status"]["conditions"]
    return next(str(each["status"]) for each in conditions if each["type"] == "Ready")


@pytest.mark.usefixtures("gpus")
def test_pods_of_a_gang_find_each_other(nodes: Cluster, namespace: str) -> None:
    """Two pods with a pretended GPU each run on two nodes and resolve each other."""
    container = objects.a_container(
        ["sh", "-c", MEET],
        image=images.BUSYBOX,
        env=[{"name": "NAMESPACE", "value": namespace}],
        resources={"limits": {RESOURCE: "1"}},
    )
    nodes.apply(*objects.a_gang("meet", container), namespace=namespace)
    nodes.wait("job/meet", "condition=Complete", namespace=namespace)
    pods = nodes.get("pods", namespace=namespace)["items"]
    assert {pod["spec"]["nodeName"] for pod in pods} == set(nodes.nodes)
    labelled = nodes.get("nodes", "--selector", f"{EMULATED_LABEL}=true")["items"]
    assert len(labelled) == len(nodes.nodes)


@pytest.mark.skipif(not has_torch(), reason="torch is missing: run `make test`")
@pytest.mark.usefixtures("gpus")
def test_processes_of_two_pods_reduce_together(nodes: Cluster, namespace: str) -> None:
    """Four ranks in two pods add up 1 + 2 + 3 + 4 with the host's own torch."""
    python = host_python()
    script = "printf '%s' \"$SCRIPT\" > /tmp/reduce.py; exec " + " ".join(
        [
            f"{python.command} -m torch.distributed.run --nnodes=2 --nproc-per-node=2",
            "--node-rank=$JOB_COMPLETION_INDEX --master-addr=reduce-0.reduce",
            "--master-port=29500 /tmp/reduce.py",
        ]
    )
    settings = [{"name": "SCRIPT", "value": REDUCE}, *python.environment]
    container = objects.a_container(
        ["sh", "-c", script],
        env=[*settings, {"name": "OMP_NUM_THREADS", "value": "1"}],
        volumeMounts=python.mounts,
        resources={"limits": {RESOURCE: "1"}},
    )
    gang = objects.a_gang("reduce", container, volumes=python.volumes)
    nodes.apply(*gang, namespace=namespace)
    nodes.wait("job/reduce", "condition=Complete", namespace=namespace, timeout_s=120)
    for pod in nodes.get("pods", namespace=namespace)["items"]:
        log = nodes.kubectl("logs", pod["metadata"]["name"], "-n", namespace)
        assert log.count("sum [10.0, 10.0, 10.0, 10.0]") == 2, log


@pytest.mark.parametrize(
    ("script", "exit_code"),
    [(ALLOCATE, 137), (ALLOCATE_IN_A_CHILD, 1)],
    ids=["first process", "child"],
)
def test_memory_limits_are_real(
    nodes: Cluster, namespace: str, script: str, exit_code: int
) -> None:
    """A container over its limit shows OOMKilled, also when only a child was killed."""
    container = objects.a_container(
        ["python3", "-c", script], resources={"limits": {"memory": "64Mi"}}
    )
    nodes.apply(objects.a_pod("big", container), namespace=namespace)
    nodes.wait("pod/big", "jsonpath={.status.phase}=Failed", namespace=namespace)
    status = nodes.get("pod", "big", namespace=namespace)["status"]
    ended = status["containerStatuses"][0]["state"]["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", exit_code)


def test_a_service_answers_and_its_pod_can_be_looked_into(
    nodes: Cluster, namespace: str
) -> None:
    """A service address leads to the pod; kubectl reads its log and runs in it."""
    probe = {"tcpSocket": {"port": 8080}, "periodSeconds": 1}
    container = objects.a_container(
        ["python3", "-u", "-m", "http.server", "8080", "--directory", "/etc"],
        readinessProbe=probe,
    )
    nodes.apply(objects.a_pod("web", container), namespace=namespace)
    here = ("--namespace", namespace)
    nodes.kubectl("expose", "pod/web", "--port=80", "--target-port=8080", *here)
    nodes.wait("pod/web", "condition=Ready", namespace=namespace)
    address = nodes.get("service", "web", namespace=namespace)["spec"]["clusterIP"]

    def hostname() -> str:
        url = f"http://{address}/hostname"
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                return str(answer.read().decode().strip())
        except OSError:  # kube-proxy has not heard of it yet
            return ""

    nodes.wait_until("the service", lambda: hostname() == "web")
    assert "GET /hostname" in nodes.kubectl("logs", "web", *here)
    assert nodes.kubectl("exec", "web", *here, "--", "hostname").strip() == "web"


def test_an_image_of_ones_own_runs(
    nodes: Cluster, namespace: str, tmp_path: Path
) -> None:
    """An archive written by the lab and loaded into its nodes is found by pods."""
    busybox = shutil.which("busybox")
    assert busybox
    (tmp_path / "root").mkdir()
    shutil.copy(busybox, tmp_path / "root/busybox")
    own = archives.Image(
        name="localhost/own:1",
        layers=(tmp_path / "root",),
        command=("/busybox", "echo", "mine"),
    )
    archives.write_archive(tmp_path / "own.tar", [own])
    nodes.load_images(tmp_path / "own.tar")
    container = objects.a_container([], image=own.name)
    nodes.apply(objects.a_pod("own", container), namespace=namespace)
    nodes.wait("pod/own", "jsonpath={.status.phase}=Succeeded", namespace=namespace)
    assert nodes.kubectl("logs", "own", "-n", namespace) == "mine\n"


@pytest.mark.usefixtures("gpus")
def test_a_dead_kubelet_loses_its_node(nodes: Cluster) -> None:
    """Without its kubelet a node becomes Unknown; with it, Ready, and has its GPU."""
    nodes.stop("kubelet-1")
    try:
        nodes.wait_until(
            "the loss of node1",
            lambda: is_ready(nodes, "node1") == "Unknown",
            timeout_s=9 * level_one.NODE_GRACE_S,
        )
    finally:
        nodes.start("kubelet-1")
    nodes.wait("node/node1", "condition=Ready", timeout_s=180)
    assert nodes.get("node", "node1")["status"]["allocatable"][RESOURCE] == "1"
