"""The rate that was asked for, against plans beside the answer.

In: an answer and its question. Out: a `RateFloor`, which says of a plan that it is too
slow. Called for the grid, and for the plans that could be had.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Infeasible, Solution

BARELY = 1e-9
"""Part by which a rate may be below a floor that is a product of rates."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RateFloor:
    """Slowest rate that does; by default any."""

    samples_per_s: float = 0.0
    """Of the whole plan, or of each device."""
    is_of_each: bool = False
    """It is a part of the best rate per device, and grows with their number."""

    @classmethod
    def of(cls, answer: Solution | Infeasible, problem: Problem | None) -> RateFloor:
        """The floor of an answer; none if there is no plan, or no question."""
        if problem is None or isinstance(answer, Infeasible):
            return cls()
        objective, last = problem.objective, answer.certificate.counts[-1]
        if objective.min_samples_per_s is not None or objective.deadline_s is not None:
            return cls(samples_per_s=last.floor_samples_per_s)
        each = last.floor_samples_per_s / last.num_gpus
        return cls(samples_per_s=each, is_of_each=True)

    def fault(self, num_gpus: int, samples_per_s: float) -> str:
        """How a plan is too slow, in a few words; empty if it is not."""
        needed = self.samples_per_s * (num_gpus if self.is_of_each else 1)
        if samples_per_s >= needed * (1 - BARELY):
            return ""
        return "below the rate floor" if self.is_of_each else "too slow"
