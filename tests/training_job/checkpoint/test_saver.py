"""A save goes on beside the training, and fails alone."""

from __future__ import annotations

import re
import resource
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from plimsoll_planner.records.document import load
from plimsoll_trainer.checkpoint.folders import Folders, steps_in
from plimsoll_trainer.checkpoint.manifest import FILE, Manifest, identity_of
from plimsoll_trainer.checkpoint.saved_state import StageState
from plimsoll_trainer.checkpoint.saver import Saver
from plimsoll_trainer.engine.boundaries import boundaries_of
from plimsoll_trainer.engine.stage import StageSlice
from plimsoll_trainer.engine.training import Trainer
from plimsoll_trainer.engine.world import join_world
from plimsoll_trainer.process.options import Options
from tests.support.jobs import Job, events, losses, texts, train, train_on_a_full_disk
from tests.support.ranks import run_ranks, try_ranks
from tests.support.stores import TMPFS, on_own_mount
from tests.support.workloads import a_gpt

CUTS = (0, 2, 5)
LATE_BYTES = 8 * (1 + len(CUTS) - 1)
"""Sizes of one all_gather_object: a rank's own and one of each rank. gloo's threads let
them go a moment after the call has returned, with saves or without."""

EARLIER, LATER = f"sha256:{'0' * 64}", f"sha256:{'1' * 64}"


def peaks(report: Path) -> dict[tuple[int, str], int]:
    """Last reported peaks by rank and phase."""
    return {
        (line["rank"], peak["phase"]): peak["device_bytes"]
        for line in events(report, "observation")
        for peak in line["observation"]["peaks"]
    }


def test_saving_does_not_raise_the_peak_of_any_phase(job: Job) -> None:
    """Though a save is under way all the time; nor does a loss change by a bit.

    Equal but for what gloo's threads let go late.
    """
    job.run(CUTS, 8, report="without")
    job.run(CUTS, 8, report="with", saves=True, checkpoint_every=1)
    assert losses(job.report("with")) == losses(job.report("without"))
    without, found = peaks(job.report("without")), peaks(job.report("with"))
    saving = {place for place in found if place[1] == "checkpoint-save"}
    assert len(saving) == 2
    for place, peak in without.items():
        assert found[place] == pytest.approx(peak, abs=LATE_BYTES), place
    for rank, phase in saving:
        assert found[rank, phase] < found[rank, "backward"]


def test_saves_are_told_and_old_ones_go(job: Job) -> None:
    """Each commit is an event with its times; the last ones stay."""
    job.run(CUTS, 6, saves=True, checkpoint_every=2, keep=1)
    saves = events(job.report("report"), "checkpoint")
    assert {line["rank"] for line in saves} == {0, 1}
    assert max(line["step"] for line in saves) == 6
    assert [folder.name for folder in steps_in(job.checkpoints)] == ["step-00000006"]


def test_torchs_own_tools_read_it(job: Job) -> None:
    """The files are torch's: anyone can turn them into one file of weights."""
    job.run(CUTS, 2, saves=True)
    target = job.folder / "weights.pt"
    dcp_to_torch_save(job.checkpoints / "step-00000002", target)
    found = torch.load(target)
    assert found["layers.head.norm.weight"].shape == (16,)
    assert found["optimizer.embedding.token.weight.step"] == 2.0


def save_as_the_plan_changes(folder: Path) -> str:
    """Save one step of a small model; the plan that its checkpoint names."""
    workload, whole = a_gpt(depth=1), StageSlice(first_layer=0, end_layer=3)
    trainer = Trainer(
        workload,
        slices=[whole],
        boundaries=boundaries_of(workload, 1),
        num_micro_batches=1,
        world=join_world(1, 1, torch.device("cpu")),
    )
    trainer.run_step(0)
    saver = Saver(
        StageState(trainer),
        folders := Folders(folder, 1),
        rank=0,
        num_ranks=1,
        identity=identity_of(workload, 1),
        plan_digest=EARLIER,
        keep=1,
    )
    folders.open()
    saver.start(1)
    saver.plan_digest = LATER
    while saver.is_busy:
        time.sleep(0.001)
    assert saver.take_failure() is None
    return load(folders.committed(1) / FILE, Manifest).plan_digest


def test_a_checkpoint_names_the_plan_of_its_step(tmp_path: Path) -> None:
    """Though another one has taken its place before all is written."""
    assert run_ranks(save_as_the_plan_changes, 1, tmp_path) == [EARLIER]


