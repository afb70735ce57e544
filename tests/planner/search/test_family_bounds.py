"""Bounds of families, held against the exact least peaks of their tuples."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numpy")

from plimsoll_planner.engines import PLIMSOLL, PLIMSOLL_ON_TORCH_2_11
from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.records.certificate import Rule
from plimsoll_planner.records.engine import EngineTraits
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.objective import Objective
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.search.explore import Explorer
from plimsoll_planner.search.verdicts import Floor
from tests.planner.search.test_gaps import questions
from tests.support.chains import Activation, Layer, chain_profile
from tests.support.drawing import draws
from tests.support.questions import a_device, a_question

ENGINES = st.sampled_from(
    [
        PLIMSOLL,
        PLIMSOLL_ON_TORCH_2_11,
        replace(
            PLIMSOLL, can=replace(PLIMSOLL.can, fewer_micro_batches_than_stages=True)
        ),
    ]
)


@settings(max_examples=draws(150))
@given(questions(), ENGINES)
def test_no_least_peak_is_below_a_bound_of_its_family(
    problem: Problem, engine: EngineTraits
) -> None:
    """Of all tuples, lower and upper bytes; also where a smaller b was asked first."""
    explorer = Explorer(replace(problem, engine=engine))
    search = explorer.search
    for candidate in explorer.open:
        dominated = search.family_bounds.dominated(candidate)
        for bound in (Bound.LOWER, Bound.UPPER):
            least = search.least_peak(candidate, bound)
            assert search.family_bounds.relaxed(candidate, bound) <= least
        assert dominated <= search.least_peak(candidate, Bound.LOWER)


def a_family(saved: int, memory_bytes: int) -> Explorer:
    """Lay out 12 samples on one device that must hold what a micro-batch saves."""
    layer = Layer(
        parameters=10,
        recomputable=False,
        kept=Activation(saved=saved, backward=saved),
    )
    profile = chain_profile([layer, layer], device_kind=DeviceKind.EMULATED)
    return Explorer(
        a_question(
            profile=profile,
            offers=(a_device(memory_bytes),),
            global_batch_size=12,
            limits=Limits(max_gpus=1),
            objective=Objective(rate_floor=0.0),
        )
    )


def rules_of(explorer: Explorer) -> list[tuple[tuple[int, ...], Rule, int]]:
    """Micro-batches, rule and least peak of every decision on one device."""
    decisions = explorer.decide(1, Floor())
    return [(d.micro_batches, d.rule, d.least_lower_bytes) for d in decisions]


def test_a_larger_micro_batch_is_decided_by_a_smaller_one() -> None:
    """20 of state and 20 b that both layers save: b = 4 needs 100, so b = 6 does.

    At b = 12 one layer alone needs 10 of state and 120.
    """
    assert rules_of(a_family(10, 90)) == [
        ((1,), Rule.SEARCHED, 40),
        ((2,), Rule.SEARCHED, 60),
        ((3,), Rule.SEARCHED, 80),
        ((4,), Rule.PEAK_EXCEEDS, 100),
        ((6,), Rule.DOMINATED, 100),
        ((12,), Rule.LAYER_EXCEEDS, 130),
    ]


def test_a_family_that_fits_nowhere_is_decided_at_once() -> None:
    """20 of state and 2,000 at b = 1, the least of any: no micro-batch is searched."""
    every = (1, 2, 3, 4, 6, 12)
    assert rules_of(a_family(1000, 2015)) == [(every, Rule.MEMORY_RELAXED, 2020)]
    assert rules_of(a_family(1000, 15)) == [(every, Rule.STATES_EXCEED, 20)]
