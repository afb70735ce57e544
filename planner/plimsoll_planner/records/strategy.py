"""How a job is spread over its devices: the degrees, their order, the schedule.

The only place that names the axes of parallelism and the order of ranks along them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from plimsoll_planner.records.bounds import Count
from plimsoll_planner.records.engine import Schedule
from plimsoll_planner.records.model_profile import Variant
from plimsoll_planner.records.record import Record


@dataclass(frozen=True, kw_only=True, slots=True)
class Mesh(Record):
    """Degrees of parallelism, G = P * D * T devices.

    Rank (s * D + d) * T + t is part t of replica d of stage s.
    """

    pipeline: Count
    """P, stages."""
    data: Count = 1
    """D, replicas."""
    tensor: Count = 1
    """T, ranks that share each layer."""

    @property
    def degrees(self) -> tuple[int, int, int]:
        """P, D, T."""
        return self.pipeline, self.data, self.tensor

    @property
    def num_gpus(self) -> int:
        """G."""
        return math.prod(self.degrees)

    @property
    def ranks_per_stage(self) -> int:
        """Ranks that hold the same layers."""
        return self.num_gpus // self.pipeline

    def ranks(self, stage: int) -> range:
        """Ranks of one stage."""
        size = self.ranks_per_stage
        return range(stage * size, (stage + 1) * size)

    def is_within(self, *degrees: Collection[int | None]) -> bool:
        """Whether each degree is one of those allowed.

        Args:
            degrees: allowed for pipeline, data and tensor, in this order; an empty
                collection allows all.
        """
        return all(
            not allowed or degree in allowed
            for degree, allowed in zip(self.degrees, degrees, strict=False)
        )

    def __str__(self) -> str:
        """P x D, and T if layers are shared."""
        shown = self.degrees if self.tensor > 1 else self.degrees[:2]
        return " x ".join(map(str, shown))


@dataclass(frozen=True, kw_only=True, slots=True)
class Strategy(Record):
    """A mesh, the order of passes on it, and how tensor groups split layers."""

    mesh: Mesh
    schedule: Schedule = Schedule.ONE_F_ONE_B
    sequence_parallel: bool = False
    """Tensor groups split what lies between their layers as well."""

    def check_rules(self) -> None:
        """Sequence parallelism splits along a tensor group."""
        if self.sequence_parallel and self.mesh.tensor == 1:
            raise self.refuse("sequence_parallel", "false where mesh.tensor is 1")

    @property
    def variant(self) -> Variant:
        """How each layer is split."""
        return variant_of(self.mesh.tensor, self.sequence_parallel)

    @property
    def without_stages(self) -> Strategy:
        """The same for every number of stages."""
        return without_stages(self)


@lru_cache(maxsize=4096)
def without_stages(strategy: Strategy) -> Strategy:
    """Strategy with one stage, kept: it is used often, and records are checked."""
    return replace(strategy, mesh=replace(strategy.mesh, pipeline=1))


@lru_cache(maxsize=64)
def variant_of(tensor_degree: int, sequence_parallel: bool) -> Variant:
    """Variant of a strategy, kept: it is used often, and records are checked."""
    return Variant(tensor_degree=tensor_degree, sequence_parallel=sequence_parallel)


def meshes_of(num_gpus: int, tensor_degrees: Sequence[int] = (1,)) -> list[Mesh]:
    """Every mesh of a number of devices with some T, in the order of T, then of P."""
    return [
        Mesh(pipeline=p, data=num_gpus // tensor // p, tensor=tensor)
        for tensor in tensor_degrees
        if num_gpus % tensor == 0
        for p in divisors(num_gpus // tensor)
    ]


def divisors(number: int) -> list[int]:
    """Divisors of a number, in order."""
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})
