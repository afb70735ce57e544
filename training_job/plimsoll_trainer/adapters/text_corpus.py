"""Real text as byte-level tokens, cut into samples that any rank can make.

In: files, or the text that every Python installation carries (the standard library's
modules and licence). Out: batches of token ids 0 to 255 and targets, which are the ids
shifted by one. A sample depends on (seed, step, index) alone: there is no iterator, and
nothing to save but the step.

Nothing is held but the names and sizes of the files; a sample reads its bytes when it
is made, out of the page cache of the machine. The text is one sequence: the files in
order of their names, one after the other.
"""

from __future__ import annotations

import hashlib
import sysconfig
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

import torch

from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.random_keys import random_key
from plimsoll_trainer.workload import Batch

CHUNK_BYTES = 1 << 20


class TextCorpus:
    """Text files as samples of a fixed length."""

    def __init__(
        self,
        paths: str | Path | Sequence[str | Path] | None = None,
        *,
        sequence_length: int,
        seed: int = 0,
    ) -> None:
        """Look up the files and their sizes.

        Args:
            paths: files and folders, whose files are taken in order of their names;
                hidden ones are left out. None: the Python library's own text.
            sequence_length: tokens in a sample.
            seed: other seeds choose other samples.

        Raises:
            WorkloadError: a path is not there, or the text is shorter than a sample.
        """
        if paths is None:
            self.files = tuple(library_files())
        else:
            several = [paths] if isinstance(paths, (str, Path)) else paths
            self.files = tuple(
                file for path in several for file in files_at(Path(path))
            )
        self.sequence_length = sequence_length
        self.seed = seed
        self._ends = list(accumulate(file.stat().st_size for file in self.files))
        if self.num_tokens <= sequence_length:
            raise WorkloadError(
                f"the text has {self.num_tokens} bytes in {len(self.files)} files, but "
                f"a sample takes {sequence_length + 1}: give more text or a lower "
                "sequence_length"
            )

    @property
    def num_tokens(self) -> int:
        """Length of the whole text."""
        return self._ends[-1] if self._ends else 0

    def digest(self) -> str:
        """SHA-256 of the text; other text, other digest."""
        whole = hashlib.sha256()
        for file in self.files:
            with file.open("rb") as stream:
                while chunk := stream.read(CHUNK_BYTES):
                    whole.update(chunk)
        return whole.hexdigest()

    def batch(self, step: int, first: int, count: int) -> Batch:
        """Make samples of a step's global batch.

        Args:
            step: of the training.
            first: index of the first sample in the global batch.
            count: how many.

        Returns:
            Inputs and targets, int64 of shape [count, sequence].
        """
        width = self.sequence_length + 1
        text = bytearray()
        for index in range(first, first + count):
            text += self.read(self.position(step, index), width)
        tokens = torch.frombuffer(text, dtype=torch.uint8).view(count, width)
        return tokens[:, :-1].long(), tokens[:, 1:].long()

    def position(self, step: int, index: int) -> int:
        """Place in the text where a sample begins."""
        return random_key(self.seed, step, index) % (
            self.num_tokens - self.sequence_length
        )

    def file_at(self, place: int) -> int:
        """Number of the file that a place of the text lies in."""
        return bisect_right(self._ends, place)

    def read(self, start: int, length: int) -> bytes:
        """Read a piece of the text, over the borders of files.

        Raises:
            WorkloadError: a file is shorter than it was.
        """
        pieces = []
        place = bisect_right(self._ends, start)
        while length:
            offset = start - (self._ends[place - 1] if place else 0)
            wanted = min(length, self._ends[place] - start)
            with self.files[place].open("rb") as stream:
                stream.seek(offset)
                pieces.append(stream.read(wanted))
            if len(pieces[-1]) < wanted:
                raise WorkloadError(
                    f"{self.files[place]} is shorter than when training started: the "
                    "text must not change during a run"
                )
            start, length, place = start + wanted, length - wanted, place + 1
        return b"".join(pieces)


def library_files() -> Iterator[Path]:
    """Yield the standard library's licence and top modules, in order of their names."""
    folder = Path(sysconfig.get_path("stdlib"))
    names = ("*.py", "LICENSE*")
    yield from sorted(file for name in names for file in folder.glob(name))


def files_at(path: Path) -> Iterator[Path]:
    """Yield a file, or all files below a folder that are not hidden.

    Raises:
        WorkloadError: there is nothing of that name.
    """
    if path.is_file():
        yield path
        return
    if not path.is_dir():
        raise WorkloadError(f"text {str(path)!r} is neither a file nor a folder")
    found = {
        file.relative_to(path).as_posix(): file
        for file in path.rglob("*")
        if file.is_file()
        and not any(part.startswith(".") for part in file.relative_to(path).parts)
    }
    for name in sorted(found):
        yield found[name]
