"""Failures around all plans, on real nodes: operator, store, API server, nodes.

The operator keeps what it knows in PostgreSQL here, which is stopped and started like
the rest. Whatever fails, a plan ends as it would have: one gang at a time, no step that
was saved is lost, and the status says what is waited for.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from tests.lab.cluster import Cluster
from tests.lab.processes import answers
from tests.lab.running import STEPS, Ground, a_ground, condition_of, has_reason, is_over
from tests.support.postgresql import Server, a_server

pytestmark = [pytest.mark.nodes, pytest.mark.long, pytest.mark.timeout(600)]

SLOWLY_S, VERY_SLOWLY_S = 0.3, 2.0
"""Of a step, where something happens meanwhile."""
A_WHILE = 7
"""Steps after which something happens."""
SAVED_EVERY = 5
NUM_WRITES = 20
NUM_KILLS = 3
SOONEST_S, LATEST_S = 0.5, 6.0
"""From the start of an operator to its end by SIGKILL."""
LOST_S = 5
RESTARTED = "Restarting the watch-stream"
"""Line of kopf about a watch that is answered `410 Gone`."""
COMPACT = """
import json, sys, urllib.request
def ask(path, body):
    request = urllib.request.Request(sys.argv[1] + path, json.dumps(body).encode())
    return json.load(urllib.request.urlopen(request))
found = ask("/v3/kv/range", {"key": "AA=="})
ask("/v3/kv/compaction", {"revision": found["header"]["revision"], "physical": True})
"""
ETCD = "http://127.0.0.1:2379"


@pytest.fixture(scope="module")
def database() -> Iterator[Server]:
    """Run the store's server."""
    with a_server() as server:
        yield server


@pytest.fixture(scope="module")
def ground(
    nodes: Cluster,
    runtime_image: str,
    database: Server,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Ground]:
    """Namespace in which one plan has been profiled, replayed and trained."""
    folder = tmp_path_factory.mktemp("ground")
    settings = {"DATABASE": database.url(database.make()), "LOG_LEVEL": "debug"}
    with a_ground(nodes, folder, runtime_image, settings=settings) as found:
        found.train_first()
        yield found


def begin(ground: Ground, name: str, *, pause_s: float = SLOWLY_S) -> None:
    """Start a plan that trains slowly, and wait until it has trained a while."""
    ground.order(f"{name}-train", pause_s=pause_s)
    ground.launch(name)
    ground.wait_for_steps(f"{name}-train-1", A_WHILE)


def assert_trained_once(ground: Ground, name: str) -> None:
    """Fail unless a plan was trained by one gang, to its end, and has told of it."""
    status = ground.ended(name)
    assert condition_of(status, "Succeeded")[:2] == ("True", "Trained")
    assert status["attempt"] == 1
    assert sum(status["failures"].values()) == 0
    assert status["observed"]["peakBytes"] > 0
    steps = [step for step in ground.steps(f"{name}-train-1") if step]
    assert sorted(steps) == list(range(1, STEPS))


def test_a_store_that_is_down(ground: Ground, database: Server) -> None:
    """Stops nothing that runs; what is new waits, says so, and goes on by itself."""
    begin(ground, "running")
    num_starts = ground.operator.num_starts
    database.stop()
    ground.launch("waiting")
    status = ground.wait_for("waiting", has_reason("Profiled", "StoreUnavailable"))
    assert condition_of(status, "Profiled")[0] == "Unknown"
    assert condition_of(status, "Succeeded")[0] == "Unknown"
    ground.wait_for_steps("running-train-1", STEPS)
    assert not is_over(ground.status("running"))
    database.start()
    assert_trained_once(ground, "running")
    assert_trained_once(ground, "waiting")
    assert ground.operator.num_starts == num_starts


def test_an_operator_that_is_away(ground: Ground) -> None:
    """While it is, ranks train to the end; pods wait to tell, and nothing is lost."""
    begin(ground, "alone")
    ground.operator.stop()
    ground.wait_for_steps("alone-train-1", STEPS)
    [pod] = ground.pods("alone-train-1")
    assert pod["status"]["phase"] == "Running"
    ground.operator.start()
    assert_trained_once(ground, "alone")


def test_somebody_who_writes_to_the_plan_all_the_time(ground: Ground) -> None:
    """Makes passes come to nothing, and be made again: no status is lost."""
    ground.launch("busy")
    num_writes = 0
    while not is_over(ground.status("busy")) or num_writes < NUM_WRITES:
        label = f"lab.plimsoll.dev/write={num_writes}"
        words = ("label", "tplan", "busy", label, "--overwrite")
        ground.cluster.kubectl(*words, "-n", ground.namespace)
        num_writes += 1
    assert_trained_once(ground, "busy")


