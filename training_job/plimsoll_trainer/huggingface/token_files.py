"""Texts as token ids in files, which all ranks of a machine read out of its page cache.

    documents, read by `datasets`, or an array  ->  tokens of all, one after the other
                                                    whether each counts for the loss
                                                    end of each document

They are made once for the same data and tokenizer, and lie in the cache of the user
(`PLIMSOLL_CACHE`, else that of the system). Called by `samples`.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plimsoll_planner.cache_folder import cache_folder
from plimsoll_planner.pod_names import CACHE_VARIABLE
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.huggingface.documents import DataSource, rows_of
from plimsoll_trainer.huggingface.locking import one_at_a_time
from plimsoll_trainer.huggingface.tokenizing import (
    Tokenizer,
    Tokens,
    check_known,
    digest_of_tokenizer,
)

LAYOUT = 1
"""Of the files; those of another one are made anew."""
TOKENS, COUNTS, ENDS = "tokens", "counts", "ends"
"""Files of one data set."""


@dataclass(frozen=True, eq=False, slots=True)
class TokenFiles:
    """Tokens of a data set, mapped into memory."""

    tokens: NDArray[np.int32]
    """Of all documents, one after the other: [tokens]."""
    counts: NDArray[np.bool_]
    """Whether each counts for the loss, where it is a target: [tokens]."""
    ends: NDArray[np.int64]
    """Index behind the last token of each document: [documents]."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenSource:
    """Data, and the tokenizer that it is read with."""

    data: DataSource
    tokenizer: Path
    """Folder of it."""
    vocabulary: int
    """Tokens that the model knows."""
    trust_remote_code: bool = False
    """Code that comes with the tokenizer may be run."""

    def open(self) -> TokenFiles:
        """Map the tokens into memory; they are made if nobody has yet.

        Raises:
            WorkloadError: the data cannot be read, or has no tokens.
        """
        arrays = self.data.arrays
        if len(arrays) == 1:
            return array_tokens(token_array(arrays[0], self.vocabulary))
        folder = tokens_folder() / self.digest()
        with locked(folder.with_suffix(".lock")):
            if not folder.is_dir():
                self._make(folder)
        return TokenFiles(
            tokens=np.memmap(folder / TOKENS, dtype=np.int32, mode="r"),
            counts=np.memmap(folder / COUNTS, dtype=np.bool_, mode="r"),
            ends=np.memmap(folder / ENDS, dtype=np.int64, mode="r"),
        )

    def digest(self) -> str:
        """Name of the files: of the same data and tokenizer they are the same."""
        files = self.data.files
        states = [file.stat() for file in files]
        known = {
            "layout": LAYOUT,
            "data": asdict(self.data),
            "files": [str(file.resolve()) for file in files],
            "states": [(one.st_size, one.st_mtime_ns) for one in states],
            "tokenizer": digest_of_tokenizer(self.tokenizer),
            "vocabulary": self.vocabulary,
            "trust_remote_code": self.trust_remote_code,
        }
        return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:32]

    def _make(self, folder: Path) -> None:
        """Write the tokens, all or nothing."""
        documents = self._documents()
        partial = folder.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            write(documents, partial)
            if not (partial / TOKENS).stat().st_size:
                raise WorkloadError(f"{self.data.name} has no text: give some")
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def _documents(self) -> Iterator[Tokens]:
        """Tokens of each document, in order.

        Raises:
            WorkloadError: there is no tokenizer of the model.
        """
        if arrays := self.data.arrays:
            return documents_in(token_array(one, self.vocabulary) for one in arrays)
        tokenizer = Tokenizer(
            self.tokenizer, self.vocabulary, trust_remote_code=self.trust_remote_code
        )
        return tokenizer.documents(rows_of(self.data, tokens_folder()), self.data)


def write(documents: Iterable[Tokens], folder: Path) -> None:
    """Write the tokens of documents, which need not all be in memory."""
    end = 0
    with (
        (folder / TOKENS).open("wb") as tokens,
        (folder / COUNTS).open("wb") as counts,
        (folder / ENDS).open("wb") as ends,
    ):
        for document in documents:
            if not document.ids.size:
                continue
            tokens.write(document.ids.tobytes())
            counts.write(document.counts.tobytes())
            end += document.ids.size
            ends.write(np.int64(end).tobytes())


def token_array(path: Path, vocabulary: int) -> NDArray[Any]:
    """Token ids in an array, mapped into memory: [tokens] or [documents, tokens].

    Raises:
        WorkloadError: it is no array of token ids.
    """
    try:
        found: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise WorkloadError(f"{path}: no array of token ids: {error}") from error
    if found.ndim not in (1, 2) or found.dtype.kind not in "iu" or not found.size:
        raise WorkloadError(
            f"{path} has {found.dtype} of shape {list(found.shape)}: give token ids, "
            "whole numbers, as [tokens] or [documents, tokens]"
        )
    check_known(found, vocabulary, str(path))
    return found


def array_tokens(found: NDArray[Any]) -> TokenFiles:
    """Tokens that lie in an array already: one long document, or one in each row."""
    width = found.shape[-1]
    return TokenFiles(
        tokens=found.reshape(-1),
        counts=np.broadcast_to(np.True_, (found.size,)),
        ends=np.arange(width, found.size + 1, width),
    )


def documents_in(arrays: Iterable[NDArray[Any]]) -> Iterator[Tokens]:
    """Yield the documents of several arrays."""
    for array in arrays:
        for ids in np.atleast_2d(array):
            yield Tokens(ids.astype(np.int32), np.ones(ids.size, np.bool_))


def tokens_folder() -> Path:
    """Folder of the cache."""
    return cache_folder() / "tokens"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Within it, no other process of this machine has the same lock.

    Raises:
        WorkloadError: the folder cannot be written to.
    """
    try:
        with one_at_a_time(path):
            yield
    except OSError as error:
        raise WorkloadError(
            f"tokens cannot be kept in {path.parent}: {error.strerror or error}; name "
            f"another folder by {CACHE_VARIABLE}"
        ) from error
