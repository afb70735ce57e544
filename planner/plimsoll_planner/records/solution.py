"""Answers of the search: a plan with its proof, or why there is none.

Infeasible is a result, not an exception: it names the constraint that binds and the
nearest change that would make the problem feasible.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from plimsoll_planner.records.bounds import Count, Fraction, Index, Message, Seconds
from plimsoll_planner.records.certificate import Binding, Certificate, NearestMiss
from plimsoll_planner.records.document import Document
from plimsoll_planner.records.frontier import Frontier
from plimsoll_planner.records.grid import Grid
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.record import Record

LEAST_GAP = 0.0005
"""Smaller gaps are not shown, and do not keep an answer from being called optimal: the
least peak is searched for to within half of this."""


class Termination(StrEnum):
    """Why the search stopped; never optimal by default."""

    OPTIMAL = "optimal"
    """Proven in the stated space, but for a gap below `LEAST_GAP`."""
    WORK_LIMIT = "work-limit"
    """The best of what was searched; the same again on the next run."""
    TIME_LIMIT = "time-limit"
    """Stopped by the clock; another run may answer differently."""
    WITHIN_GAP = "within-gap"
    """Everything was searched, and something better is not excluded; see `gap`."""
    FIXED = "fixed"
    """A person fixed parts that no fitting plan has; obeyed, and not certified."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchStatistics(Record):
    """Work of the search, counted."""

    num_tuples: Index
    """Of (P, T, D, b, sharding, schedule), decided in whatever way."""
    num_plans: Index
    """Whose peak was computed."""
    search_s: Seconds
    """Wall seconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Solution(Document):
    """A plan, why nothing smaller works, and what else could be had."""

    termination: Termination
    gap: Fraction
    """How far the objective may be from the best; below 0.0005 where optimal."""
    memory_gap: Fraction = 0.0
    """How much lower the peak of a plan as fast may be; 0 where none is lower. With
    goals that choose by memory: MinimizeGPUs, MinimizeMemory."""
    rate_gap: Fraction = 0.0
    """How far the fastest plan of the count may be faster than the fastest that was
    found, which the plan was allowed to be a little slower than (MinimizeGPUs)."""
    plan: HybridPlan
    certificate: Certificate
    alternatives: tuple[HybridPlan, ...] = ()
    """The Pareto front in peak, throughput, GPUs and cost, without `plan`."""
    statistics: SearchStatistics
    warnings: tuple[Message, ...] = ()
    """Basis of the answer that nobody measured, or that a person fixed."""
    fewest_unfixed: Count | None = None
    """Certified fewest GPUs where nothing is fixed; shown if a person fixed parts."""
    frontier: Frontier | None = None
    """Memory against speed for as many GPUs as `plan` has; only if asked for."""
    grid: Grid | None = None
    """Other numbers of devices and micro-batches; only if asked for."""

    @property
    def is_proven_unfit(self) -> bool:
        """Whether a person fixed parts, and every plan that has them fails for sure."""
        verdicts = {count.verdict for count in self.certificate.counts}
        return self.termination is Termination.FIXED and verdicts == {Verdict.FAILS}

    def check_rules(self) -> None:
        """The plan is one that the certificate is about; optimal needs a proof."""
        fewest = self.certificate.fewest_at_floor
        is_fixed = self.termination is Termination.FIXED
        if not is_fixed and (fewest is None or self.plan.num_gpus < fewest):
            rule = f"a plan of at least the certified fewest GPUs, {fewest}"
            raise self.refuse("plan", rule, f"{self.plan.num_gpus} GPUs")
        if self.frontier and self.frontier.num_gpus != self.plan.num_gpus:
            rule = f"a curve of {self.plan.num_gpus} GPUs, as many as the plan has"
            raise self.refuse("frontier", rule, self.frontier.num_gpus)
        check_grid(self, self.grid, self.certificate)
        if self.termination is Termination.OPTIMAL:
            if not self.certificate.is_proof:
                rule = "not optimal, where a smaller count is undecided or not searched"
                raise self.refuse("termination", rule)
            if self.gap >= LEAST_GAP:
                rule = f"below {LEAST_GAP}, where the termination is optimal"
                raise self.refuse("gap", rule)


@dataclass(frozen=True, kw_only=True, slots=True)
class Infeasible(Document):
    """No plan in the stated space, and what would change that."""

    binding: Binding
    nearest_miss: NearestMiss | None = None
    nearest_change: Message
    """The smallest change that makes it feasible, in words."""
    needed_gpus: Count | None = None
    """With that many GPUs of the same kind it would fit, where that is known."""
    certificate: Certificate
    statistics: SearchStatistics
    warnings: tuple[Message, ...] = ()
    """Basis of the answer that nobody measured."""
    grid: Grid | None = None
    """Other numbers of devices and micro-batches; only if asked for."""

    def check_rules(self) -> None:
        """The certificate knows no plan either, and the miss is one of what binds."""
        fewest = self.certificate.fewest_at_floor
        if fewest is not None:
            raise self.refuse("certificate", "one without a count that fits", fewest)
        if self.nearest_miss and self.nearest_miss.binding is not self.binding:
            rule = f"a miss of what binds, {self.binding}"
            raise self.refuse("nearest_miss", rule, self.nearest_miss.binding)
        offers = self.certificate.space.offers
        if self.nearest_miss and (self.nearest_miss.offer or 0) >= len(offers):
            rule = f"an index below {len(offers)}, the number of offers"
            raise self.refuse("nearest_miss.offer", rule, self.nearest_miss.offer)
        check_grid(self, self.grid, self.certificate)


def check_grid(answer: Record, grid: Grid | None, certificate: Certificate) -> None:
    """Raise `InvalidFieldError` unless every cell is about an offer that there is."""
    num_offers = len(certificate.space.offers)
    for cell in grid.cells if grid else ():
        if cell.offer >= num_offers:
            rule = f"indices below {num_offers}, the number of offers"
            raise answer.refuse("grid.cells.offer", rule, cell.offer)
