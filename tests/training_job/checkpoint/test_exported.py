"""Weights are written as a whole or not at all, and a job that fails in it goes on."""

from __future__ import annotations

import errno
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from tests.support.jobs import Job, events
from tests.support.ranks import Died

CUTS, STEPS = (0, 2, 5), 2


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
