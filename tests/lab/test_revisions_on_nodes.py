"""Plans that are revised while they run in pods: a slow rank, and kills meanwhile.

The operator of the kills revises at random, again and again. `make soak` kills more.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from typing import Any

import psutil
import pytest

from plimsoll_planner.pod_names import REVISION, ROOT
from tests.lab.cluster import Cluster
from tests.lab.gpus import Gpus
from tests.lab.running import Ground, a_ground, condition_of, is_over

pytestmark = [pytest.mark.nodes, pytest.mark.long, pytest.mark.timeout(7200)]
NUM_KILLS = int(os.environ.get("PLIMSOLL_KILLS", "2"))
KILLS_PER_CASE = 2
MOST_SPARED = 4
"""Revisions before one in the middle of which something is killed."""
MIDST_S = 0.3
"""After a revision has come to a pod: its ranks see it, agree and have moved layers."""
SLOW_S = 0.02
"""For each layer of rank 1 and each forward pass."""
STEPS = 120
PAUSE_S = 0.03
"""For each batch that is made, so that a plan trains for a while."""
LONG_S = 900.0
LOOK_S = 1.0
"""Between two looks for processes."""
DEVICES = Gpus(count=4, memory_mib=16)
TWO_STAGES = {
    "pipeline": 2,
    "data": 1,
    "microBatch": 4,
    "optimizerHome": "device",
}
ALWAYS = {"replanCooldownSeconds": 0, "replanLimit": 1000}
RANDOM = "tests.support.revising_operator"
TRAINING = {"globalBatchSize": 8, "steps": STEPS}


@pytest.fixture(scope="module")
def ground(
    nodes: Cluster, runtime_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ground]:
    """Namespace with the operator as it is."""
    folder = tmp_path_factory.mktemp("revisions")
    with a_ground(nodes, folder, runtime_image, devices=DEVICES) as found:
        yield found


def test_layers_leave_a_slow_rank(ground: Ground) -> None:
    """In the attempt that runs; the revision came in the answer to a report."""
    ground.order("slow-train", slow_s=SLOW_S)
    ground.launch("slow", override=TWO_STAGES, training=TRAINING)
    status = ground.ended("slow")
    assert_trained(status)
    assert status["attempt"] == 1
    first = status["revisions"][0]
    assert (first["state"], first["cause"]) == ("followed", "Pace")
    assert first["movedLayers"] > 0
    assert float(first["stepPercent"]) < 95
    assert status["plan"]["revision"] == 1 + len(status["revisions"])
    reasons = [one["reason"] for one in events(ground, "slow")]
    assert {"RevisionOffered", "RevisionFollowed"} <= set(reasons)


def assert_trained(status: dict[str, Any]) -> None:
    """Fail unless a plan has come to its end well; with its message."""
    found = condition_of(status, "Succeeded")
    assert found[:2] == ("True", "Trained"), found


def events(ground: Ground, name: str) -> list[dict[str, str]]:
    """Events about a plan."""
    found = ground.cluster.get("events.events.k8s.io", namespace=ground.namespace)
    return [one for one in found["items"] if one["regarding"]["name"] == name]


@pytest.fixture(scope="module")
def revising(
    nodes: Cluster, runtime_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ground]:
    """Namespace whose operator revises at random; one plan has stayed there."""
    folder = tmp_path_factory.mktemp("random")
    with a_ground(
        nodes, folder, runtime_image, devices=DEVICES, module=RANDOM
    ) as found:
        stays = {"replanOnline": False}
        found.launch("stays", override=TWO_STAGES, training=TRAINING, runPolicy=stays)
        status = found.ended("stays")
        assert_trained(status)
        yield found


@pytest.mark.parametrize("case", range(-(-NUM_KILLS // KILLS_PER_CASE)))
def test_kills_in_the_middle_of_revisions(revising: Ground, case: int) -> None:
    """A rank, all of a pod, or the operator: plans succeed, losses stay.

    A plan that ends before all kills are made is followed by another one.
    """
    dice = random.Random(f"20261126/{case}")  # noqa: S311 - no secret
    kills = 0
    for number in count():
        name = f"killed-{case}-{number}"
        revising.order(f"{name}-train", pause_s=PAUSE_S)
        revising.launch(name, override=TWO_STAGES, training=TRAINING, runPolicy=ALWAYS)
        spared = dice.randint(1, MOST_SPARED)
        for _ in appearances(revising, name):
            spared -= 1
            if spared <= 0 and kills < KILLS_PER_CASE:
                spared = dice.randint(1, MOST_SPARED)
                time.sleep(dice.uniform(0, MIDST_S))
                kills += kill(revising, name, dice.choice(("rank", "pod", "operator")))
        status = revising.status(name)
        assert_trained(status)
        assert status["failures"]["application"] == 0
        assert revising.losses(name) == revising.losses("stays")
        if kills == KILLS_PER_CASE:
            break


def processes(name: str) -> list[psutil.Process]:
    """Processes in the training pods of a plan."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            host = process.environ().get("HOSTNAME", "")
            if host.startswith(f"{name}-train-"):
                found.append(process)
    return found


def appearances(ground: Ground, name: str) -> Iterator[None]:
    """Yield each time that a revision comes to a pod of a plan, until it is over.

    Raises:
        AssertionError: it is not, after a long while.
    """
    known: set[tuple[int, int]] = set()
    end_s, looked_s = time.monotonic() + LONG_S, 0.0
    mine: list[psutil.Process] = []
    while time.monotonic() < end_s:
        if time.monotonic() - looked_s > LOOK_S:
            looked_s, mine = time.monotonic(), processes(name)
            if not mine and is_over(ground.status(name)):
                return
        for process in mine:
            with suppress(OSError):
                path = f"/proc/{process.pid}/root{ROOT}/work/{REVISION}"
                status = os.stat(path)  # noqa: PTH116 - of another root
                stamp = status.st_ino, status.st_mtime_ns
                if stamp not in known:
                    known.add(stamp)
                    yield
        time.sleep(0.005)
    raise AssertionError(ground.account(name, ground.status(name)))


def kill(ground: Ground, name: str, what: str) -> bool:
    """Kill something; whether there was anything to kill."""
    if what == "operator":
        ground.operator.kill()
        return True
    mine = processes(name)
    ranks = [p for p in mine if is_rank(p)]
    victims = ranks[:1] if what == "rank" else mine
    killed = 0
    for victim in victims:
        with suppress(psutil.Error):
            victim.kill()
            killed += 1
    return killed > 0


def is_rank(process: psutil.Process) -> bool:
    """Whether it trains."""
    with suppress(psutil.Error):
        return "plimsoll_trainer" in process.cmdline()
    return False
