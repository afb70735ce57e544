"""Next-fit groups against every periodic order of passes, an integer programme.

In a period T each stage runs one forward and one backward pass, of any micro-batches,
in any order. With f, b the seconds of a stage's passes and c those of the link behind
it, one way:

    x, y    starts of the forward and the backward pass within the period, 0 <= x, y < T
    h, g    whole periods before them, so that they start at F = x + h T, B = y + g T
    z       1 where y < x
    k       micro-batches in flight: k T >= B + b - F

A pass waits for its input, F' >= F + f + c and B >= B' + b' + c with ' for the stage
behind, and the two passes of a stage do not overlap. HiGHS finds the least k of each
stage and the least sum (Beaumont, Eyraud-Dubois and Shilova, 2020).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np
import pytest

from plimsoll_planner.records.offer import Link
from plimsoll_planner.records.strategy import Mesh
from plimsoll_planner.schedules.one_f_one_b import OneFOneB
from plimsoll_planner.search.next_fit import grouped
from plimsoll_planner.timing.stage_times import StageTimes
from plimsoll_planner.timing.step_walk import walk
from plimsoll_planner.timing.topology import topology
from tests.support.builders import an_offer

NUM_PIPELINES = 60
ROUNDS = 120
"""A multiple of the micro-batches in any cycle of up to 5 stages, and enough of them
that a step repeats itself."""


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """Stages of one layer, and a period."""

    forward_s: tuple[int, ...]
    backward_s: tuple[int, ...]
    links_s: tuple[int, ...]
    """One way over the link behind each stage but the last."""
    period_s: float

    @property
    def num_stages(self) -> int:
        """P."""
        return len(self.forward_s)

    @property
    def loads_s(self) -> list[int]:
        """Both passes."""
        return [f + b for f, b in zip(self.forward_s, self.backward_s, strict=True)]


def pipeline(seed: int) -> Pipeline:
    """Draw up to four stages, half of them with links."""
    dice = random.Random(seed)  # noqa: S311 - no secret
    stages = dice.randint(2, 4)
    forward_s = tuple(dice.randint(1, 5) for _ in range(stages))
    backward_s = tuple(f * dice.randint(1, 3) for f in forward_s)
    most = dice.choice((0, 1, 4))
    largest = max(f + b for f, b in zip(forward_s, backward_s, strict=True))
    return Pipeline(
        forward_s=forward_s,
        backward_s=backward_s,
        links_s=tuple(dice.randint(0, most) for _ in range(stages - 1)),
        period_s=largest * dice.choice((1.0, 1.25, 1.5, 2.0, 2.5)),
    )


def next_fit(one: Pipeline) -> tuple[int, ...] | None:
    """Numbers in flight of the search, with a cut behind every layer."""
    size = one.num_stages
    sums = np.append(0, np.cumsum(one.loads_s))
    runs = (sums[None, :] - sums[:-1, None]).astype(np.float64)
    runs[np.tri(size, size + 1, dtype=np.bool_)] = np.inf
    links = [np.full(size + 1, 2.0 * link_s) for link_s in one.links_s]
    found = grouped(np.stack([runs] * size), links, one.period_s)
    return None if found is None else found.in_flight


def is_possible(numbers: Iterable[int], num_stages: int) -> bool:
    """Whether 1F1B lets stages have so many in flight."""
    return all(k <= num_stages - s for s, k in enumerate(numbers))


def least_in_flight(one: Pipeline) -> tuple[list[int], int]:
    """Least k of each stage alone, and the least sum, over all periodic orders."""
    solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.silent()
    most, period = 4 * one.num_stages, one.period_s
    in_flight: list[Any] = []
    passes: list[tuple[Any, Any]] = []
    for place, (f, b) in enumerate(zip(one.forward_s, one.backward_s, strict=True)):
        x, y = (solver.addVariable(0, period) for _ in range(2))
        h, g = (solver.addIntegral(0, most) for _ in range(2))
        k, z = solver.addIntegral(1, most), solver.addBinary()
        forward, backward = x + period * h, y + period * g
        big = 2 * period
        for constraint in (
            y >= x + f - big * z,
            y + b <= x + period + big * z,
            x >= y + b - big * (1 - z),
            x + f <= y + period + big * (1 - z),
            period * k >= backward + b - forward,
        ):
            solver.addConstr(constraint)
        if passes:
            (earlier, later), link_s = passes[-1], one.links_s[place - 1]
            earlier_end = earlier + one.forward_s[place - 1]
            solver.addConstr(forward >= earlier_end + link_s)
            solver.addConstr(later >= backward + b + link_s)
        in_flight.append(k)
        passes.append((forward, backward))
    last_forward, last_backward = passes[-1]
    solver.addConstr(last_backward >= last_forward + one.forward_s[-1])

    def least(goal: Any) -> int:
        solver.minimize(goal)
        assert solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
        return round(float(solver.getInfo().objective_function_value))

    return [least(k + 0) for k in in_flight], least(sum(in_flight[1:], in_flight[0]))


def test_next_fit_has_the_least_numbers_of_any_periodic_order() -> None:
    """Of every stage and in sum; none are found where 1F1B allows fewer.

    A link longer than what a group leaves of its period was taken for none at all where
    the stage before it opens a group.
    """
    num_impossible = 0
    for seed in range(NUM_PIPELINES):
        one = pipeline(seed)
        found, (each, total) = next_fit(one), least_in_flight(one)
        if not is_possible(each, one.num_stages):
            assert found is None, one
            num_impossible += 1
            continue
        assert found is not None, one
        assert (list(found), sum(found)) == (each, total), one
    assert num_impossible < NUM_PIPELINES / 4


def strict_steps(one: Pipeline, numbers: tuple[int, ...]) -> tuple[float, float]:
    """Step of strict 1F1B with these numbers in flight, and its period, from walks."""
    stages = [
        StageTimes(
            forward_s=float(f),
            backward_s=float(b),
            sent_bytes=link_s,
            end_s=0.0,
            in_flight_cap=k,
        )
        for f, b, link_s, k in zip(
            one.forward_s, one.backward_s, (*one.links_s, 0), numbers, strict=True
        )
    ]
    link = Link(bandwidth_bytes_per_s=1.0)
    offer = an_offer(devices_per_node=8, link_in_node=link)
    placed = topology(offer, Mesh(pipeline=one.num_stages))
    once_s, twice_s = (
        walk(OneFOneB(), stages, rounds, placed) for rounds in (ROUNDS, 2 * ROUNDS)
    )
    return once_s, (twice_s - once_s) / ROUNDS


@pytest.mark.parametrize("seed", range(NUM_PIPELINES))
def test_no_strict_order_of_the_period_has_fewer_in_flight_anywhere(seed: int) -> None:
    """All numbers that do not rise are walked; those of next-fit keep the period.

    A step is no shorter than one micro-batch alone and a period for each of the others
    that are not in flight (`GroupedPlans.group_bound`).
    """
    one = pipeline(seed)
    found = next_fit(one)
    ranges = (range(1, one.num_stages - s + 1) for s in range(one.num_stages))
    alone_s = sum(one.loads_s) + 2 * sum(one.links_s)
    keep: list[tuple[int, ...]] = []
    for numbers in itertools.product(*ranges):
        if list(numbers) == sorted(numbers, reverse=True):
            step_s, period_s = strict_steps(one, numbers)
            assert step_s >= alone_s + (ROUNDS - one.num_stages) * period_s
            if period_s <= one.period_s:
                keep.append(numbers)
    assert (found in keep) if keep else found is None
    for numbers in keep:
        assert all(k >= mine for k, mine in zip(numbers, found or (), strict=True))