def test_an_operator_that_is_killed_again_and_again(ground: Ground) -> None:
    """At whatever moment, each task is made once: no second profile, plan, workers."""
    seed = random.randrange(2**32)  # noqa: S311 - moments, not secrets
    moments = random.Random(seed)  # noqa: S311
    waits_s = [moments.uniform(SOONEST_S, LATEST_S) for _ in range(NUM_KILLS)]
    kind = {"entrypoint": "steered:workload", "args": {"variant": 2}}
    ground.launch("hunted", workload=kind)
    for wait_s in waits_s:
        ground.operator.wait_until_it_leads()
        time.sleep(wait_s)
        ground.operator.kill()
    try:
        assert_trained_once(ground, "hunted")
        made = ground.cluster.get("pods,configmaps", namespace=ground.namespace)
        names = {one["metadata"]["name"] for one in made["items"]}
        assert "hunted-plan-2" not in names
        assert len(ground.pods("hunted-train-1")) == 1
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: killed after {waits_s} s") from error


def test_an_api_server_that_has_forgotten(ground: Ground) -> None:
    """Events of a gap in a watch are found by a new list: the watch is too old.

    The API server is started anew, a plan is edited, and etcd drops all that was
    before. The operator is held meanwhile, so that it hears of nothing; where that
    takes too long its Lease is lost, and it begins anew.
    """
    begin(ground, "edited")
    num_starts, num_before = ground.operator.num_starts, restarts(ground)
    ground.operator.signal(signal.SIGSTOP)
    restart_api_server(ground.cluster)
    ground.patch("edited", {"suspend": True})
    compact(ground.cluster)
    ground.operator.signal(signal.SIGCONT)
    ground.wait_for("edited", has_reason("Launched", "Suspended"))
    assert restarts(ground) > num_before or ground.operator.num_starts > num_starts
    ground.order("edited-train")
    ground.patch("edited", {"suspend": False})
    status = ground.ended("edited")
    assert condition_of(status, "Succeeded")[:2] == ("True", "Trained")
    assert (status["attempt"], sum(status["failures"].values())) == (2, 0)


def test_an_api_server_that_is_away(ground: Ground) -> None:
    """Stops no gang; the operator goes on with what it finds."""
    begin(ground, "unwatched")
    ground.cluster.stop("kube-apiserver")
    ground.wait_for_steps("unwatched-train-1", STEPS)
    ground.cluster.start("kube-apiserver")
    wait_for_api_server(ground.cluster)
    assert_trained_once(ground, "unwatched")


def test_a_node_that_nobody_can_reach(ground: Ground) -> None:
    """Its ranks train on; the next attempt does not wait for them, nor use their work.

    They are fenced: what they save after another attempt has begun is refused.
    """
    gone = {"key": "node.kubernetes.io/unreachable", "operator": "Exists"}
    template = ground.template()
    template["spec"]["tolerations"] = [
        gone | {"effect": "NoExecute", "tolerationSeconds": 1}
    ]
    ground.order("stranded-train", pause_s=VERY_SLOWLY_S)
    ground.launch("stranded", template=template, runPolicy={"nodeLostSeconds": LOST_S})
    ground.wait_for_steps("stranded-train-1", A_WHILE)
    [pod] = ground.pods("stranded-train-1")
    kubelet = f"kubelet-{pod['spec']['nodeName'].removeprefix('node')}"
    ground.cluster.stop(kubelet)
    try:
        ground.wait_for("stranded", lambda status: status["attempt"] == 2)
        fenced = max(ground.steps("stranded-train-1"))
        ground.wait_for_steps("stranded-train-2", A_WHILE)
        [other] = ground.pods("stranded-train-2")
        assert other["spec"]["nodeName"] != pod["spec"]["nodeName"]
        ground.order("stranded-train")  # both gangs go on as fast as they can
        status = ground.ended("stranded")
    finally:
        ground.cluster.start(kubelet)
    assert condition_of(status, "Succeeded")[:2] == ("True", "Trained")
    assert (status["attempt"], status["failures"]["disruption"]) == (2, 1)
    late, again = (ground.steps(f"stranded-train-{number}") for number in (1, 2))
    assert fenced < max(late) < STEPS - 1  # it trained on until it wanted to save
    assert min(set(again) - {0}) % SAVED_EVERY == 0
    assert max(again) == STEPS - 1
    ground.cluster.wait(f"node/{pod['spec']['nodeName']}", "condition=Ready")


def restarts(ground: Ground) -> int:
    """Number of times that a watch of the operator was answered that it is too old."""
    return sum(RESTARTED in line for line in ground.operator.log_lines())


def restart_api_server(cluster: Cluster) -> None:
    """Kill the API server, start it, and wait until it serves."""
    cluster.stop("kube-apiserver")
    cluster.start("kube-apiserver")
    wait_for_api_server(cluster)


def wait_for_api_server(cluster: Cluster) -> None:
    """Wait until the API server serves."""
    address = f"https://{cluster.slot.node_address(0)}:6443/readyz"
    cluster.wait_until(
        "the API server", lambda: answers(address, state=cluster.state) is not None
    )


def compact(cluster: Cluster) -> None:
    """Let etcd drop every version of anything but the latest."""
    keeper = psutil.Process(cluster.slot.facts()["keeper"])
    [etcd] = [one for one in keeper.children(recursive=True) if one.name() == "etcd"]
    inside = ("nsenter", f"--net=/proc/{etcd.pid}/ns/net")
    subprocess.run([*inside, sys.executable, "-c", COMPACT, ETCD], check=True)
