"""Walks of a schedule: by hand, and with shared cores."""

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
from plimsoll_planner.timing.topology import Hop, Topology, topology
from tests.support.builders import an_offer
from tests.support.drawing import draws

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
    stages = [times(1, 2), times(1, 2, end_s=two.exchange_s(1, 20, 1) + 3)]
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
    """With a core for each rank, and nothing sent, the shared walk is the plain one."""
    number = len(stages)
    free = placed(number, replicas)
    shared = dataclasses.replace(free, concurrent_per_node=number * replicas)
    assert step_walk.SharedWalk(SCHEDULE, stages, count, shared).run() == walk(
        stages, count, free
    )
    assert walk(stages, count, shared) == walk(stages, count, free)


@settings(max_examples=draws(100))
@given(STAGES, st.integers(1, 6), st.integers(1, 2), st.integers(1, 3))
def test_cores_are_never_overrun(
    stages: list[StageTimes], count: int, replicas: int, cores: int
) -> None:
    """No sooner than all work over all cores, nor than with a core for each rank.

    Work includes each message twice, sent and received; a single core does nothing
    else, for it never waits.
    """
    number = len(stages)
    hops = (Hop(s_per_byte=1.0),) * (number - 1)
    free = dataclasses.replace(placed(number, replicas), hops=hops)
    shared = dataclasses.replace(free, concurrent_per_node=cores)
    found = walk(stages, count, shared)
    passes = sum(s.forward_s + s.backward_s for s in stages)
    messages = sum(2 * 2 * stage.sent_bytes for stage in stages[:-1])
    work = replicas * count * (passes + messages)
    assert found >= work / cores
    assert found >= walk(stages, count, free)
    if cores == 1:
        assert found == work


def test_two_cores_for_four_ranks() -> None:
    """P = 1, D = 4, on two cores what could start first goes first.

    core 0   F of 0 0-1   F of 2 1-2   B of 0 2-4   B of 2 4-6   steps 6-7, 7-8
    core 1   F of 1 0-1   F of 3 1-2   B of 1 2-4   B of 3 4-6   steps 6-7, 7-8
    """
    shared = placed(1, 4, concurrent_devices_per_node=2)
    stages = [times(1, 2, end_s=1)]
    assert walk(stages, 1, shared) == 8.0


def test_an_exchange_holds_a_core() -> None:
    """Four replicas on two cores, 4 bytes: 6 s of exchange each, two after the others.

    core 0   F of 0 0-1   F of 2 1-2   B of 0 2-4   B of 2 4-6   ends 6-13, 13-20
    core 1   F of 1 0-1   F of 3 1-2   B of 1 2-4   B of 3 4-6   ends 6-13, 13-20
    """
    offer = an_offer(
        devices_per_node=64,
        concurrent_devices_per_node=2,
        link_in_node=Link(bandwidth_bytes_per_s=1.0),
    )
    four = topology(offer, Mesh(pipeline=1, data=4))
    stages = [times(1, 2, end_s=four.exchange_s(0, 4, 1) + 1)]
    assert walk(stages, 1, four) == 20.0


def test_a_message_holds_a_core_at_both_ends() -> None:
    """Two stages, a core each, 1 byte a message and 1 s a byte.

    stage 0   F 0-1   out 1-2                                    in 7-8   B 8-10
    stage 1                     in 2-3   F 3-4   B 4-6   out 6-7
    """
    offer = an_offer(
        devices_per_node=2,
        concurrent_devices_per_node=2,
        link_in_node=Link(bandwidth_bytes_per_s=1.0),
    )
    stages = [times(1, 2, sent_bytes=1), times(1, 2)]
    assert walk(stages, 1, topology(offer, Mesh(pipeline=2))) == 10.0


def test_passes_are_slower_while_others_wait() -> None:
    """Three replicas on two cores: what begins while one waits takes 1.5 times as long.

    core 0   F of 0 0-1.5   F of 2 1.5-3   B of 1 3-6
    core 1   F of 1 0-1.5   B of 0 1.5-4.5   B of 2 4.5-6.5, when nobody waits
    """
    offer = an_offer(
        devices_per_node=64,
        concurrent_devices_per_node=2,
        crowded_slowdown=1.5,
        link_in_node=None,
    )
    assert walk([times(1, 2)], 1, topology(offer, Mesh(pipeline=1, data=2))) == 3.0
    assert walk([times(1, 2)], 1, topology(offer, Mesh(pipeline=1, data=3))) == 6.5
