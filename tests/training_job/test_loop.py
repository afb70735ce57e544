"""What goes on around the steps of a job: evaluations, callbacks, early ends, data."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from plimsoll_planner.exit_codes import ExitCode
from tests.support.jobs import Job, events, losses
from tests.support.ranks import Died

pytestmark = pytest.mark.slow


def arguments(name: str, **args: Any) -> dict[str, Any]:
    """Options of a run of one entry point of the tiny model."""
    return {"entrypoint": f"tiny_model:{name}", "args": json.dumps(args)}


def evaluations(report: Path) -> dict[int, float]:
    """Losses of evaluations by step."""
    return {one["step"]: one["loss"] for one in events(report, "evaluation")}


def calls(job: Job) -> list[str]:
    """What callbacks were told."""
    return (job.folder / "calls.txt").read_text().splitlines()


def test_evaluations_come_every_few_steps_and_at_the_end(job: Job) -> None:
    """The same under two plans, and told to callbacks on rank 0 alone."""
    args = arguments("evaluated", callbacks=["tiny_model:Recorder"])
    assert job.run((0, 2, 5), 5, report="cut", **args) == [ExitCode.DONE] * 2
    assert calls(job) == [
        "start 0 5",
        *("step 1", "step 2", "evaluation 2"),
        *("step 3", "step 4", "evaluation 4"),
        *("step 5", "evaluation 5", "end 5 done"),
    ]
    assert job.run((0, 5), 5, report="whole", **args) == [ExitCode.DONE]
    cut, whole = (evaluations(job.report(name)) for name in ("cut", "whole"))
    assert list(cut) == [2, 4, 5]
    assert cut == pytest.approx(whole, rel=1e-6)
    assert cut[5] < cut[2]


def test_a_rate_falls_over_the_steps_of_the_job(job: Job) -> None:
    """A schedule that names no last step has that of the job."""
    found = []
    for name, numbers in (("job", {}), ("own", {"num_steps": 4})):
        args = arguments("falling", **numbers)
        assert job.run((0, 5), 4, report=name, **args) == [ExitCode.DONE]
        found.append(losses(job.report(name)))
    args = arguments("falling", num_steps=400)
    job.run((0, 5), 4, report="slow", **args)
    assert found[0] == found[1] != losses(job.report("slow"))


def test_a_job_that_gets_no_better_ends_as_done(job: Job) -> None:
    """It is saved, and whoever runs it again finds it done."""
    args = arguments("evaluated", patience=2, learning_rate=0.0)
    args |= {"saves": True, "checkpoint_every": 2}
    assert job.run((0, 2, 5), 50, report="stopped", **args) == [ExitCode.DONE] * 2
    report = job.report("stopped")
    assert max(losses(report)) == 6
    [end] = events(report, "stopped_early")
    assert (end["step"], end["best_step"]) == (6, 2)
    assert (job.checkpoints / "step-00000006").is_dir()
    assert job.run((0, 5), 50, report="again", **args) == [ExitCode.DONE]
    assert not losses(job.report("again"))
    assert not evaluations(job.report("again"))


def test_an_attempt_counts_on_from_its_checkpoint(job: Job) -> None:
    """The evaluation before it is the first of two that bring nothing."""
    args = arguments("evaluated", patience=2, learning_rate=0.0) | {"saves": True}
    job.run((0, 2, 5), 5, report="begun", **args)
    assert list(evaluations(job.report("begun"))) == [2, 4, 5]
    assert job.run((0, 5), 50, report="on", **args) == [ExitCode.DONE]
    assert not losses(job.report("on"))


def test_a_loss_that_is_not_finite_ends_the_job(job: Job) -> None:
    """With the step, and a checkpoint whose weights gave a loss."""
    args = arguments("lost_after", step=4)
    args |= {"saves": True, "checkpoint_every": 2, "keep": 9}
    assert job.run((0, 2, 5), 4, report="begun", **args) == [ExitCode.DONE] * 2
    for end in job.try_to_run((0, 2, 5), 9, **args):
        assert isinstance(end, Died)
        assert end.text.startswith("NoLossError: the loss of step 5 is nan, so ")
        assert f"last good checkpoint is {job.checkpoints}/step-00000002" in end.text
    failures = events(job.report("report"), "failure")
    assert [one["exit_code"] for one in failures] == [ExitCode.NO_LOSS] * 2
    assert list(losses(job.report("report"))) == [5]
    assert (job.checkpoints / "step-00000004.aside-1").is_dir()
    resumed = arguments("workload") | {"report": "resumed", "saves": True}
    assert job.run((0, 5), 5, **resumed) == [ExitCode.DONE]
    assert list(losses(job.report("resumed"))) == [3, 4, 5]


def test_an_evaluation_without_a_loss_ends_the_job(job: Job) -> None:
    """Its step has a loss: it is the one that made the weights what they are."""
    args = arguments("evaluated", every_steps=1, learning_rate=1e30)
    [end] = job.try_to_run((0, 5), 9, **args)
    assert isinstance(end, Died)
    assert re.match(
        r"NoLossError: the loss of the evaluation after step \d is (nan|inf), so "
        r"training stops: nothing was saved before it; lower ",
        end.text,
    )


def test_a_callback_that_raises_ends_the_job_by_its_name(job: Job) -> None:
    """In one line, with its place in the user's code."""
    args = arguments("workload", callbacks=["tiny_model:Failing"])
    [end] = job.try_to_run((0, 5), 9, **args)
    assert isinstance(end, Died)
    text = end.text.splitlines()[0]
    place = re.escape(f"{job.folder}/tiny_model.py")
    assert re.fullmatch(
        r"CallbackError: callback Failing raises OSError: no more of this at "
        rf"{place}:\d+ in on_step: mend it, or leave it out",
        text,
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_names_the_sample(job: Job, workers: int) -> None:
    """Wherever the samples are made."""
    args = arguments("made_ahead", batch="raising", workers=workers)
    [end] = job.try_to_run((0, 5), 9, **args)
    assert isinstance(end, Died)
    assert end.text.startswith(
        "TrainerError: batch(2, 4, 2) raises ValueError: no such row at "
    )
    assert list(losses(job.report("report"))) == [1, 2]


def test_samples_that_are_made_ahead_cost_no_time(job: Job) -> None:
    """Four micro-batches of 40 ms each; two processes make them while a step runs.

    Losses are the same to the bit, and so is what the device held.
    """
    found, seconds, peaks = {}, {}, {}
    for workers in (0, 2):
        args = arguments("made_ahead", batch="pausing", workers=workers)
        report = f"workers-{workers}"
        assert job.run((0, 5), 8, report=report, **args) == [ExitCode.DONE]
        found[workers] = losses(job.report(report))
        steps = [one["step_s"] for one in events(job.report(report), "step")]
        seconds[workers] = sorted(steps)[len(steps) // 2]
        end = events(job.report(report), "observation")[-1]["observation"]
        peaks[workers] = {p["phase"]: p["allocated_bytes"] for p in end["peaks"]}
    assert found[0] == found[2]
    assert seconds[0] > 0.16
    assert seconds[2] < 0.75 * seconds[0], seconds
    assert peaks[2]["backward"] == peaks[0]["backward"]


@pytest.mark.parametrize(("state", "workers"), [(False, 0), (True, 0), (True, 2)])
def test_a_stream_goes_on_where_it_was(job: Job, *, state: bool, workers: int) -> None:
    """Under another plan, behind the end of an epoch, as if nothing had happened."""
    args = arguments("streamed", state=state, workers=workers)
    job.run((0, 2, 5), 7, report="whole", **args)
    args |= {"saves": True}
    job.run((0, 5), 4, report="begun", **args, plan={"replicas": 2})
    job.run((0, 5), 7, report="resumed", **args)
    begun, resumed = (losses(job.report(name)) for name in ("begun", "resumed"))
    assert begun | resumed == pytest.approx(losses(job.report("whole")), rel=1e-5)
    assert list(resumed) == [5, 6, 7]
    manifest = json.loads((job.checkpoints / "step-00000004/manifest.json").read_text())
    assert bool(manifest["loop"].get("data")) == state
