"""Overheads from ranks that ran and ranks that ran out."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_planner.errors import InvalidFieldError
from plimsoll_planner.memory.device_bytes import ASSUMED_OUTSIDE
from plimsoll_planner.observed_overhead import (
    FEWEST_RANKS,
    ObservedRank,
    Shortage,
    observed_overhead,
)
from plimsoll_planner.overheads import EMULATED
from plimsoll_planner.records.device_overhead import DeviceOverhead, OverheadKey
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.plan import HybridPlan, PhasePeak, device_upper_bytes
from plimsoll_planner.records.problem import Override, Problem
from plimsoll_planner.records.solution import Infeasible, Termination
from plimsoll_planner.search.answer import solve
from tests.support.chains import chain_profile
from tests.support.questions import CHAIN, a_device, a_question, solved

KEY = OverheadKey(device_product="process", torch_version="2.15.0")
CUDA_KEY = OverheadKey(device_product="H200", torch_version="2.15.0")


def a_rank(**fields: Any) -> ObservedRank:
    """Build a rank with 5 bytes inside the allocator and 70 outside."""
    defaults: dict[str, Any] = {
        "micro_batch": 1,
        "num_communicators": 1,
        "predicted_allocated_bytes": 100,
        "allocated_bytes": 100,
        "reserved_bytes": 105,
        "device_bytes": 175,
    }
    return ObservedRank(**(defaults | fields))


def a_shortage(**fields: Any) -> Shortage:
    """Build a rank that got 850 of the 1000 bytes that it was promised."""
    defaults: dict[str, Any] = {
        "key": KEY,
        "micro_batch": 1,
        "num_communicators": 1,
        "capacity_bytes": 1000,
        "in_use_bytes": 850,
        "asked_bytes": 100,
        "predicted_allocated_bytes": 900,
        "predicted_device_bytes": 990,
    }
    return Shortage(**(defaults | fields))


def upper_at(overhead: DeviceOverhead, micro_batch: int, communicators: int) -> int:
    """Return the most that may sit beside the tensors."""
    lines = (overhead.allocator, overhead.outside)
    return sum(line.at(micro_batch, communicators).upper_bytes for line in lines)


def observed(
    ranks: Sequence[ObservedRank] = (), shortages: Sequence[Shortage] = ()
) -> DeviceOverhead:
    """Calibrate the emulated device, and insist on a result."""
    found = observed_overhead(KEY, ranks, shortages)
    assert found is not None
    return found


def test_few_ranks_say_nothing_yet() -> None:
    """Seven leave the built-in overhead in place; eight are fitted."""
    ranks = [a_rank()] * FEWEST_RANKS
    assert observed_overhead(KEY, ranks[1:], ()) is None
    assert observed(ranks).num_observations == FEWEST_RANKS


def test_both_lines_go_through_what_ranks_held() -> None:
    """Allocator 5 b; outside 70 + 10 b, read off three numbers of each rank."""
    ranks = [
        a_rank(
            micro_batch=b, reserved_bytes=100 + 5 * b, device_bytes=100 + 70 + 15 * b
        )
        for b in (1, 2, 4, 8)
        for _ in range(2)
    ]
    found = observed(ranks)
    assert found.key == KEY
    assert (found.allocator.constant_bytes, found.allocator.bytes_per_sample) == (0, 5)
    assert (found.outside.constant_bytes, found.outside.bytes_per_sample) == (70, 10)
    assert found.outside.residual_bytes <= 1


def test_what_a_prediction_was_too_low_by_counts_as_outside() -> None:
    """30 bytes more tensors than predicted are added, 30 fewer are not taken off."""
    more, fewer = (
        observed([a_rank(predicted_allocated_bytes=p)] * FEWEST_RANKS)
        for p in (70, 130)
    )
    assert more.outside.constant_bytes == 70 + 30
    assert fewer.outside.constant_bytes == 70


def test_a_device_with_less_than_was_offered_is_not_filled_again() -> None:
    """U + A <= C: what was not in use of C was not there, 150 of 1000 bytes."""
    ranks = [a_rank()] * FEWEST_RANKS
    assert 75 <= upper_at(observed(ranks), 1, 1) <= 76
    assert upper_at(observed(ranks, [a_shortage()]), 1, 1) == 150


def test_a_formula_that_was_too_low_grows_by_what_was_missing() -> None:
    """U + A > C: 1050 bytes wanted, 990 predicted; the 90 of then grow by 60."""
    shortage = a_shortage(in_use_bytes=950)
    found = observed([a_rank()] * FEWEST_RANKS, [shortage])
    before = shortage.predicted_device_bytes - shortage.predicted_allocated_bytes
    assert upper_at(found, 1, 1) == before + (950 + 100 - 990) == 150


def test_a_shortage_that_is_known_changes_nothing() -> None:
    """The same one again, or one that the lines allow for already."""
    ranks = [a_rank()] * FEWEST_RANKS
    once = observed(ranks, [a_shortage()])
    small = a_shortage(in_use_bytes=940, asked_bytes=10, predicted_allocated_bytes=960)
    again = observed(ranks, [a_shortage(), a_shortage(), small])
    assert again == replace(once, num_observations=FEWEST_RANKS + 3)


def test_a_shortage_counts_at_once() -> None:
    """Without eight ranks it widens the built-in overhead, or what is assumed."""
    found = observed([a_rank()] * 7, [a_shortage(capacity_bytes=10_000)])
    assert found.num_observations == 1
    assert found.allocator == EMULATED.allocator
    assert upper_at(found, 1, 1) == 10_000 - 850
    gib = 2**30
    short = a_shortage(
        key=CUDA_KEY,
        capacity_bytes=80 * gib,
        in_use_bytes=70 * gib,
        asked_bytes=gib,
        predicted_allocated_bytes=75 * gib,
        predicted_device_bytes=80 * gib,
    )
    assumed = observed_overhead(CUDA_KEY, (), [short])
    assert assumed is not None
    assert assumed.outside.constant_bytes == ASSUMED_OUTSIDE.constant_bytes
    assert upper_at(assumed, 1, 1) >= 10 * gib


def test_lower_bounds_never_rise() -> None:
    """A shortage makes an interval wider on both sides: no count fails for it."""
    ranks = [a_rank()] * FEWEST_RANKS
    narrow, wide = observed(ranks).outside, observed(ranks, [a_shortage()]).outside
    assert wide.at(1, 1).lower_bytes <= narrow.at(1, 1).lower_bytes
    assert wide.at(1, 1).expected_bytes == narrow.at(1, 1).expected_bytes


def test_a_shortage_is_checked() -> None:
    """It comes from a rank's own words; negative bytes are refused."""
    with pytest.raises(InvalidFieldError, match="in_use_bytes"):
        a_shortage(in_use_bytes=-1)


