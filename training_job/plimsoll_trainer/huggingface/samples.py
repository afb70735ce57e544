"""Samples of a fixed length out of the tokens of documents.

    packed     documents one after the other, cut every `sequence_length` tokens: no
               place is lost, and a token may see the end of the document before
    apart      one document a sample, cut off or filled up; what is filled up does not
               count

In: a `TokenSource`. Out: a data set for `Epochs`. Called by `workloads`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from plimsoll_trainer.adapters.causal_lm import IGNORED
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.huggingface.documents import data_source
from plimsoll_trainer.huggingface.token_files import TokenFiles, TokenSource
from plimsoll_trainer.workload import Batch


@dataclass(frozen=True, kw_only=True)
class TokenSamples:
    """Samples of one data set; nothing is read before the first is asked for."""

    source: TokenSource
    sequence_length: int
    is_packed: bool
    padding: int = 0
    """Token behind the end of a document, where they are apart; it never counts."""

    @cached_property
    def _files(self) -> TokenFiles:
        """The tokens.

        Raises:
            WorkloadError: they are fewer than a sample takes, or none of them counts.
        """
        found, name = self.source.open(), self.source.data.name
        if self.is_packed and found.tokens.size <= self.sequence_length:
            raise WorkloadError(
                f"{name} has {found.tokens.size} tokens, and a packed "
                f"sample takes {self.sequence_length + 1}: give more text, a lower "
                "sequence_length, or packing: false"
            )
        made = (self._sample(found, index) for index in range(self._number(found)))
        if all((targets == IGNORED).all() for _, targets in made):
            raise WorkloadError(
                f"{name} has no token that counts in its samples of "
                f"{self.sequence_length}: give labels other than {IGNORED}, or a "
                "higher sequence_length if completions are cut off"
            )
        return found

    def _number(self, files: TokenFiles) -> int:
        """Number of samples."""
        if not self.is_packed:
            return int(files.ends.size)
        return int((files.tokens.size - 1) // self.sequence_length)

    def _sample(self, files: TokenFiles, index: int) -> Batch:
        """Inputs and targets of one sample."""
        first, length = index * self.sequence_length, self.sequence_length
        end = first + length + 1
        if not self.is_packed:
            ends = files.ends
            first = int(ends[index - 1]) if index else 0
            end = min(int(ends[index]), first + length + 1)
        tokens = np.full(length + 1, self.padding, np.int64)
        targets = np.full(length + 1, IGNORED, np.int64)
        here, counts = files.tokens[first:end], files.counts[first:end]
        tokens[: here.size] = here
        targets[: here.size] = np.where(counts, here, IGNORED)
        return torch.from_numpy(tokens[:-1]), torch.from_numpy(targets[1:])

    def __len__(self) -> int:
        """Number of samples in an epoch."""
        return self._number(self._files)

    def __getitem__(self, index: int) -> Batch:
        """Inputs and targets of one sample, both int64 of shape [sequence].

        Raises:
            IndexError: there is none; a tail that fills no sample is left out.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        return self._sample(self._files, index)


def samples_of(
    data: object,
    *,
    tokenizer: Path,
    vocabulary: int,
    sequence_length: int,
    is_packed: bool,
    trust_remote_code: bool = False,
) -> TokenSamples:
    """Samples of data as an entry point's arguments name it.

    Args:
        data: a path, several, or fields (`documents.data_source`).
        tokenizer: folder of it.
        vocabulary: tokens that the model knows.
        sequence_length: tokens in a sample.
        is_packed: whether documents follow each other in a sample.
        trust_remote_code: whether code that comes with the tokenizer may be run.

    Raises:
        WorkloadError: the data is named in no way that is known.
    """
    source = TokenSource(
        data=data_source(data),
        tokenizer=tokenizer,
        vocabulary=vocabulary,
        trust_remote_code=trust_remote_code,
    )
    return TokenSamples(
        source=source, sequence_length=sequence_length, is_packed=is_packed
    )
