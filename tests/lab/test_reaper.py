"""Nothing of a lab outlives its owner, whoever is killed and whatever ran in it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.lab import objects, owner, slots
from tests.lab.cluster import Cluster
from tests.lab.owner import Level
from tests.lab.traces import Traces

OWNER = """
import sys
from tests.lab import owner
lab = owner.start(sys.argv[1], num_nodes=1)
print(lab.cluster.slot.number, flush=True)
sys.stdin.read()
lab.close()
"""
LEVELS = [
    pytest.param("control-plane", marks=pytest.mark.control_plane),
    pytest.param("nodes", marks=pytest.mark.nodes),
]


@pytest.fixture
def owned(
    level: Level, request: pytest.FixtureRequest
) -> Iterator[tuple[subprocess.Popen[str], Cluster]]:
    """Start a lab that another process owns, with a pod in it if it has a node."""
    # The session's own lab says why it cannot be had here, and skips.
    request.getfixturevalue(level.replace("-", "_"))
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, level],
        cwd=owner.ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout
        cluster = Cluster.of(slots.ALL[int(process.stdout.readline())])
        if cluster.nodes:
            cluster.wait("serviceaccount/default", "create")
            sleeper = objects.a_container(["sleep", "600"])
            cluster.apply(objects.a_pod("sleeper", sleeper))
            cluster.wait("pod/sleeper", "condition=Ready")
        yield process, cluster
        process.kill()
    slots.sweep_abandoned()


def nothing_is_left(cluster: Cluster, traces: Traces) -> None:
    """Wait until the lab is gone without a trace."""
    assert len(traces.processes) > 5
    try:
        cluster.wait_until("its end", lambda: not traces.left(), timeout_s=120)
    except AssertionError:
        assert traces.left() == []


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("victim", ["owner", "owner's keeper", "both"])
def test_a_kill_leaves_nothing(
    owned: tuple[subprocess.Popen[str], Cluster], victim: str
) -> None:
    """SIGKILL of the owner, of its child that keeps the lab, or of both at once."""
    process, cluster = owned
    keeper = json.loads((cluster.state / "lab.json").read_text())["keeper"]
    traces = Traces.of(cluster.slot, keeper)
    if victim != "owner":
        os.kill(keeper, signal.SIGKILL)
    if victim != "owner's keeper":
        process.kill()
    else:  # the owner lives, and closes the lab as a fixture does
        process.communicate(timeout=120)
    if victim == "both":  # nobody is left to clear up but the next lab to start
        cluster.wait_until("their ends", lambda: not slots.is_taken(cluster.slot))
        slots.sweep_abandoned()
    nothing_is_left(cluster, traces)


@pytest.mark.control_plane
def test_up_stays_until_down(control_plane: Cluster) -> None:
    """A lab of `up` outlives the command; `down` ends it, and no other lab."""
    lab = [sys.executable, "-m", "tests.lab"]

    def run(*command: str) -> str:
        done = subprocess.run(
            [*lab, *command], cwd=owner.ROOT, capture_output=True, text=True, check=True
        )
        return done.stdout

    started = run("up", "--control-plane-only")
    # Sessions beside ours come and go, so only lines about our own labs count.
    number = re.search(r"\(lab (\d+)\)", started)
    assert number
    slot = slots.ALL[int(number[1])]
    assert f"export KUBECONFIG={slot.state}/kubeconfig" in started
    assert f"lab {slot.number}: control-plane of up, ready in" in run("status")
    cluster = Cluster.of(slot)
    traces = Traces.of(slot, slot.facts()["keeper"])
    assert run("down", f"--lab={slot.number}") == f"down: lab {slot.number}\n"
    nothing_is_left(cluster, traces)
    assert control_plane.slot in owner.running()
