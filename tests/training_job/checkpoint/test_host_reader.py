"""What `torch.save` wrote is read byte by byte, without torch, and checked."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch

from plimsoll_trainer.checkpoint.host_reader import FilePart, read_all, stored_bytes

VALUES = torch.arange(500, dtype=torch.float32)
BEFORE = b"another tensor"


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, int]:
    """A file that holds a tensor after something else, and the tensor's size in it."""
    into = io.BytesIO()
    torch.save(VALUES, into)
    path = tmp_path / "__0_0.distcp"
    path.write_bytes(BEFORE + into.getvalue() + b"and more")
    return path, len(into.getvalue())


def read(path: Path, size: int) -> torch.Tensor:
    """Read the tensor."""
    with path.open("rb") as file:
        part = io.BufferedReader(FilePart(file, len(BEFORE), size))
        with stored_bytes(part) as (record, num_bytes):
            buffer = bytearray(num_bytes)
            read_all(record, memoryview(buffer))
    return torch.frombuffer(buffer, dtype=torch.float32)


def test_a_part_of_a_file_is_read_as_torch_wrote_it(saved: tuple[Path, int]) -> None:
    """Torch's container is a zip archive with one entry for the bytes."""
    assert torch.equal(read(*saved), VALUES)


def test_one_wrong_bit_is_found(saved: tuple[Path, int]) -> None:
    """The archive carries a checksum of the bytes."""
    path, size = saved
    content = bytearray(path.read_bytes())
    place = content.find(VALUES.numpy().tobytes()[4:64])
    content[place] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(zipfile.BadZipFile, match="CRC"):
        read(path, size)


def test_bytes_that_end_early_are_found() -> None:
    """Where the archive says more than there is."""
    with pytest.raises(zipfile.BadZipFile, match="ends early"):
        read_all(io.BytesIO(b"abc"), memoryview(bytearray(4)))
