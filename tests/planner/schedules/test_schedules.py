"""Rules that every schedule obeys, held against the walk of its operations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.memory.chain_bytes import chain_bytes
from plimsoll_planner.memory.engine_holdings import holding_factors
from plimsoll_planner.memory.stage_peaks import stage_bytes
from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_planner.records.offer import Link, Offer
from plimsoll_planner.records.strategy import Mesh
from plimsoll_planner.schedules import SCHEDULES
from plimsoll_planner.timing.chain_seconds import chain_seconds
from plimsoll_planner.timing.schedule import Pass, PipelineSchedule
from plimsoll_planner.timing.stage_runs import run_seconds, shared_bound, stage_runs
from plimsoll_planner.timing.stage_times import StageTimes
from plimsoll_planner.timing.step_walk import last_backwards, walk
from plimsoll_planner.timing.topology import topology
from tests.support.builders import an_engine, an_offer
from tests.support.chains import random_profiles
from tests.support.drawing import draws
from tests.support.gradients import exchange_s, gradients_of

EVERY = pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES.keys())
LINKS = st.one_of(
    st.none(),
    st.builds(
        Link,
        bandwidth_bytes_per_s=st.sampled_from([0.5, 1.0, 3.0]),
        latency_s=st.sampled_from([0.0, 0.25]),
    ),
)
OFFERS = st.builds(
    an_offer,
    devices_per_node=st.integers(1, 8),
    link_in_node=LINKS,
    link_between_nodes=LINKS,
    concurrent_devices_per_node=st.integers(1, 4),
    crowded_slowdown=st.sampled_from([1.0, 1.5]),
)


@EVERY
@pytest.mark.parametrize("num_stages", range(1, 9))
@pytest.mark.parametrize("num_micro_batches", [1, 2, 3, 7, 8, 16])
def test_in_flight_is_what_the_operations_hold(
    schedule: PipelineSchedule, num_stages: int, num_micro_batches: int
) -> None:
    """Counted op by op: forward passes not yet answered are at most k, and k is met."""
    for stage in range(num_stages):
        open_now = most = 0
        seen: set[tuple[Pass, int]] = set()
        for operation in schedule.operations(stage, num_stages, num_micro_batches):
            open_now += 1 if operation.kind is Pass.FORWARD else -1
            most = max(most, open_now)
            if operation.kind is Pass.BACKWARD:
                assert (Pass.FORWARD, operation.micro_batch) in seen
            seen.add((operation.kind, operation.micro_batch))
        assert len(seen) == 2 * num_micro_batches
        assert open_now == 0
        assert most == schedule.in_flight(num_stages - stage, num_micro_batches)


@EVERY
def test_in_flight_does_not_fall_with_micro_batches(schedule: PipelineSchedule) -> None:
    """Bounds for every number of them rest on the fewest."""
    for num_left in range(1, 9):
        counts = [schedule.in_flight(num_left, m) for m in range(1, 20)]
        assert counts == sorted(counts)


@EVERY
@pytest.mark.parametrize("num_stages", range(1, 9))
@pytest.mark.parametrize("num_micro_batches", range(1, 18))
def test_saturated_stages_have_no_more_in_flight(
    schedule: PipelineSchedule, num_stages: int, num_micro_batches: int
) -> None:
    """However many micro-batches there are; all but the first have fewer than those."""
    if not schedule.is_saturated(num_stages, num_micro_batches):
        return
    for left in range(1, num_stages + 1):
        in_flight = schedule.in_flight(left, num_micro_batches)
        assert schedule.in_flight(left, 10 * num_micro_batches) == in_flight
        assert left == num_stages or in_flight < num_micro_batches


@st.composite
def caps_of(
    draw: st.DrawFn, schedule: PipelineSchedule, num_stages: int, num_micro_batches: int
) -> list[int]:
    """Draw numbers in flight that follow one another, often the most."""
    caps: list[int] = []
    for left in range(1, num_stages + 1):
        allowed = schedule.caps(left, num_micro_batches)
        least = max([*caps[:1], allowed[0]])
        most = min([*(caps[0] + 1 for _ in caps[:1]), allowed[-1]])
        least = most if draw(st.booleans()) else least
        caps.insert(0, draw(st.integers(least, most)))
    return caps


@EVERY
@settings(max_examples=draws(300))
@given(random_profiles(6), OFFERS, st.integers(1, 2), st.integers(1, 9), st.data())
def test_bounds_are_bounds(
    schedule: PipelineSchedule,
    profile: ModelProfile,
    offer: Offer,
    data_degree: int,
    num_micro_batches: int,
    data: st.DataObject,
) -> None:
    """For any cuts, recomputed seconds, links and M no walk is below any bound."""
    chain = chain_bytes(profile, Bound.EXPECTED, 1)
    seconds = chain_seconds(profile, offer, Bound.EXPECTED, 1)
    size = chain.num_layers
    inner = data.draw(st.sets(st.integers(1, max(size - 1, 1)), max_size=size - 1))
    cuts = (0, *sorted(cut for cut in inner if cut < size))
    added = [data.draw(st.integers(0, 3)) for _ in cuts]
    caps = data.draw(caps_of(schedule, len(cuts), num_micro_batches))
    placed = topology(offer, Mesh(pipeline=len(cuts), data=data_degree))
    sums = run_seconds(seconds)
    stages = stage_bytes(chain, holding_factors(an_engine().holds))
    runs = stage_runs(sums, chain.boundary, gradients_of(stages), placed)
    places = list(zip(cuts, (*cuts[1:], size), strict=True))
    times = [
        StageTimes(
            forward_s=float(sums.forward[place]),
            backward_s=float(sums.backward[place]) + more,
            sent_bytes=int(stages.sent[place[1]]),
            end_s=float(sums.optimizer_step[place])
            + exchange_s(
                *(placed, stage, int(stages.gradient[place])),
                int(stages.num_trained[place]),
            ),
            in_flight_cap=caps[stage],
        )
        for stage, (place, more) in enumerate(zip(places, added, strict=True))
    ]
    walked = walk(schedule, times, num_micro_batches, placed)
    both_s = sums.forward_before + sums.backward_before
    links_s = [
        hop.seconds(one.sent_bytes)
        for hop, one in zip(placed.hops, times, strict=False)
    ]
    for end in range(1, len(times) + 1):
        passes_s = float(both_s[-1] - both_s[places[end - 1][1]])
        behind_s = passes_s + 2 * sum(links_s[end - 1 :])
        first = times[:end], num_micro_batches, links_s, behind_s
        assert schedule.cycles_bound(*first) <= walked
    for stage, (place, more) in enumerate(zip(places, added, strict=True)):
        for k in schedule.caps(len(cuts) - stage, num_micro_batches):
            bound = schedule.stage_bound(
                *(runs[stage], stage, len(cuts), num_micro_batches), k
            )
            least_s = bound.step_s(num_micro_batches, np.array([[float(more)]]))
            if k == caps[stage]:
                assert least_s[place] <= walked
            if k >= caps[stage]:
                assert bound.with_fewer[place] <= walked
    closed = schedule.closed_bound(seconds.total, len(cuts), num_micro_batches)
    assert closed <= walked * (1 + 1e-12)
    assert shared_bound(seconds, placed, num_micro_batches) <= walked * (1 + 1e-12)
    short = schedule.last_backwards(times, num_micro_batches, placed)
    if short is not None:
        assert short == last_backwards(schedule, times, num_micro_batches, placed)
