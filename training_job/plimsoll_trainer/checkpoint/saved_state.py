"""State of a rank as saving and resuming see it, whatever engine holds it.

    StageState      layers of a pipeline's stage
    placed          operators of a graph (`plimsoll_trainer.placed.checkpoint`)

Both have the same names, so a checkpoint of one is read by the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch

from plimsoll_trainer.checkpoint.flat_range import Box
from plimsoll_trainer.checkpoint.loader import Found, load_state
from plimsoll_trainer.checkpoint.manifest import (
    SavedScale,
    saved_scale,
    take_over_scale,
)
from plimsoll_trainer.checkpoint.state import RankState
from plimsoll_trainer.engine.training import Trainer


class SavedState(Protocol):
    """State of a rank between two steps."""

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""
        ...

    @property
    def loss_scale(self) -> SavedScale | None:
        """Scale of the loss as it is now; None: it is not scaled."""
        ...

    def own_boxes(self) -> Iterator[Box]:
        """Yield what this rank saves now; over all ranks every number occurs once."""
        ...

    def read(self, found: Found) -> None:
        """Read what this rank holds, in place.

        Raises:
            UnusableCheckpointError: it was written for another model, or is broken.
            CheckpointError: it cannot be read.
        """
        ...


@dataclass(frozen=True, slots=True)
class StageState:
    """State of a pipeline's stage; its layers may move between two saves."""

    trainer: Trainer

    @property
    def device(self) -> torch.device:
        """See `SavedState`."""
        return self.trainer.world.device

    @property
    def loss_scale(self) -> SavedScale | None:
        """See `SavedState`."""
        return saved_scale(self.trainer)

    def own_boxes(self) -> Iterator[Box]:
        """See `SavedState`."""
        return RankState(self.trainer).own_boxes()

    def read(self, found: Found) -> None:
        """See `SavedState`."""
        names = [layer.name for layer in self.trainer.workload.layers]
        load_state(found, RankState(self.trainer), names)
        take_over_scale(self.trainer, found.manifest.loss_scale)
