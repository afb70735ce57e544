"""Whatever kills a rank, and whenever: nothing before the last checkpoint is lost."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("torch")

import torch.distributed as dist

from plimsoll_planner.exit_codes import ExitCode
from plimsoll_planner.records.engine import OptimizerHome, Sharding
from plimsoll_trainer.checkpoint.folders import step_of, steps_in
from plimsoll_trainer.checkpoint.manifest import fault_in, read_manifest
from plimsoll_trainer.checkpoint.saver import Saver
from plimsoll_trainer.process.options import Options
from tests.support.jobs import Job, Signal, events, losses, texts, train
from tests.support.ranks import Died, try_ranks

pytestmark = pytest.mark.slow
CUTS = (0, 1, 3, 5)
NUM_STEPS = 24
EVERY = 2
SAVING: dict[str, Any] = {"checkpoint_every": EVERY}


def latest(job: Job) -> int:
    """Last committed step, and see that every committed one is whole."""
    for folder in steps_in(job.checkpoints):
        manifest = read_manifest(folder)
        assert fault_in(folder, manifest.files) is None
    return max(map(step_of, steps_in(job.checkpoints)), default=0)


def test_kills_lose_at_most_the_steps_since_the_last_checkpoint(job: Job) -> None:
    """Ranks die by SIGKILL at random moments.

    Every step saves or is the one between two saves. After each death the committed
    folders are whole and training goes on from the latest one; in the end every loss
    equals that of a run that nobody disturbed, and nothing half-written is left.
    """
    draw = random.Random(1)  # noqa: S311 - moments of death
    job.run(CUTS, NUM_STEPS, report="whole")
    reports: list[Path] = []
    for attempt in range(1, 12):
        committed = latest(job)
        kill = Signal(number=signal.SIGKILL, delay_s=draw.uniform(0.3, 1.3))
        dies = {draw.randrange(3): kill}
        ends = job.try_to_run(
            CUTS,
            NUM_STEPS,
            report=f"attempt-{attempt}",
            saves=True,
            checkpoint_every=EVERY,
            attempt=attempt,
            signals=dies if attempt < 6 else None,
        )
        reports.append(job.report(f"attempt-{attempt}"))
        resumed = events(reports[-1], "resumed") if reports[-1].exists() else []
        assert {line["step"] for line in resumed} <= {committed} - {0}
        if ends == [0, 0, 0]:
            break
    else:
        pytest.fail("the job never came to an end")
    assert len(reports) > 1
    assert losses(*(r for r in reports if r.exists())) == losses(job.report("whole"))
    left = [path.name for path in job.checkpoints.glob("step-*")]
    assert len(left) == 2
    assert all("." not in name for name in left)


def train_until(folder: Path, options: Options, rank: int, moment: str) -> int:
    """Be a rank; one dies as it comes to a moment of the third save."""
    begin = getattr(Saver, moment)

    def die_or_begin(saver: Saver, *args: Any) -> Any:
        if saver._num_saves == 3 and dist.get_rank() == rank:
            os.kill(os.getpid(), signal.SIGKILL)
        return begin(saver, *args)

    with mock.patch.object(Saver, moment, die_or_begin):
        return train(folder, options)


@pytest.mark.parametrize(
    ("rank", "moment", "left"),
    [
        (1, "_publish", {"__1_0.distcp"}),
        (0, "_commit", {"__0_0.distcp", ".rank-0.3.done"}),
    ],
)
def test_a_kill_within_a_save_costs_the_steps_since_the_one_before(
    rank: int, moment: str, left: set[str], job: Job
) -> None:
    """When a rank has written its part, and when all parts are to be committed.

    What the save in progress leaves is there, so the kill fell within it, and is gone
    once the next attempt has taken over.
    """
    options = job.options(CUTS, NUM_STEPS, report="begun", saves=True, **SAVING)
    ends = try_ranks(train_until, [0] * 3, job.folder, options, rank, moment)
    assert [isinstance(end, Died) for end in ends] == [True] * 3
    (partial,) = job.checkpoints.glob("*.partial-1")
    assert left <= {path.name for path in partial.iterdir()}
    committed = latest(job)
    assert len(steps_in(job.checkpoints)) == 2
    assert partial.name > f"step-{committed:08d}"
    job.run(CUTS, NUM_STEPS, report="resumed", saves=True, attempt=2, **SAVING)
    job.run(CUTS, NUM_STEPS, report="whole")
    again = losses(job.report("resumed"))
    assert min(again) == committed + 1
    begun = losses(job.report("begun"))
    assert begun | again == losses(job.report("whole"))
    assert not list(job.checkpoints.glob("*.partial-*"))


DIVIDED: dict[str, Any] = {
    "plan": {
        "replicas": 3,
        "of_stages": ({"sharding": Sharding.OPTIMIZER},),
        "global_batch": 12,
    },
    "args": '{"precision": "bf16"}',
}
ON_HOST = {"sharding": Sharding.OPTIMIZER, "optimizer_home": OptimizerHome.HOST}


def test_a_kill_within_a_divided_save_leaves_the_one_before(job: Job) -> None:
    """A part of every tensor is missing, and nothing of it is read.

    The next attempt goes on from the checkpoint before, whose parts are all there. That
    one was written with the optimizer on the host, and is read with it on the device.
    """
    cuts = (0, 5)
    fields = SAVING | DIVIDED
    on_host = fields | {"plan": fields["plan"] | {"of_stages": (ON_HOST,)}}
    options = job.options(cuts, NUM_STEPS, report="begun", saves=True, **on_host)
    ends = try_ranks(train_until, [0] * 3, job.folder, options, 2, "_publish")
    assert [isinstance(end, Died) for end in ends] == [True] * 3
    committed = latest(job)
    assert len(steps_in(job.checkpoints)) == 2
    assert list(job.checkpoints.glob("*.partial-1"))
    job.run(cuts, NUM_STEPS, report="resumed", saves=True, attempt=2, **fields)
    job.run(cuts, NUM_STEPS, report="whole", **DIVIDED)
    again = losses(job.report("resumed"))
    assert min(again) == committed + 1
    assert losses(job.report("begun")) | again == losses(job.report("whole"))


def test_the_other_ranks_end_when_one_is_killed(job: Job) -> None:
    """They say in which phase they lost a rank, and that the first one says why."""
    kill = Signal(number=signal.SIGKILL, from_first_step=True)
    ends = job.try_to_run(CUTS, 10_000, signals={1: kill})
    lines = texts(ends)
    assert len(lines) == 3
    assert lines[1].startswith("ended without a word")
    for text in (lines[0], lines[2]):
        assert "LostRankError: another rank went away in " in text
        assert "the first rank that failed says why" in text


def test_the_other_ranks_end_when_one_is_silent(job: Job) -> None:
    """A rank that is stopped, as on a node that froze, is waited for no longer."""
    freeze = Signal(number=signal.SIGSTOP, from_first_step=True)
    ends = job.try_to_run(CUTS, 10_000, timeout_s=2.0, signals={1: freeze})
    lines = [text for text in texts(ends) if "LostRankError" in text]
    assert lines


@pytest.mark.parametrize(("rank", "delay_s"), [(1, 0.0), (2, 0.3)])
def test_sigterm_to_one_rank_saves_on_all(rank: int, delay_s: float, job: Job) -> None:
    """All ranks save at the same step and say so by their exit code.

    Also before the first step (delay 0), and with a save under way.
    """
    term = Signal(number=signal.SIGTERM, delay_s=delay_s, from_first_step=delay_s > 0)
    ends = job.try_to_run(
        CUTS,
        10_000,
        report="begun",
        saves=True,
        checkpoint_every=EVERY,
        signals={rank: term},
    )
    assert ends == [ExitCode.CHECKPOINTED] * 3
    step = latest(job)
    done = losses(job.report("begun")) if delay_s else {}
    assert step == len(done)
    job.run(CUTS, step + 2, report="whole")
    job.run(CUTS, step + 2, report="resumed", saves=True)
    again = done | losses(job.report("resumed"))
    assert again == losses(job.report("whole"))


def test_sigterm_without_a_folder_is_no_success(job: Job) -> None:
    """Nothing is saved, so the exit code does not claim it, and the line says how."""
    ends = job.try_to_run(CUTS, 10_000, signals={0: Signal(number=signal.SIGTERM)})
    lines = texts(ends)
    assert len(lines) == 3
    assert "stopped before step 1 as asked, and nothing is saved" in lines[0]
    assert "give --checkpoint-dir" in lines[0]
