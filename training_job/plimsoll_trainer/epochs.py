"""Batches out of a data set of a known length, each sample once in an epoch.

    sample n of the whole training  ->  epoch n // length, place n % length
                                    ->  that place of the epoch's own order

The order follows from seed and epoch alone, so the position in the data is the step,
and training goes on from a checkpoint with the sample that comes next. In: a data set
with a length. Out: a `MakeBatch`. Called by workloads, those of `huggingface` as well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.evaluation import Samples, stacked
from plimsoll_trainer.random_keys import random_key
from plimsoll_trainer.streams import Stream
from plimsoll_trainer.workload import Batch, Workload


@dataclass(frozen=True, kw_only=True, slots=True)
class Epochs:
    """A `MakeBatch` that goes through a data set again and again."""

    samples: Samples
    """Alike on every rank, whenever it is asked."""
    seed: int = 0
    """Of the order."""
    shuffles: bool = True
    """Whether each epoch has an order of its own."""
    samples_per_step: int = 1
    """Of the global batch, which the trainer fills in."""

    def __call__(self, step: int, first: int, count: int) -> Batch:
        """Make samples of a step's global batch.

        Returns:
            Inputs and targets, of shape [count, ...] each.

        Raises:
            WorkloadError: the data set is empty.
        """
        begin = step * self.samples_per_step + first
        pairs = [self.samples[self.index(begin + place)] for place in range(count)]
        return stacked(pairs)

    def index(self, number: int) -> int:
        """Index in the data set of a sample, counted over the whole training.

        Raises:
            WorkloadError: the data set is empty.
        """
        length = len(self.samples)
        if not length:
            raise WorkloadError("the data set has no samples: give it some")
        epoch, place = divmod(number, length)
        if not self.shuffles:
            return place
        return int(order(length, random_key(self.seed, epoch))[place])


@lru_cache(maxsize=2)
def order(length: int, key: int) -> NDArray[np.int64]:
    """The order of an epoch: [length], in memory that no device counts."""
    return np.random.default_rng(key).permutation(length)


def in_steps_of(workload: Workload, samples_per_step: int) -> Workload:
    """The workload, whose data knows how many samples a step takes."""
    if not isinstance(workload.batch, Epochs | Stream):
        return workload
    batch = replace(workload.batch, samples_per_step=samples_per_step)
    return replace(workload, batch=batch)
