"""Bounds of a step when its passes lie within bounds."""

from __future__ import annotations

import dataclasses
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from plimsoll_planner.records.offer import Link
from plimsoll_planner.records.strategy import Mesh
from plimsoll_planner.schedules.one_f_one_b import OneFOneB
from plimsoll_planner.timing import step_walk, walk_bounds
from plimsoll_planner.timing.stage_times import StageTimes
from plimsoll_planner.timing.topology import topology
from tests.support.builders import an_offer

walk = partial(step_walk.walk, OneFOneB())
step_interval = partial(walk_bounds.step_interval, OneFOneB())
SECONDS = st.floats(0.1, 8.0)
CORES = st.sampled_from([None, 1, 2, 3])
LINKS = st.sampled_from([None, Link(bandwidth_bytes_per_s=10.0)])


@st.composite
def stages(draw: st.DrawFn) -> list[StageTimes]:
    """Draw up to five stages."""
    return [
        StageTimes(
            forward_s=draw(SECONDS),
            backward_s=draw(SECONDS),
            sent_bytes=draw(st.integers(0, 3)),
            end_s=draw(st.floats(0.0, 4.0)),
        )
        for _ in range(draw(st.integers(1, 5)))
    ]


def a_stage() -> StageTimes:
    """Build a stage that sends nothing, 1 s forward and 2 s backward."""
    return StageTimes(
        forward_s=1.0,
        backward_s=2.0,
        sent_bytes=0,
        end_s=0.0,
    )


def scaled(times: list[StageTimes], factors: list[float]) -> list[StageTimes]:
    """Stages with their passes longer or shorter, one factor for each."""
    pairs = zip(factors[::2], factors[1::2], strict=False)
    return [
        dataclasses.replace(
            one, forward_s=one.forward_s * f, backward_s=one.backward_s * b
        )
        for one, (f, b) in zip(times, pairs, strict=False)
    ]


@given(
    stages(),
    st.lists(st.floats(0.9, 1.1), min_size=10, max_size=10),
    st.integers(1, 12),
    st.integers(1, 2),
    CORES,
    LINKS,
)
def test_no_step_within_the_box_lies_outside(
    times: list[StageTimes],
    factors: list[float],
    num_micro_batches: int,
    data_degree: int,
    cores: int | None,
    link: Link | None,
) -> None:
    """Every pass 10 % off at most: the walk of any such seconds is in the interval."""
    offer = an_offer(
        devices_per_node=64,
        link_in_node=link,
        concurrent_devices_per_node=cores,
        crowded_slowdown=1.0 if cores is None else 1.1,
    )
    placed = topology(offer, Mesh(pipeline=len(times), data=data_degree))
    bounds = [scaled(times, [part] * 10) for part in (0.9, 1.0, 1.1)]
    found = step_interval(bounds, num_micro_batches, placed)
    drawn_s = walk(scaled(times, factors), num_micro_batches, placed)
    assert found.lower_s * (1 - 1e-9) <= drawn_s <= found.upper_s * (1 + 1e-9)


def test_the_interval_of_ranks_that_share_nothing_is_exact() -> None:
    """P = 4, M = 8, F + B = 3 s: 11 slots of 2.7, 3 and 3.3 s."""
    times = [a_stage()] * 4
    placed = topology(
        an_offer(devices_per_node=64, link_in_node=None), Mesh(pipeline=4)
    )
    bounds = [scaled(times, [part] * 10) for part in (0.9, 1.0, 1.1)]
    found = step_interval(bounds, 8, placed)
    for seconds, slots in zip(
        (found.lower_s, found.expected_s, found.upper_s), (2.7, 3.0, 3.3), strict=True
    ):
        assert abs(seconds - 11 * slots) < 1e-9
