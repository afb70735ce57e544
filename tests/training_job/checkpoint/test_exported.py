"""Weights leave a checkpoint in the memory of the host, whoever writes them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch

from plimsoll_trainer.checkpoint.exported import checkpoint_at, export_weights
from plimsoll_trainer.emulated.device import is_on_host
from plimsoll_trainer.errors import CheckpointError
from plimsoll_trainer.workload import ReadLayer
from tests.support.jobs import Job
from tests.support.workloads import a_gpt


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
