"""A plan that is revised while it runs: agreed on by all ranks, or by none."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch.distributed as dist

from plimsoll_planner.records.document import Document, save
from plimsoll_planner.records.observation import Observation
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.revision import Revision
from plimsoll_trainer.engine.control import Control
from plimsoll_trainer.process.revisions import Revisions
from tests.support.builders import a_plan, a_revision
from tests.support.jobs import Job, events, losses
from tests.support.plans import plan_for, revision_of
from tests.support.ranks import run_ranks

CUTS = (0, 2, 5)
STEPS = 40
pytestmark = pytest.mark.slow


def observed(report: Path, rank: int) -> list[Observation]:
    """Observations of a rank."""
    return [
        Observation.from_json(line["observation"], "it")
        for line in events(report, "observation")
        if line["rank"] == rank
    ]


def run_with(
    job: Job,
    appears: Callable[[HybridPlan], list[Document]],
    *,
    steps: int = STEPS,
    **fields: Any,
) -> Path:
    """Run a job while documents appear in its revision file, some steps apart."""
    path, report = job.folder / "revision.json", job.report("revised")
    plan = plan_for(CUTS)

    def write() -> None:
        for number, document in zip(count(1), appears(plan), strict=False):
            while last_step(report) < 10 * number:
                time.sleep(0.002)
            save(path, document)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    codes = job.run(CUTS, steps, report="revised", revision_file=path, **fields)
    assert codes == [0, 0]
    return report


def last_step(report: Path) -> int:
    """Steps that are finished, so far; a line may be written just now."""
    if not report.exists():
        return 0
    whole, _, _ = report.read_text().rpartition("\n")
    events_so_far = map(json.loads, whole.splitlines())
    return max(
        (one["step"] for one in events_so_far if one["event"] == "step"), default=0
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    """Losses of the plan that stays."""
    job = Job(tmp_path_factory.mktemp("still"))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(job.folder))
        assert job.run(CUTS, STEPS) == [0, 0]
    sys.modules.pop("tiny_model", None)
    return losses(job.report("report"))


def test_layers_move_while_a_model_trains(
    job: Job, undisturbed: dict[int, float]
) -> None:
    """There and back, and ways of layers alone; losses stay as they are, to the bit."""

    def appears(plan: HybridPlan) -> list[Document]:
        there = revision_of(plan, (0, 4, 5))
        ways = revision_of(there.plan, (0, 4, 5), recomputed=(1, 3))
        return [there, ways, revision_of(ways.plan, (0, 1, 5))]

    report = run_with(job, appears)
    assert losses(report) == undisturbed
    revised = [line for line in events(report, "revised") if line["rank"] == 0]
    assert [line["revision"] for line in revised] == [2, 3, 4]
    assert [line["num_moves"] for line in revised] == [2, 0, 3]
    for rank in range(2):
        found = observed(report, rank)
        assert {one.revision for one in found} == {1, 2, 3, 4}
        assert len({one.plan_digest for one in found}) == 4
        last = found[-1]
        assert 0 < len(last.passes_s) == len(last.step_s) < STEPS
        assert last.moved_bytes > 0
        assert last.moved_s > 0


def test_what_moved_is_saved_where_it_is(
    job: Job, undisturbed: dict[int, float]
) -> None:
    """And read by the plan before, as by any."""

    def appears(plan: HybridPlan) -> list[Document]:
        return [revision_of(plan, (0, 4, 5))]

    report = run_with(job, appears, steps=STEPS // 2, saves=True)
    assert events(report, "revised")
    assert job.run(CUTS, STEPS, report="resumed", saves=True) == [0, 0]
    resumed = losses(job.report("resumed"))
    assert min(resumed) == STEPS // 2 + 1
    assert losses(report) | resumed == undisturbed


def offloading(plan: HybridPlan, num_bytes: int) -> Revision:
    """Revision with activations in the memory of the machine."""
    revision = revision_of(plan, (0, 3, 5))
    first, last = revision.plan.stages
    away: dict[str, Any] = {"offloaded_bytes": num_bytes, "host_bytes": num_bytes}
    first = replace(first, offloaded_layers=(1,), **away)
    return replace(revision, plan=replace(revision.plan, stages=(first, last)))


BAD: dict[str, tuple[Callable[[HybridPlan], Revision], str]] = {
    "another world": (
        lambda plan: revision_of(
            replace(plan, micro_batch=1, num_micro_batches=8), (0, 3, 5)
        ),
        "follows another plan than revision 1, which runs",
    ),
    "a full host": (
        lambda plan: offloading(plan, 2**52),
        "optimizers or activations in host memory, which takes 4194304.00 GiB of ",
    ),
    "a plan that does not run": (
        lambda plan: revision_of(revision_of(plan, (0, 3, 5)).plan, (0, 2, 5)),
        "follows another plan than revision 1, which runs",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_revision_that_cannot_be_followed(
    job: Job, undisturbed: dict[int, float], name: str
) -> None:
    """The plan stays; all ranks report why."""
    make, reason = BAD[name]
    revision = make(plan_for(CUTS))
    report = run_with(job, lambda _: [revision])
    assert losses(report) == undisturbed
    assert not events(report, "revised")
    for rank in range(2):
        last = observed(report, rank)[-1]
        assert last.refused_revision == revision.plan.revision
        assert reason in last.refusal
        assert last.revision == 1


def test_what_is_no_revision_is_left(job: Job, undisturbed: dict[int, float]) -> None:
    """It is reported, and one that follows is applied."""

    def appears(plan: HybridPlan) -> list[Document]:
        return [a_plan(), revision_of(plan, (0, 3, 5))]

    report = run_with(job, appears)
    assert losses(report) == undisturbed
    assert events(report, "revised")
    [text, _] = [line["message"] for line in events(report, "unread")]
    assert text.endswith("Revision.kind: got 'HybridPlan', allowed is Revision")


class Pod:
    """Answers reports of its rank with a revision, as the operator does."""

    def __init__(self, path: Path, revision: Revision) -> None:
        """Put the revision into a file."""
        self.path, self.revision = path, revision

    def observe(self, reason: str) -> None:
        """Take a report."""
        assert reason == "short"
        save(self.path, self.revision)


def wait_for_one(folder: Path, plan: HybridPlan, revision: Revision) -> int:
    """Wait before the first step, as the rank of a pod; the newest revision then.

    The device of rank 0 is smaller than its stage may need.
    """
    rank = dist.get_rank()
    peak = plan.stages[rank].peak()
    assert peak is not None
    path = folder / f"{rank}.json"
    given: dict[str, Any] = {
        "assignment": None,
        "trainer": SimpleNamespace(world=SimpleNamespace(stage=rank)),
        "checkpoints": None,
        "reporter": Pod(path, revision),
        "warn": print,
    }
    control = Control(timedelta(seconds=60))
    waiting = Revisions(path=path, wait_s=20.0, plan=plan, control=control, **given)
    stop: Any = SimpleNamespace(is_set=False)
    capacity_bytes = peak.device.upper_bytes - 1 if rank == 0 else 2**62
    waiting.wait_if_short(capacity_bytes, stop)
    return waiting.newest


def test_all_pods_ask_for_a_revision_that_one_of_them_waits_for(tmp_path: Path) -> None:
    """It comes in the answer to the reports of each."""
    plan = a_plan()
    found = run_ranks(wait_for_one, 2, tmp_path, plan, a_revision(plan))
    assert found == [2, 2]
