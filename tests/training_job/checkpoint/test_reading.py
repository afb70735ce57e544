"""Tensors are read through host memory, from files that are as they were written."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch.distributed.checkpoint.state_dict_saver import save

from plimsoll_trainer.checkpoint.flat_range import Box
from plimsoll_trainer.checkpoint.loader import Found, read_boxes
from plimsoll_trainer.checkpoint.manifest import describe_file
from plimsoll_trainer.emulated.device import EmulatedDevice
from plimsoll_trainer.errors import UnusableCheckpointError
from tests.support.ranks import run_on_device
from tests.training_job.checkpoint.test_manifest import a_manifest

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
VALUES = torch.arange(250_000, dtype=torch.float32)
FILE = "__0_0.distcp"


@pytest.fixture
def saved(tmp_path: Path) -> Found:
    """A checkpoint that torch wrote, with a manifest of its only file."""
    save({"values": VALUES, "other": -VALUES}, checkpoint_id=tmp_path, no_dist=True)
    manifest = a_manifest(files=(describe_file(tmp_path / FILE),))
    return Found(folder=tmp_path, manifest=manifest)


def values_in(target: torch.Tensor) -> Box:
    """All of the values."""
    return Box(name="values", whole=(len(target),), offsets=(0,), tensor=target)


def read(found: Found) -> torch.Tensor:
    """Read one of both tensors."""
    target = torch.zeros_like(VALUES)
    read_boxes(found, [values_in(target)])
    return target


def bytes_of_a_read(found: Found) -> tuple[int, bool]:
    """Read 1 MB; return what the device counted, and whether it is the same."""
    device, target = EmulatedDevice(), torch.zeros(len(VALUES))
    device.reset_peak()
    before = device.current_bytes
    read_boxes(found, [values_in(target)])
    counted = device.peak_bytes - before
    return counted, bool((target == torch.arange(len(target))).all())


def test_a_tensor_is_read_as_torch_wrote_it(saved: Found) -> None:
    """Out of the middle of a file, by torch's own reader."""
    assert torch.equal(read(saved), VALUES)


def test_what_is_read_is_on_the_device_once(saved: Found) -> None:
    """Torch reads through memory of the host, of which nothing is counted."""
    counted, is_same = run_on_device(bytes_of_a_read, saved)
    assert is_same
    assert counted < 1024  # against 1,000,000: a number or two of torch's


def test_one_wrong_bit_is_found(saved: Found) -> None:
    """Torch compares no checksum; the manifest has one of each file."""
    path = saved.folder / FILE
    content = bytearray(path.read_bytes())
    content[content.find(VALUES.numpy().tobytes()[4:64])] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(UnusableCheckpointError, match="another checksum than when"):
        read(saved)


def test_bytes_that_end_early_are_found(saved: Found) -> None:
    """As where a disk has lost the end of a file."""
    path = saved.folder / FILE
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UnusableCheckpointError, match=r"bytes, not the \d+ written"):
        read(saved)
