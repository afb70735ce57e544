"""State of a layer whose optimizer state replicas divide: what each number takes.

A replica steps on flat pieces of parameters. As the optimizer treats numbers alike, its
bytes grow with the numbers that the replica owns, whatever parameters they belong to:

    kept      what the trainer counts of a number; the rest is what was measured of the
              whole layer beyond it, such as counts of steps
    on top    of steps on N and on 2 N numbers, the difference over N: what a step takes
              once does not count. Of a matrix or a vector, whichever takes more, for
              an optimizer may treat them differently

In: parameters of a layer. Out: a `DividedState`. Called by the prober; each type of
number is tried once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from plimsoll_profiler.counting.meters import Bench
from plimsoll_profiler.probing.messages import DividedState
from plimsoll_profiler.probing.optimizer_steps import probe_steps
from plimsoll_trainer.engine.elementwise import bytes_per_number
from plimsoll_trainer.engine.flat_buffers import by_type, num_numbers
from plimsoll_trainer.workload import Workload

SHAPES = ((-1, 64), (-1,))
"""Of a matrix and of a vector."""
NUM_TRIED = 4096
"""Numbers in the smaller one: whole blocks of a GPU in every type."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NumberBytes:
    """Bytes that the optimizer takes for each number of one type."""

    kept: int
    on_top: int


class Divider:
    """State of layers by numbers, for one workload and on one bench."""

    def __init__(self, workload: Workload) -> None:
        """Try nothing yet."""
        self._workload = workload
        self._found: dict[torch.dtype, NumberBytes] = {}

    def state_of(
        self, parameters: Iterable[nn.Parameter], optimizer_bytes: int, bench: Bench
    ) -> DividedState:
        """State of parameters of a layer, which keep so many bytes if none is divided.

        Several types of number count as the one that takes most.
        """
        every = list(parameters)
        trained = [p for p in every if p.requires_grad]
        frozen_bytes = sum(bench.bytes_of(p) for p in every if not p.requires_grad)
        groups = by_type(trained)
        flat_bytes = sum(num_numbers(g) * g[0].element_size() for g in groups)
        number = [self.number_bytes(group[0].dtype, bench) for group in groups]
        kept = max((one.kept for one in number), default=0)
        kept_bytes = kept * sum(p.numel() for p in trained)
        return DividedState(
            num_parameters=len(trained),
            num_buffers=len(groups),
            num_numbers=num_numbers(trained),
            smallest_buffer=min(map(num_numbers, groups), default=0),
            parameter_bytes=flat_bytes + frozen_bytes,
            optimizer_bytes_per_number=kept,
            optimizer_rest_bytes=max(optimizer_bytes - kept_bytes, 0),
            transient_bytes_per_number=max((n.on_top for n in number), default=0),
        )

    def number_bytes(self, dtype: torch.dtype, bench: Bench) -> NumberBytes:
        """Bytes of a number, tried when a type is first seen."""
        if dtype not in self._found:
            make, device = self._workload.optimizer, bench.device
            least = self._workload.stepped_dtype
            self._found[dtype] = NumberBytes(
                kept=bytes_per_number(make, dtype, device, least),
                on_top=max(self.bytes_on_top(shape, dtype, bench) for shape in SHAPES),
            )
        return self._found[dtype]

    def bytes_on_top(
        self, shape: Sequence[int], dtype: torch.dtype, bench: Bench
    ) -> int:
        """Bytes of each number that a step holds besides the state, rounded up."""
        few_bytes, many_bytes = (
            self.step_bytes(torch.zeros(size, dtype=dtype).view(shape), bench)
            for size in (NUM_TRIED, 2 * NUM_TRIED)
        )
        return -(-(many_bytes - few_bytes) // NUM_TRIED)

    def step_bytes(self, values: Tensor, bench: Bench) -> int:
        """Bytes that a step of one parameter holds besides its state."""
        parameter = nn.Parameter(values.to(bench.device))
        return probe_steps([parameter], self._workload, bench).transient_bytes
