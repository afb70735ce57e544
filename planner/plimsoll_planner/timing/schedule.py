"""Pipeline schedules as the walk and the search ask for them; `schedules` has them.

An `Operation` is one pass of one micro-batch. A `PipelineSchedule` owns everything that
is particular to one order of passes: which pass a stage runs next, how many
micro-batches it holds, what it refuses, and lower bounds of a step that hold for this
order alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from plimsoll_planner.memory.bounds import Ints
from plimsoll_planner.records.engine import EngineCapabilities, EngineHoldings, Schedule
from plimsoll_planner.timing.stage_runs import StageBound, StageRuns
from plimsoll_planner.timing.stage_times import StageTimes
from plimsoll_planner.timing.topology import Topology


class Pass(StrEnum):
    """Computation of a rank."""

    FORWARD = "F"
    BACKWARD = "B"


@dataclass(frozen=True, slots=True)
class Operation:
    """One pass of one micro-batch."""

    kind: Pass
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.kind}{self.micro_batch}"


class PipelineSchedule(ABC):
    """One order of passes; s is a stage, P the stages, M the micro-batches of a step.

    One run of layers stands on each stage, in the order of the stages.
    """

    name: ClassVar[Schedule]

    @abstractmethod
    def operations(
        self,
        stage: int,
        num_stages: int,
        num_micro_batches: int,
        in_flight_cap: int | None = None,
    ) -> Iterator[Operation]:
        """Passes of one stage, in order; see `StageTimes` for the cap."""

    @abstractmethod
    def in_flight(self, num_left: int, num_micro_batches: int) -> int:
        """k, the most micro-batches that a stage holds at a time; no less for more M.

        `num_left` is P - s, stages from this one to the last.
        """

    def caps(self, num_left: int, num_micro_batches: int) -> range:
        """Numbers in flight that a stage may be kept to, rising, k the last.

        Those of neighbours obey `can_follow`. A rank holds the less, the fewer are in
        flight.
        """
        k = self.in_flight(num_left, num_micro_batches)
        return range(k, k + 1)

    def is_saturated(self, num_stages: int, num_micro_batches: int) -> bool:
        """Whether no stage has more in flight if there are more micro-batches.

        Each stage but the first then has fewer in flight than there are.
        """
        del num_stages, num_micro_batches
        return False

    def steady(
        self, num_left: int, num_micro_batches: int, holds: EngineHoldings
    ) -> int:
        """Fewest micro-batches whose step holds what one of all of them holds.

        Inputs, targets, losses and standing buffers aside; `num_left` is P - s.
        """
        del num_left, holds
        return num_micro_batches

    def is_refused(
        self,
        num_stages: int,
        num_micro_batches: int,
        can: EngineCapabilities,
    ) -> bool:
        """Whether an engine cannot run this many micro-batches on this many stages.

        Fewer than stages are never taken unless the engine does (`family_bounds`).
        """
        too_few = num_micro_batches < num_stages
        return too_few and not can.fewer_micro_batches_than_stages

    @abstractmethod
    def stage_bound(
        self,
        runs: StageRuns,
        stage: int | Ints,
        num_stages: int,
        num_micro_batches: int,
        in_flight: int | Ints,
    ) -> StageBound:
        """Lower bounds of the step, from every run of layers as one stage.

        `in_flight` is one of the stage's `caps`; other stages have any of theirs. Of
        runs [run], each may be on a stage and have a number of its own.
        """

    @abstractmethod
    def closed_bound(
        self, total_s: float, num_stages: int, num_micro_batches: int
    ) -> float:
        """Lower bound of the step that needs no cuts.

        `total_s` is of one micro-batch through the whole model, without recomputing.
        """

    def cycles_bound(
        self,
        stages: list[StageTimes],
        num_micro_batches: int,
        links_s: Sequence[float],
        behind_s: float,
    ) -> float:
        """Lower bound of the step from the last of the first stages, and those before.

        Args:
            stages: the first ones.
            num_micro_batches: M.
            links_s: one way over the link behind each of them but the last.
            behind_s: least seconds of a micro-batch in the stages behind them, both
                ways, with the links there.
        """
        del stages, num_micro_batches, links_s, behind_s
        return 0.0

    def last_backwards(
        self, stages: list[StageTimes], num_micro_batches: int, placed: Topology
    ) -> list[float] | None:
        """Ends of the last backward passes, as the walk has them; None: no shortcut."""
        del stages, num_micro_batches, placed
        return None