def a_tight_question(
    kind: DeviceKind, memory_bytes: int, overheads: tuple[DeviceOverhead, ...]
) -> Problem:
    """Ask for devices that some plan just fits on."""
    product = KEY_OF[kind].device_product
    return a_question(
        profile=chain_profile(CHAIN, device_kind=kind, device_product=product),
        offers=(a_device(memory_bytes, device_kind=kind, device_product=product),),
        overheads=overheads,
    )


KEY_OF = {DeviceKind.EMULATED: KEY, DeviceKind.CUDA: CUDA_KEY}
SPREAD = [a_rank(device_bytes=155 + 40 * (place % 2)) for place in range(40)]
MEMORY_BYTES = 900
ASSUMED_BYTES = ASSUMED_OUTSIDE.at(1, 1).upper_bytes
SITUATIONS = {
    "built-in": (
        (),
        a_tight_question(DeviceKind.EMULATED, MEMORY_BYTES + 1024, (EMULATED,)),
    ),
    "calibrated": (
        SPREAD,
        a_tight_question(DeviceKind.EMULATED, MEMORY_BYTES + 120, (observed(SPREAD),)),
    ),
    "assumed": (
        (),
        a_tight_question(DeviceKind.CUDA, MEMORY_BYTES * 2 + ASSUMED_BYTES, ()),
    ),
}
"""What a plan was made with: ranks observed before, and the question."""


@pytest.mark.parametrize("situation", SITUATIONS)
@settings(max_examples=25)
@given(in_use=st.floats(0, 1.5), asked=st.floats(0, 1))
def test_a_plan_that_ran_out_is_not_made_again(
    situation: str, in_use: float, asked: float
) -> None:
    """Whatever a rank had in use and asked for, its plan is not predicted to fit."""
    ranks, problem = SITUATIONS[situation]
    plan, peak = plan_and_peak(situation)
    key = KEY_OF[problem.profile.device_kind]
    shortage = Shortage(
        key=key,
        micro_batch=plan.micro_batch,
        num_communicators=1,
        capacity_bytes=problem.offers[0].device_memory_bytes,
        in_use_bytes=round(in_use * peak.allocated.upper_bytes),
        asked_bytes=round(asked * peak.allocated.upper_bytes),
        predicted_allocated_bytes=peak.allocated.upper_bytes,
        predicted_device_bytes=peak.device.upper_bytes,
    )
    overhead = observed_overhead(key, ranks, [shortage])
    assert overhead is not None
    wiser = replace(problem, overheads=(overhead,))
    assert does_fit(replace(problem, override=exactly(plan)))
    assert not does_fit(replace(wiser, override=exactly(plan)))
    again = solve(wiser)
    assert isinstance(again, Infeasible) or exactly(again.plan) != exactly(plan)


@functools.cache
def plan_and_peak(situation: str) -> tuple[HybridPlan, PhasePeak]:
    """Return the plan of a situation with its largest peak."""
    plan = solved(SITUATIONS[situation][1]).plan
    peaks = [peak for stage in plan.stages if (peak := stage.peak())]
    return plan, max(peaks, key=device_upper_bytes)


def exactly(plan: HybridPlan) -> Override:
    """Fix everything that a person can."""
    return Override(
        num_gpus=plan.num_gpus,
        num_stages=len(plan.stages),
        data_degree=plan.stages[0].data_degree,
        micro_batch=plan.micro_batch,
        cuts=tuple(stage.chunks[0].first_layer for stage in plan.stages),
        recomputed_layers=tuple(i for s in plan.stages for i in s.recomputed_layers),
    )


def does_fit(problem: Problem) -> bool:
    """Tell whether a plan that a person fixed is predicted to fit."""
    answer = solve(problem)
    if isinstance(answer, Infeasible):
        return False
    return answer.termination is not Termination.FIXED
