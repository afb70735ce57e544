"""Walks of a schedule, by hand; all work over shared cores."""

from __future__ import annotations

import dataclasses
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_planner.records.offer import Link
from plimsoll_planner.records.strategy import Mesh
from plimsoll_planner.schedules.one_f_one_b import OneFOneB
from plimsoll_planner.timing import step_walk
from plimsoll_planner.timing.stage_times import StageTimes
from plimsoll_planner.timing.topology import Topology, topology
from tests.support.builders import an_offer
from tests.support.drawing import draws
from tests.support.gradients import exchange_s

SCHEDULE = OneFOneB()
walk = partial(step_walk.walk, SCHEDULE)
last_backwards = partial(step_walk.last_backwards, SCHEDULE)


def times(forward_s: float, backward_s: float, **fields: float) -> StageTimes:
    """Build a stage that sends nothing."""
    defaults: dict[str, float] = {
        "sent_bytes": 0,
        "end_s": 0.0,
    }
    return StageTimes(
        forward_s=forward_s,
        backward_s=backward_s,
        **(defaults | fields),  # type: ignore[arg-type]
    )


def placed(num_stages: int, data_degree: int = 1, **fields: object) -> Topology:
    """Place ranks on one node without links."""
    offer = an_offer(devices_per_node=64, link_in_node=None, **fields)
    return topology(offer, Mesh(pipeline=num_stages, data=data_degree))


def test_balanced_stages_take_m_plus_p_minus_1_slots() -> None:
    """The textbook: P = 4, M = 8, F + B = 3 s: 11 slots of 3 s."""
    assert walk([times(1, 2)] * 4, 8, placed(4)) == 33.0


def test_two_stages_by_hand() -> None:
    """F0 at 0-1, stage 1 F0 1-4, B0 4-8; one second over the link each way.

    stage 0   F0 0-1  F1 1-2   B0 10-12         B1 17-19
    stage 1   F0 2-5  B0 5-9   F1 9-12  B1 12-16
    """
    link = Link(bandwidth_bytes_per_s=1.0)
    offer = an_offer(devices_per_node=2, link_in_node=link)
    stages = [times(1, 2, sent_bytes=1), times(3, 4)]
    assert walk(stages, 2, topology(offer, Mesh(pipeline=2))) == 19.0


def test_the_end_is_the_exchange_and_the_optimizer() -> None:
    """The stage that ends first may be last when its gradients are exchanged."""
    link = Link(bandwidth_bytes_per_s=1.0)
    offer = an_offer(devices_per_node=4, link_in_node=link)
    two = topology(offer, Mesh(pipeline=2, data=2))
    stages = [times(1, 2), times(1, 2, end_s=exchange_s(two, 1, 20, 1) + 3)]
    # Last backward passes end at 7 s (stage 1) and 9 s (stage 0) ...
    assert last_backwards(stages, 2, two) == [9.0, 7.0]
    # ... and 20 bytes over two replicas take 2 steps of 10 s.
    assert walk(stages, 2, two) == 7.0 + 20.0 + 3.0


STAGES = st.lists(
    st.builds(
        times,
        st.integers(0, 5).map(float),
        st.integers(0, 9).map(float),
        sent_bytes=st.integers(0, 3),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=draws(100))
@given(STAGES, st.integers(1, 8), st.integers(1, 2))
def test_enough_cores_are_no_limit(
    stages: list[StageTimes], count: int, replicas: int
) -> None:
    """With a core for each rank the step is that of ranks alone."""
    number = len(stages)
    free = placed(number, replicas)
    shared = dataclasses.replace(free, concurrent_per_node=number * replicas)
    assert walk(stages, count, shared) == walk(stages, count, free)


def test_four_ranks_on_two_cores() -> None:
    """P = 1, D = 4, 3 s and a step of 1 s: 16 s of work on two cores.

    core 0   F of 0 0-1   F of 2 1-2   B of 0 2-4   B of 2 4-6   steps 6-7, 7-8
    core 1   F of 1 0-1   F of 3 1-2   B of 1 2-4   B of 3 4-6   steps 6-7, 7-8
    """
    shared = placed(1, 4, concurrent_devices_per_node=2)
    assert walk([times(1, 2, end_s=1)], 1, shared) == 8.0


def test_a_message_holds_a_core_at_both_ends() -> None:
    """Two stages on one core, 1 byte a message and 1 s a byte: 6 s and four copies."""
    offer = an_offer(
        devices_per_node=2,
        concurrent_devices_per_node=1,
        link_in_node=Link(bandwidth_bytes_per_s=1.0),
    )
    stages = [times(1, 2, sent_bytes=1), times(1, 2)]
    assert walk(stages, 1, topology(offer, Mesh(pipeline=2))) == 10.0


def test_crowded_passes_are_slower() -> None:
    """Three replicas on two cores, 9 s of work, 1.5 times as long; two are no crowd."""
    offer = an_offer(
        devices_per_node=64,
        concurrent_devices_per_node=2,
        crowded_slowdown=1.5,
        link_in_node=None,
    )
    assert walk([times(1, 2)], 1, topology(offer, Mesh(pipeline=1, data=2))) == 3.0
    assert walk([times(1, 2)], 1, topology(offer, Mesh(pipeline=1, data=3))) == 6.75
