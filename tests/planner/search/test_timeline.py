"""A step's passes with their times: by hand, and held against the walk."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

pytest.importorskip("numpy")

from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import DeviceKind, ModelProfile
from plimsoll_planner.records.offer import Link, Offer
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Solution
from plimsoll_planner.search.answer import solve
from plimsoll_planner.search.timeline import Timeline, timeline
from tests.support.chains import Layer, chain_profile, random_profiles
from tests.support.drawing import draws
from tests.support.questions import a_device, a_question, solved

ALL = 10**6
"""More micro-batches than there are."""


def drawn(made: Timeline) -> list[str]:
    """Write a timeline as tests draw it."""
    return [
        "  ".join(
            f"{one.operation or 'end'} {one.begin_s:g}-{one.end_s:g}" for one in passes
        )
        for passes in made.stages
    ]


def whole(problem: Problem, plan: HybridPlan) -> Timeline:
    """Walk all of a step."""
    made = timeline(problem, plan, ALL)
    assert made is not None
    assert made.is_whole
    return made


def two_stages(device: Offer, count: int) -> Problem:
    """Ask for two stages; F and B take 1 and 2 s on the first, 3 and 4 s behind it."""
    layers = [
        Layer(boundary=1, forward_s=1, backward_s=2, step_s=1),
        Layer(forward_s=3, backward_s=4),
    ]
    return a_question(
        profile=chain_profile(layers, device_kind=DeviceKind.EMULATED),
        offers=(device,),
        global_batch_size=count,
        override=Override(num_gpus=2, num_stages=2, micro_batch=1),
    )


def test_two_stages_by_hand() -> None:
    """Tensors take a second over the link; the end is the optimizer step."""
    link = Link(bandwidth_bytes_per_s=1.0)
    problem = two_stages(a_device(10_000, link_in_node=link), 2)
    made = whole(problem, solved(problem).plan)
    assert drawn(made) == [
        "F0 0-1  F1 1-2  B0 10-12  B1 17-19  end 19-20",
        "F0 2-5  B0 5-9  F1 9-12  B1 12-16  end 16-16",
    ]
    assert (made.end_s, made.num_micro_batches) == (20, 2)


def test_two_stages_on_one_core() -> None:
    """The step of two cores, 18 s, stretched to all work of the two ranks, 21 s."""
    apart, shared = (
        two_stages(a_device(10_000, concurrent_devices_per_node=cores), 2)
        for cores in (2, 1)
    )
    alone = whole(apart, solved(apart).plan)
    made = whole(shared, solved(shared).plan)
    assert alone.end_s == 18
    assert made.end_s == pytest.approx(21)
    for stage, passes in zip(made.stages, alone.stages, strict=True):
        for one, unstretched in zip(stage, passes, strict=True):
            assert one.begin_s == pytest.approx(21 / 18 * unstretched.begin_s)
            assert one.end_s == pytest.approx(21 / 18 * unstretched.end_s)


def test_the_beginning_of_a_long_step() -> None:
    """Up to the last forward pass of the first stage, as the whole step has it."""
    problem = two_stages(a_device(10_000), 8)
    made = timeline(problem, solved(problem).plan, 3)
    assert made is not None
    assert drawn(made) == [
        "F0 0-1  F1 1-2  B0 8-10  F2 10-11",
        "F0 1-4  B0 4-8  F1 8-11",
    ]
    assert (made.end_s, made.is_whole) == (11, False)


DEVICES = st.sampled_from(
    [
        a_device(10_000),
        a_device(10_000, link_in_node=Link(bandwidth_bytes_per_s=2.0, latency_s=0.5)),
        a_device(10_000, concurrent_devices_per_node=2, crowded_slowdown=1.5),
    ]
)


@settings(max_examples=draws(100))
@given(
    random_profiles(), DEVICES, st.integers(1, 3), st.integers(1, 12), st.integers(1, 6)
)
def test_a_timeline_is_the_walk(
    profile: ModelProfile, device: Offer, most_stages: int, batch: int, shown: int
) -> None:
    """It ends when the plan's step does; passes of a rank follow one another.

    A beginning has the passes of the whole that begin in it, at the same times.
    """
    problem = a_question(
        profile=replace(profile, device_kind=DeviceKind.EMULATED),
        offers=(device,),
        global_batch_size=batch,
        limits=Limits(max_gpus=6),
        override=Override(num_stages=min(most_stages, len(profile.layers.name))),
    )
    answer = solve(problem)
    assume(isinstance(answer, Solution))
    assert isinstance(answer, Solution)
    for plan in (answer.plan, *answer.alternatives):
        made = whole(problem, plan)
        assert plan.step_time is not None
        assert made.end_s == plan.step_time.expected_s
        for passes in made.stages:
            ends = [0.0, *(one.end_s for one in passes)]
            begins = [one.begin_s for one in passes]
            assert all(e <= b for e, b in zip(ends, begins, strict=False))
        some = timeline(problem, plan, shown)
        assert some is not None
        if not some.is_whole:
            assert some.stages == tuple(
                tuple(one for one in passes if one.begin_s < some.end_s)
                for passes in made.stages
            )
