"""Text for encoders: with words to fill in, or with a label for each sample.

In: a `TextCorpus`, bytes as tokens. Out: batches. A sample depends on (seed, step,
index) alone, so every rank makes the same ones. All of its tokens are text: there is no
padding, and no attention mask.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from plimsoll_trainer.adapters.losses import IGNORED
from plimsoll_trainer.adapters.text_corpus import TextCorpus
from plimsoll_trainer.random_keys import random_key
from plimsoll_trainer.workload import Batch

MASK = 256
"""Token that stands for a byte to be found; the first one that is no byte."""
NUM_TOKENS = MASK + 1
SHARE = 0.15
"""Of the tokens, that are to be found: BERT, arXiv 1810.04805, section 3.1."""
HIDDEN, REPLACED = 0.8, 0.1
"""Of these, those that the mask takes the place of, or a random byte; the others stay.
"""
POSITIVE = 2**63 - 1


def generator_of(*parts: int) -> torch.Generator:
    """Random numbers that follow from whole numbers alone."""
    return torch.Generator().manual_seed(random_key(*parts) & POSITIVE)


@dataclass(frozen=True, slots=True)
class MaskedText:
    """Samples of text, some of whose tokens are to be found."""

    corpus: TextCorpus

    def batch(self, step: int, first: int, count: int) -> Batch:
        """Make samples of a step's global batch.

        Returns:
            Inputs and targets, int64 [count, sequence]; a target is `IGNORED` where
            nothing is to be found. At least one token of a sample is.
        """
        text, _ = self.corpus.batch(step, first, count)
        rows = [
            self.masked(row, generator_of(self.corpus.seed, step, first + place, 1))
            for place, row in enumerate(text)
        ]
        inputs, targets = zip(*rows, strict=True)
        return torch.stack(inputs), torch.stack(targets)

    def masked(self, text: Tensor, generator: torch.Generator) -> Batch:
        """Inputs and targets of one sample, each of shape [sequence]."""
        number = max(1, math.floor(SHARE * len(text)))
        chosen = torch.randperm(len(text), generator=generator)[:number]
        lot = torch.rand(number, generator=generator)
        others = torch.randint(MASK, (number,), generator=generator)
        found = torch.where(lot < HIDDEN + REPLACED, others, text[chosen])
        found[lot < HIDDEN] = MASK
        targets = torch.full_like(text, IGNORED)
        targets[chosen] = text[chosen]
        return text.index_copy(0, chosen, found), targets


@dataclass(frozen=True, slots=True)
class LabelledText:
    """Samples of text; the label is the number of the file that one begins in."""

    corpus: TextCorpus
    num_classes: int

    def batch(self, step: int, first: int, count: int) -> Batch:
        """Make samples: inputs int64 [count, sequence], labels int64 [count]."""
        inputs, _ = self.corpus.batch(step, first, count)
        labels = [
            self.corpus.file_at(self.corpus.position(step, index)) % self.num_classes
            for index in range(first, first + count)
        ]
        return inputs, torch.tensor(labels)
