"""Batches out of a data set of a known length."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from plimsoll_trainer.epochs import Epochs, in_steps_of
from plimsoll_trainer.errors import WorkloadError
from tests.support.workloads import a_killer


@dataclass(frozen=True)
class Numbers:
    """Samples that are their own index."""

    length: int

    def __len__(self) -> int:
        """How many."""
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Index and its double."""
        return torch.tensor([index]), torch.tensor(2 * index)


def seen(epochs: Epochs, num_steps: int) -> list[int]:
    """Samples of some steps, in order."""
    count = epochs.samples_per_step
    return [
        index
        for step in range(num_steps)
        for index in epochs(step, 0, count)[0].flatten().tolist()
    ]


def test_each_sample_is_seen_once_an_epoch() -> None:
    """In another order each time, also where steps do not divide the epoch."""
    epochs = Epochs(samples=Numbers(10), seed=3, samples_per_step=4)
    found = seen(epochs, 5)
    first, second = found[:10], found[10:]
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second
    assert first != list(range(10))
    assert seen(Epochs(samples=Numbers(10), seed=4, samples_per_step=4), 5) != found


def test_the_order_of_the_data_may_stay() -> None:
    """Without shuffling."""
    epochs = Epochs(samples=Numbers(5), shuffles=False, samples_per_step=2)
    assert seen(epochs, 4) == [0, 1, 2, 3, 4, 0, 1, 2]


def test_a_part_of_a_step_is_that_part() -> None:
    """Whoever asks for it, and in whatever pieces; targets go with their inputs."""
    epochs = Epochs(samples=Numbers(10), samples_per_step=6)
    inputs, targets = epochs(3, 0, 6)
    parts = [epochs(3, first, 2)[0] for first in (0, 2, 4)]
    assert torch.equal(torch.cat(parts), inputs)
    assert torch.equal(targets, 2 * inputs.flatten())


def test_no_samples_are_refused() -> None:
    """In one line."""
    with pytest.raises(WorkloadError, match="the data set has no samples"):
        Epochs(samples=Numbers(0))(0, 0, 1)


def test_other_batches_know_their_steps_themselves() -> None:
    """They are left as they are."""
    workload = a_killer()
    assert in_steps_of(workload, 8) is workload
