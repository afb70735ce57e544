"""Numbers of placed tuples: rates, peaks, prices, and how far the best may be.

In: a problem and its `PlacedTuple`s. Out: numbers, and the rule that decides a tuple
once a rate is asked for. Called by `placed_answer` and `placed_verdicts`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal

from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.records.certificate import Rule
from plimsoll_planner.records.objective import Goal
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.search.placed_tuples import PlacedTuple


def samples_of(one: PlacedTuple) -> int:
    """Samples of a step."""
    return one.mesh.data * one.micro_batch * one.num_micro_batches


def rate_of(one: PlacedTuple) -> float:
    """Samples per second that are expected; 0 where nothing was placed."""
    if one.step is None:
        return 0.0
    return samples_of(one) / one.step.expected_s if one.step.expected_s else math.inf


def most_rate_of(one: PlacedTuple, *, is_sure: bool = False) -> float:
    """Samples per second that no placement of the tuple is above; infinite: unknown.

    At expected seconds, or, if that has to be sure, at the lower end of all.
    """
    if one.placement is None or one.step is None:
        return math.inf
    least_s = one.num_micro_batches * one.placement.bounds.makespan_s
    if is_sure:
        least_s = one.step.lower_s
    return samples_of(one) / least_s if least_s else math.inf


def rule_of(problem: Problem, one: PlacedTuple) -> Rule:
    """Rule that decides a tuple, the rate that is asked for included."""
    least = problem.asked_samples_per_s
    if one.rule is not Rule.PLACED or rate_of(one) >= least:
        return one.rule
    is_slow = most_rate_of(one, is_sure=True) < least
    return Rule.RATE_BOUND if is_slow else Rule.NOT_PLACED


def fits_at(problem: Problem) -> Callable[[PlacedTuple], bool]:
    """Whether a tuple fits the memory, and reaches a number of samples per second."""
    return lambda one: rule_of(problem, one) is Rule.PLACED


def peak_of(one: PlacedTuple) -> int:
    """Largest upper bound of a device, bytes."""
    assert one.placement is not None  # noqa: S101 - asked of those that fit
    return one.allowed.device(Bound.UPPER, one.placement.peak_bytes)


def price_of(problem: Problem, one: PlacedTuple) -> Decimal | None:
    """Price of all nodes for an hour, None if the offer states none."""
    price = problem.offers[one.offer].price_per_node_hour
    return None if price is None else price * one.topology.num_nodes


def cost_of(problem: Problem, one: PlacedTuple) -> float:
    """Price of a sample, in the currency of its offer; infinite where it has none."""
    price, rate = price_of(problem, one), rate_of(one)
    return float(price) / rate if price is not None and rate else float("inf")


@dataclass(frozen=True, kw_only=True, slots=True)
class Gaps:
    """How far the chosen plan may be from the best one, as parts of its numbers.

    The best that any placement could be is bounded, and not known to exist. A tuple
    that fails is no rival, nor is one of which nothing was placed.
    """

    problem: Problem
    rivals: tuple[PlacedTuple, ...]
    """Those that fit, and those that are undecided."""
    chosen: PlacedTuple

    def of_goal(self) -> float:
        """Of what the goal minimises."""
        goal = self.problem.objective.goal
        if goal is Goal.MINIMIZE_MEMORY:
            return self.of_memory()
        if goal is Goal.MAXIMIZE_THROUGHPUT:
            return self.of_rate()
        least = min(self.least_cost(one) for one in self.rivals)
        return part_below(least, cost_of(self.problem, self.chosen))

    def of_memory(self) -> float:
        """Of the largest peak."""
        least = min(one.least_bytes for one in self.rivals)
        return part_below(least, peak_of(self.chosen))

    def of_rate(self) -> float:
        """Of the seconds for a sample."""
        most = max(map(most_rate_of, self.rivals))
        return part_below(rate_of(self.chosen), most)

    def least_cost(self, one: PlacedTuple) -> float:
        """Price of a sample that no placement of a tuple is below."""
        price = price_of(self.problem, one)
        return math.inf if price is None else float(price) / most_rate_of(one)


def part_below(least: float, found: float) -> float:
    """By which part of what was found the least is smaller, from 0 to 1."""
    if not 0 < found < math.inf:
        return 0.0 if found <= least else 1.0
    return min(max(1 - least / found, 0.0), 1.0)


def rivals_of(
    problem: Problem, found: Iterable[PlacedTuple], chosen: PlacedTuple
) -> tuple[PlacedTuple, ...]:
    """Tuples that may have a better plan than the chosen one."""
    return tuple(
        one
        for one in found
        if one.placement is not None
        and rule_of(problem, one) in (Rule.PLACED, Rule.NOT_PLACED)
        and (
            problem.objective.goal is not Goal.MINIMIZE_GPUS
            or one.mesh.num_gpus == chosen.mesh.num_gpus
        )
    )
