"""Operators placed on two nodes, from the profile to the end of a training.

Each node has one device, so the ranks are two pods. While they train one is deleted;
then a pipeline goes on from what they have saved.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from examples import two_towers
from tests.lab.cluster import Cluster
from tests.lab.gpus import Gpus
from tests.lab.running import CLAIM, Ground, a_ground, condition_of

pytestmark = [pytest.mark.nodes, pytest.mark.long, pytest.mark.timeout(900)]
DEVICE = Gpus(count=1, memory_mib=5)
"""Of each node: two are needed."""
STEPS, EVERY_STEPS = 200, 10
WORKLOAD = {"entrypoint": "two_towers:workload"}
CHECKPOINT = {"claimName": CLAIM, "everySteps": EVERY_STEPS}
PLACED, CHAIN = "placed", "chain"
MOST_ERROR_PERCENT = Decimal("0.5")


@pytest.fixture(scope="module")
def ground(
    nodes: Cluster, runtime_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ground]:
    """Namespace in which a placement was trained, and a pod of it deleted meanwhile."""
    folder = tmp_path_factory.mktemp("placed")
    with a_ground(nodes, folder, runtime_image, devices=DEVICE) as found:
        shutil.copy(two_towers.__file__, folder / "code")
        launch(found, PLACED, STEPS, search={"engine": "graph"})
        found.wait_for(PLACED, lambda _: bool(saved(found)))
        [pod, *_] = found.pods(f"{PLACED}-train-1")
        found.delete(f"pod/{pod['metadata']['name']}")
        yield found


def launch(ground: Ground, name: str, steps: int, **spec: Any) -> None:
    """Train towers for some steps."""
    training = {"globalBatchSize": 16, "steps": steps}
    given = {"checkpoint": CHECKPOINT, "training": training} | spec
    ground.launch(name, workload=WORKLOAD, **given)


def saved(ground: Ground) -> list[Path]:
    """Checkpoints of all plans."""
    return [*(ground.folder / "saved").glob("*/step-*")]


def trained(ground: Ground, name: str) -> dict[str, Any]:
    """Status of a plan that has come to its end well."""
    status = ground.ended(name)
    assert condition_of(status, "Succeeded")[:2] == ("True", "Trained"), ground.account(
        name, status
    )
    return status


def test_a_placement_trains_in_two_pods_with_the_peaks_that_were_planned(
    ground: Ground,
) -> None:
    """One device is proven not to do; a pod that is lost costs an attempt, no step."""
    status = trained(ground, PLACED)
    assert status["plan"]["gpus"] == 2
    assert status["certificate"]["verdict"] == "fails"
    assert condition_of(status, "Certified")[1] == "Replayed"
    assert Decimal(status["observed"]["errorPercent"]) < MOST_ERROR_PERCENT
    assert (status["attempt"], status["failures"]["disruption"]) == (2, 1)
    assert len(ground.pods(f"{PLACED}-train-2")) == 2
    job = f"job/{PLACED}-train-2"
    words = ("logs", job, "--all-pods", "--tail=-1", "-n", ground.namespace)
    log = ground.cluster.kubectl(*words)
    assert "resumes after step" in log
    assert f"step {STEPS}/{STEPS}" in log


def test_a_pipeline_goes_on_from_what_a_placement_has_saved(ground: Ground) -> None:
    """The same tensors under the same names; as a chain the model needs two as well."""
    status = trained(ground, PLACED)
    folder = status["checkpoints"]["folder"]
    launch(
        ground,
        CHAIN,
        STEPS + EVERY_STEPS,
        checkpoint=CHECKPOINT | {"resumeFrom": folder},
        override={"data": 1, "optimizerHome": "device"},
    )
    status = trained(ground, CHAIN)
    assert (status["plan"]["pipeline"], status["attempt"]) == (2, 1)
    words = ("logs", f"job/{CHAIN}-train-1", "--all-pods", "--tail=-1")
    log = ground.cluster.kubectl(*words, "-n", ground.namespace)
    assert f"resumes after step {STEPS}" in log
