"""Only a whole checkpoint of this model is read; a fault is reported by name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from plimsoll_trainer.checkpoint.loader import candidates_of
from tests.support.jobs import Job, events, losses, texts

pytestmark = pytest.mark.slow  # 24 s of CPU: each job trains twice
CUTS = (0, 2, 5)
OTHER = (0, 1, 4, 5)


def truncate(path: Path) -> None:
    """Cut a file's last bytes off."""
    path.write_bytes(path.read_bytes()[:-100])


def flip(path: Path) -> None:
    """Change one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def begin(job: Job) -> None:
    """Train four steps with checkpoints at 2 and 4."""
    job.run(CUTS, 2, saves=True, report="begun")
    job.run(CUTS, 4, saves=True, report="begun-on")


@pytest.mark.parametrize(
    ("file", "harm"),
    [
        ("__1_0.distcp", truncate),
        ("__0_0.distcp", flip),
        ("manifest.json", truncate),
        ("manifest.json", Path.unlink),
    ],
)
def test_a_corrupt_checkpoint_is_passed_over(
    file: str, harm: Callable[[Path], None], job: Job
) -> None:
    """The older one is used, and the corrupt one is set aside, not deleted."""
    begin(job)
    harm(job.checkpoints / "step-00000004" / file)
    job.run(OTHER, 5, saves=True, report="resumed")
    (event, *_) = events(job.report("resumed"), "resumed")
    assert event["step"] == 2
    assert (job.checkpoints / "step-00000004.aside-1").is_dir()
    job.run(CUTS, 5, report="whole")
    again = losses(job.report("begun"), job.report("resumed"))
    assert again == pytest.approx(losses(job.report("whole")), rel=1e-6)


def test_with_no_whole_checkpoint_nothing_starts(job: Job) -> None:
    """Training does not silently begin anew; the first line names the folder."""
    begin(job)
    for folder in job.checkpoints.glob("step-*"):
        truncate(folder / ".metadata")
    (line, *others) = texts(job.try_to_run(CUTS, 5, saves=True))
    newest = job.checkpoints / "step-00000004"
    assert line.startswith(
        f"UnusableCheckpointError: checkpoint {newest} is corrupt: .metadata"
    )
    assert "no older one that is whole: restore it, name another with" in line
    assert others == [line]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"depth": 4}, "it lacks layers.block.3."),
        ({"width": 32}, "is float32[64] in it, but float32[128] here"),
        ({"precision": "bf16"}, "is float32[64] in it, but bfloat16[64] here"),
        ({"tied": False}, "it lacks layers.head.token.weight"),
    ],
)
def test_a_checkpoint_of_another_model_is_refused(
    args: dict[str, Any], message: str, job: Job
) -> None:
    """By the first name, shape or type that differs, before anything is allocated."""
    job.run(CUTS, 2, saves=True)
    num_layers = args.get("depth", 3) + 2
    fields: dict[str, Any] = {"saves": True, "args": json.dumps(args)}
    ends = job.try_to_run((0, num_layers), 3, report="refused", **fields)
    (line,) = texts(ends)
    assert "is for another model: " in line
    assert message in line
    assert "pass the arguments it was trained with" in line
    (last,) = events(job.report("refused"), "observation")
    assert last["observation"]["peaks"] == []


def test_all_ranks_refuse_what_one_finds(job: Job) -> None:
    """None is left to wait for another, or takes it for lost."""
    job.run(CUTS, 2, saves=True, args='{"tied": false}')
    first, second = texts(job.try_to_run(CUTS, 3, saves=True))
    assert "it holds layers.head.token.weight, which this workload does not" in first
    assert second == first


def test_another_optimizer_is_found_when_its_state_is_read(job: Job) -> None:
    """The model is the same, so only reading finds it."""
    job.run(CUTS, 2, saves=True)
    ends = job.try_to_run(CUTS, 3, saves=True, entrypoint="tiny_model:with_momentum")
    first, second = texts(ends)
    assert "it holds optimizer.block.0.mlp.0.bias.exp_avg, which this work" in first
    assert second == first


def test_layers_that_the_workload_does_not_have_are_refused(job: Job) -> None:
    """A shorter model than was saved."""
    job.run((0, 3, 6), 2, saves=True, args='{"depth": 4}')
    (line, *_) = texts(job.try_to_run(CUTS, 3, saves=True))
    assert "block.3." in line
    assert "which this workload does not have" in line


def test_other_data_is_refused_unless_accepted(job: Job) -> None:
    """Another seed is another training."""
    job.run(CUTS, 2, saves=True)
    other = '{"seed": 1}'
    (line, *_) = texts(job.try_to_run(CUTS, 3, saves=True, args=other))
    assert "was trained with seed 0, but here it is 1: restore that, or go on" in line
    assert job.run(CUTS, 3, saves=True, args=other, accept_other_data=True) == [0, 0]


def test_an_older_one_may_be_chosen(job: Job) -> None:
    """Later ones of the same folder are then out of the way, for good."""
    begin(job)
    chosen = job.checkpoints / "step-00000002"
    job.run(CUTS, 3, saves=True, resume_from=chosen, report="chosen")
    assert [e["step"] for e in events(job.report("chosen"), "resumed")] == [2, 2]
    assert (job.checkpoints / "step-00000004.aside-1").is_dir()
    assert (job.checkpoints / "step-00000003").is_dir()


def test_where_a_job_begins_does_not_undo_its_progress(job: Job) -> None:
    """`--resume-from` another job's folder counts until this one has its own."""
    job.run(CUTS, 2, saves=True)
    other = job.folder / "other"
    shutil.move(job.checkpoints, other)
    fields: dict[str, Any] = {"saves": True, "resume_from": other}
    job.run(CUTS, 3, report="first", **fields)
    job.run(CUTS, 4, report="second", **fields)
    assert [e["step"] for e in events(job.report("first"), "resumed")] == [2, 2]
    assert [e["step"] for e in events(job.report("second"), "resumed")] == [3, 3]
    assert (other / "step-00000002").is_dir()


def test_a_checkpoint_past_the_last_step_is_refused(job: Job) -> None:
    """It would have to train backwards."""
    job.run(CUTS, 2, saves=True)
    (line, *_) = texts(job.try_to_run(CUTS, 1, saves=True))
    assert "step-00000002 is past --steps 1: give more steps, or an earlier" in line


def test_a_resume_from_nowhere_is_refused(job: Job) -> None:
    """A wrong path does not begin anew."""
    nowhere = job.folder / "nowhere"
    (line, *_) = texts(job.try_to_run(CUTS, 3, resume_from=nowhere))
    assert f"--resume-from {nowhere}: there is no committed checkpoint" in line


def test_candidates_are_the_newest_first(tmp_path: Path) -> None:
    """Own ones before those of elsewhere, unless one of the own is asked for."""
    own, other = tmp_path / "own", tmp_path / "other"
    for root in (own, other):
        for step in (1, 2):
            (root / f"step-0000000{step}").mkdir(parents=True)
    mine = [own / "step-00000002", own / "step-00000001"]
    assert candidates_of(own, None) == mine
    assert candidates_of(own, other) == mine
    assert candidates_of(own, mine[1]) == [mine[1]]
    assert candidates_of(tmp_path / "none", other / "step-00000001") == [
        other / "step-00000001"
    ]
    assert candidates_of(None, None) == []
