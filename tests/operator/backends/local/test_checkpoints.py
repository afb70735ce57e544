"""Checkpoints as a home sees them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("torch")

from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from plimsoll_operator.backends.local.checkpoints import (
    check_room,
    checkpoint_bytes,
    newest_step,
)
from plimsoll_operator.errors import DiskFullError
from plimsoll_planner.records.document import from_text
from plimsoll_planner.records.model_profile import ModelProfile
from tests.support.home_runs import HomeRun


def tensor_bytes(checkpoint: Path) -> int:
    """Bytes of all tensors in a checkpoint, by torch's own index."""
    found = FileSystemReader(checkpoint).read_metadata().state_dict_metadata.values()
    tensors = [one for one in found if isinstance(one, TensorStorageMetadata)]
    return sum(one.size.numel() * one.properties.dtype.itemsize for one in tensors)


@pytest.mark.slow
@pytest.mark.parametrize("fixture", ["undisturbed", "own_model"])
def test_a_profile_tells_how_large_a_checkpoint_is(
    fixture: str, request: pytest.FixtureRequest
) -> None:
    """To the byte; tied parameters count once."""
    run: HomeRun = request.getfixturevalue(fixture)[0]
    plan = run.plan()
    assert plan is not None
    checkpoints = sorted(run.home.plan(plan.uid).checkpoints.glob("step-*"))
    with closing(sqlite3.connect(run.home.store)) as store:
        [(document,)] = store.execute("SELECT document FROM profile")
    told = checkpoint_bytes(from_text(document, ModelProfile, "profile"))
    assert told == tensor_bytes(checkpoints[-1])


def test_the_newest_that_is_whole_counts(tmp_path: Path) -> None:
    """What is half-written or set aside does not; there may be no folder at all."""
    assert newest_step(tmp_path / "none") is None
    assert newest_step(tmp_path) is None
    for name in ("step-00000020", "step-00000100", "step-00000300.aside-1", ".step-9"):
        (tmp_path / name).mkdir()
    assert newest_step(tmp_path) == 100


def test_a_disk_without_room_is_refused(tmp_path: Path) -> None:
    """With the folder, which may not be there yet, and what it has to hold."""
    folder = tmp_path / "not" / "there"
    check_room(folder, 1)
    with pytest.raises(DiskFullError, match=f"no room in {folder} for a checkpoint of"):
        check_room(folder, 2**62)
    assert not folder.exists()
