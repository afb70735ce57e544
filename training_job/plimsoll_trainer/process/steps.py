"""Steps of a rank as a session sees them, whatever engine runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from plimsoll_trainer.checkpoint.saved_state import SavedState
from plimsoll_trainer.engine.control import Control
from plimsoll_trainer.engine.loading import Key, Loader
from plimsoll_trainer.engine.pass_timing import PassTimer
from plimsoll_trainer.engine.training import StepResult
from plimsoll_trainer.engine.world import World
from plimsoll_trainer.process.evaluations import Evaluate
from plimsoll_trainer.workload import Workload


class Steps(Protocol):
    """The work of one rank; `engine.training.Trainer` is one."""

    workload: Workload
    world: World
    micro_batch: int
    """b, samples."""
    num_micro_batches: int
    """M, of this replica in a step."""
    loader: Loader
    """Of the samples of this rank."""
    timer: PassTimer
    """Of its passes; without any where nothing is timed."""

    @property
    def takes_samples(self) -> bool:
        """Whether this rank needs inputs or targets."""
        ...

    def keys(self, steps: range) -> Iterator[Key]:
        """Yield the micro-batches that this rank takes in some steps, in order."""
        ...

    def run_step(self, step: int) -> StepResult:
        """Train on the global batch of one step; all ranks call it together."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Built:
    """What an engine has built of a rank."""

    steps: Steps
    state: SavedState
    evaluate: Evaluate
    check_replicas: Callable[[Control], None]
    """Raises `UnequalReplicasError` where ranks would train different models."""
    unpinned_bytes: int = 0
    """On the host, that a device could not reach by itself."""