def train_with_a_full_disk(
    folder: Path, options: Options, room: int, full: int = 1
) -> int:
    """Be a rank; after a step, one of them writes no file larger than the room."""

    def fill() -> None:
        while not losses(folder / "0.jsonl"):
            time.sleep(0.001)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    if dist.get_rank() == full:
        (folder / "0.jsonl").touch()
        threading.Thread(target=fill, daemon=True).start()
    return train(folder, options)


@pytest.mark.parametrize(
    ("room", "reason"), [(20_000, "File too large"), (0, "its disk has no room to say")]
)
def test_a_disk_that_is_full_leaves_nothing_behind(
    job: Job, room: int, reason: str
) -> None:
    """One rank cannot write: training goes on, and no folder stays, not even a part.

    Nobody waits for that rank, also where it has no room to say what failed.
    """
    options = job.options(CUTS, 6, saves=True, checkpoint_every=2, report="{rank}")
    ends = try_ranks(train_with_a_full_disk, [0, 0], job.folder, options, room)
    assert len(losses(job.report("0"))) == 6
    assert list(job.checkpoints.glob("step-*")) == []
    lines = texts(ends)
    assert len(lines) == 2
    assert f"checkpoint of step 6 was not saved: rank 1: {reason}" in lines[0]
    assert "checkpoint of step 6 was not saved: File too large" in lines[1]


def test_a_part_that_comes_after_the_failure_goes_as_well(job: Job) -> None:
    """Rank 0 removes what it could not finish; another one may still write there."""
    options = job.options(CUTS, 9, saves=True, checkpoint_every=1, report="{rank}")
    try_ranks(train_with_a_full_disk, [0, 0], job.folder, options, 0, 0)
    assert list(job.checkpoints.glob("step-*")) == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_is_trained_waits_for_room(job: Job) -> None:
    """Each save that finds none is reported; at the end the ranks wait, with a message.

    Once there is room they save, and are done: nothing is trained again. Nor is the
    room taken by parts of what could not be saved.
    """
    place = job.folder / "disk"
    place.mkdir()
    printed = on_own_mount(TMPFS, place, train_on_a_full_disk)
    assert printed.splitlines()[-2:] == ["left []", "exit [0, 0]"]
    report = job.report("report")
    unsaved = [e for e in events(report, "unsaved") if e["rank"] == 0]
    assert [e["step"] for e in unsaved] == [2, 4, 6]
    assert [e.get("waits", False) for e in unsaved] == [False, False, True]
    assert unsaved[0]["message"].endswith("; the one before it stays; training goes on")
    assert re.fullmatch(
        rf"no room in {place} for the checkpoint of step 6: it needs \d+ B, and "
        r"\d+ B are free; what is trained waits for room: make some",
        unsaved[2]["message"],
    )
    saved = [e["step"] for e in events(report, "checkpoint")]
    assert saved == [6, 6]
    assert [e["step"] for e in events(report, "step")] == [1, 2, 3, 4, 5, 6]


def train_beside_another_job(folder: Path, options: Options) -> int:
    """Be a rank; somebody else commits a later step after the first save."""
    root = options.checkpoint_dir or folder

    def intrude() -> None:
        while not steps_in(root):
            time.sleep(0.001)
        (root / "step-00000099").mkdir()

    if dist.get_rank() == 0:
        threading.Thread(target=intrude, daemon=True).start()
    return train(folder, options)


def test_another_jobs_later_steps_push_nothing_out(job: Job) -> None:
    """Ours are kept and are the latest; the other ones are set aside, not removed."""
    options = job.options(CUTS, 20, saves=True, checkpoint_every=2)
    assert try_ranks(train_beside_another_job, [0, 0], job.folder, options) == [0, 0]
    newest, _ = steps_in(job.checkpoints)
    assert newest.name == "step-00000020"
    assert [path.name for path in job.checkpoints.glob("step-00000099*")] == [
        "step-00000099.aside-1"
    ]


def test_a_training_that_was_taken_over_ends_at_its_next_save(job: Job) -> None:
    """On a node that nobody reached it would train on for nothing, perhaps for days."""
    job.checkpoints.mkdir()
    (job.checkpoints / ".attempt-9").touch()
    ends = job.try_to_run(CUTS, 10_000, saves=True, checkpoint_every=2)
    assert 2 <= len(losses(job.report("report"))) < 1000
    assert steps_in(job.checkpoints) == []
    assert "attempt 9 has taken over" in texts(ends)[0]
    assert "LostRankError" in texts(ends)[1]
