"""Reads torch's checkpoint files through host memory that no device counts.

In: a plan of torch's that says which tensor lies where. Out: values in the tensors that
training uses. Called by `loader`. What `torch.save` wrote is a zip archive, which
Python's own module reads piece by piece and compares with its checksums.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem
from torch.futures import Future


class HostReader(FileSystemReader):
    """Reads torch's files through host memory that no device counts."""

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read the items of a plan, file by file."""
        by_file: dict[str, list[ReadItem]] = {}
        for item in plan.items:
            place = self.storage_data[item.storage_index].relative_path
            by_file.setdefault(place, []).append(item)
        for name, items in by_file.items():
            with (Path(self.path) / name).open("rb") as file:
                for item in items:
                    self._read_item(file, item, planner)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _read_item(self, file: IO[bytes], item: ReadItem, planner: LoadPlanner) -> None:
        """Read one tensor, or the part of one that is asked for."""
        target = planner.resolve_tensor(item).detach()
        place = self.storage_data[item.storage_index]
        part = io.BufferedReader(FilePart(file, place.offset, place.length))
        with stored_bytes(part) as (record, size):
            buffer = np.empty(size, dtype=np.uint8)
            read_all(record, buffer.data)
        whole = torch.from_numpy(buffer).view(target.dtype)
        whole = whole.view(self._stored_shape(planner, item))
        for dim, (start, length) in enumerate(
            zip(item.storage_offsets, item.lengths, strict=True)
        ):
            whole = whole.narrow(dim, start, length)
        target.copy_(whole)
        planner.commit_tensor(item, target)

    @staticmethod
    def _stored_shape(planner: LoadPlanner, item: ReadItem) -> torch.Size:
        """Return the shape of the stored part that an item reads from."""
        metadata: Metadata = planner.metadata  # type: ignore[attr-defined]
        entry: Any = metadata.state_dict_metadata[item.storage_index.fqn]
        offset = item.storage_index.offset
        chunks = [c for c in entry.chunks if offset is None or c.offsets == offset]
        return torch.Size(chunks[0].sizes)


class FilePart(io.RawIOBase):
    """A part of a file, as a file."""

    def __init__(self, file: IO[bytes], start: int, size: int) -> None:
        """Read `size` bytes of a file from `start` on."""
        self._file, self._start, self._size = file, start, size
        self._place = 0

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def seekable(self) -> bool:
        """Tell that it can be read in any order."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}
        self._place = max(0, base[whence] + offset)
        return self._place

    def readinto(self, buffer: Any) -> int:
        """Read what there is, up to the length of the buffer."""
        count = max(0, min(len(buffer), self._size - self._place))
        self._file.seek(self._start + self._place)
        found = self._file.read(count)
        buffer[: len(found)] = found
        self._place += len(found)
        return len(found)


@contextmanager
def stored_bytes(part: IO[bytes]) -> Iterator[tuple[IO[bytes], int]]:
    """Open the bytes of a tensor inside what `torch.save` wrote; checks their CRC."""
    with zipfile.ZipFile(part) as archive:
        entry = next(e for e in archive.infolist() if e.filename.endswith("/data/0"))
        with archive.open(entry) as record:
            yield record, entry.file_size


def read_all(record: IO[bytes], into: memoryview) -> None:
    """Fill a buffer, and read on to the end, where the checksum is compared."""
    done = 0
    while done < len(into):
        block = record.read(min(len(into) - done, 2**22))
        if not block:
            raise zipfile.BadZipFile("a tensor ends early")
        into[done : done + len(block)] = block
        done += len(block)
    record.read()
