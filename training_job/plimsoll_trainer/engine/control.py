"""Agreement of the hosts of all ranks between steps, apart from training's groups.

A gloo group of its own, used by the main thread alone: to stop, to save, to choose a
checkpoint. It waits long where ranks may differ by the time a disk takes, and no longer
than training does where they may not.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TypeVar, cast

import torch
import torch.distributed as dist

T = TypeVar("T")

PATIENCE = timedelta(minutes=30)
"""For a rank that reads or writes a checkpoint."""
MOST_FLAGS = 4


class Control:
    """The group; every rank makes one, after `init_process_group`."""

    def __init__(self, step_timeout: timedelta) -> None:
        """Build the group; `step_timeout` is for a rank between two steps."""
        self.rank = dist.get_rank()
        self.num_ranks = dist.get_world_size()
        self._step_timeout = step_timeout
        group = dist.new_group(backend="gloo", timeout=PATIENCE)
        self._group = cast("dist.ProcessGroup", group)
        self._flags = torch.zeros(MOST_FLAGS + 1, dtype=torch.int32, device="cpu")

    def any_of(self, *flags: bool) -> tuple[bool, ...]:
        """Whether each flag is set on any rank."""
        found, _ = self.least_of(0, *flags)
        return found

    def least_of(self, number: int, *flags: bool) -> tuple[tuple[bool, ...], int]:
        """The same, and the least number of all ranks, in one exchange."""
        self._flags.zero_()
        self._flags[-1] = -number
        for place, flag in enumerate(flags):
            self._flags[place] = int(flag)
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.MAX
        options.timeout = self._step_timeout
        self._group.allreduce([self._flags], options).wait()
        *found, least = self._flags.tolist()
        return tuple(bool(flag) for flag in found[: len(flags)]), -least

    def gather(self, value: T) -> list[T]:
        """Value of every rank, by rank."""
        values: list[T | None] = [None] * self.num_ranks
        dist.all_gather_object(values, value, group=self._group)
        return cast("list[T]", values)

    def wait_for_all(self) -> None:
        """Wait until every rank is here, however long its disk takes."""
        dist.barrier(group=self._group)
