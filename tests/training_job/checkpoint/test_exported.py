"""Weights are written as a whole or not at all, in the memory of the host."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from plimsoll_trainer.checkpoint.exported import checkpoint_at, export_weights
from plimsoll_trainer.emulated.device import is_on_host
from plimsoll_trainer.errors import CheckpointError
from plimsoll_trainer.workload import ReadLayer
from tests.support.jobs import Job, events
from tests.support.ranks import Died
from tests.support.workloads import a_gpt

CUTS, STEPS = (0, 2, 5), 2


def test_an_export_takes_no_memory_of_the_device(job: Job) -> None:
    """A rank that is full writes its weights, though it converts all of them."""
    job.run((0, 5), 1, saves=True)
    seen = list[bool]()

    def write(read: ReadLayer, folder: Path) -> None:
        for layer in workload.layers:
            for tensor in read(layer.name).values():
                tensor.to(torch.float64)
                seen.append(is_on_host())
        (folder / "weights").write_text("all")

    workload = replace(a_gpt(depth=3, width=16), export=write)
    target = job.folder / "out"
    export_weights(workload, checkpoint_at(job.checkpoints), target)
    assert len(seen) > len(workload.layers)
    assert all(seen)
    assert not is_on_host()
    assert [file.name for file in target.iterdir()] == ["weights"]
    with pytest.raises(CheckpointError, match="is there already"):
        export_weights(workload, checkpoint_at(job.checkpoints), target)
    with pytest.raises(CheckpointError, match="/ is no folder that can be made"):
        export_weights(workload, checkpoint_at(job.checkpoints), Path("/"))


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (errno.ENOSPC, "no room (a file)"),
        (0, "ValueError: no room at {folder}/tiny_model.py:"),
    ],
    ids=["of the system", "of a library"],
)
def test_an_export_that_fails_loses_nothing(fault: int, reason: str, job: Job) -> None:
    """Whatever it raises is one line; the next attempt trains nothing, and exports."""
    fields: dict[str, Any] = {
        "entrypoint": "tiny_model:exporting",
        "export_weights": True,
    }
    (job.folder / "fault").write_text(str(fault))
    first, second = job.try_to_run(CUTS, STEPS, saves=True, **fields)
    assert isinstance(first, Died)
    target, saved = job.checkpoints / "weights", job.checkpoints / "step-00000002"
    begin = f"weights cannot be written to {target}: {reason.format(folder=job.folder)}"
    [failed] = events(job.report("report"), "failure")
    assert failed["message"].startswith(begin)
    assert failed["message"].endswith(f"; what is trained stays in {saved}")
    assert second == 0
    assert {path.name for path in job.checkpoints.glob("*weights*")} == set()

    (job.folder / "fault").unlink()
    assert job.run(CUTS, STEPS, saves=True, report="again", **fields) == [0, 0]
    [exported] = events(job.report("again"), "exported")
    assert (exported["step"], exported["folder"]) == (STEPS, str(target))
    assert not events(job.report("again"), "step")
    assert "norm.weight" in torch.load(target / "head.pt")
