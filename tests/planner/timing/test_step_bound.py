"""No 1F1B step is shorter than its bound."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_planner.memory.chain_bytes import Bound, chain_bytes
from plimsoll_planner.memory.engine_holdings import held_by
from plimsoll_planner.memory.stage_peaks import StageBytes, stage_bytes
from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_planner.records.offer import Link, Offer
from plimsoll_planner.timing.chain_seconds import chain_seconds
from plimsoll_planner.timing.stage_times import StageTimes
from plimsoll_planner.timing.step_bound import (
    Gradients,
    closed_bound,
    run_seconds,
    shared_bound,
    stage_bounds,
)
from plimsoll_planner.timing.step_walk import walk
from plimsoll_planner.timing.topology import topology
from tests.support.builders import an_engine, an_offer
from tests.support.chains import Layer, chain_profile, random_profiles
from tests.support.drawing import draws

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


def gradients_of(stages: StageBytes) -> Gradients:
    """Return what replicas exchange."""
    return Gradients(num_bytes=stages.gradient, exchanges=stages.num_exchanges)


@settings(max_examples=draws(300))
@given(random_profiles(6), OFFERS, st.integers(1, 2), st.integers(1, 9), st.data())
def test_the_walk_is_never_below_the_bound(
    profile: ModelProfile,
    offer: Offer,
    data_degree: int,
    num_micro_batches: int,
    data: st.DataObject,
) -> None:
    """For any cuts, recomputed seconds, links and M: bound and closed bound hold."""
    chain = chain_bytes(profile, Bound.EXPECTED, 1)
    seconds = chain_seconds(profile, offer, Bound.EXPECTED, 1)
    size = chain.num_layers
    inner = data.draw(st.sets(st.integers(1, max(size - 1, 1)), max_size=size - 1))
    cuts = (0, *sorted(cut for cut in inner if cut < size))
    added = [data.draw(st.integers(0, 3)) for _ in cuts]
    placed = topology(offer, len(cuts), data_degree)
    runs = run_seconds(seconds)
    stages = stage_bytes(chain, held_by(an_engine().holds))
    bounds = stage_bounds(
        runs, chain.boundary, gradients_of(stages), placed, num_micro_batches
    )
    places = list(zip(cuts, (*cuts[1:], size), strict=True))
    times = [
        StageTimes(
            forward_s=float(runs.forward[place]),
            backward_s=float(runs.backward[place]) + more,
            sent_bytes=int(stages.sent[place[1]]),
            gradient_bytes=int(stages.gradient[place]),
            num_exchanges=int(stages.num_exchanges[place]),
            optimizer_step_s=float(runs.optimizer_step[place]),
        )
        for place, more in zip(places, added, strict=True)
    ]
    walked = walk(times, num_micro_batches, placed)
    for stage, (place, more) in enumerate(zip(places, added, strict=True)):
        bound = bounds[stage].step_s(num_micro_batches, np.array([[float(more)]]))
        assert bound[place] <= walked
    closed = closed_bound(seconds.total, len(cuts), num_micro_batches)
    assert closed <= walked * (1 + 1e-12)


def test_a_balanced_pipeline_meets_its_bound() -> None:
    """P = 4, M = 8, F + B = 3 s a stage: the last stage's bound is the step, 33 s."""
    profile = chain_profile([Layer()] * 4)
    chain = chain_bytes(profile, Bound.EXPECTED, 1)
    placed = topology(an_offer(link_in_node=None), 4, 1)
    runs = run_seconds(chain_seconds(profile, an_offer(), Bound.EXPECTED, 1))
    stages = stage_bytes(chain, held_by(an_engine().holds))
    bounds = stage_bounds(runs, chain.boundary, gradients_of(stages), placed, 8)
    assert [bounds[s].passes[s, s + 1] for s in range(4)] == [30.0, 31.0, 32.0, 33.0]


def test_slow_links_bind_even_stages_by_their_cycles() -> None:
    """P = 4, M = 64, F + B = 3 s, 1 s a link: 4.5 s a micro-batch, not 3.

    A pass goes round all four stages and six links in 18 s, and four micro-batches go
    with it. By the passes of a stage alone the walk was 1.47 times its bound.
    """
    offer = an_offer(
        devices_per_node=1, link_between_nodes=Link(bandwidth_bytes_per_s=1.0)
    )
    profile = chain_profile([Layer(boundary=1)] * 4)
    chain = chain_bytes(profile, Bound.EXPECTED, 1)
    placed = topology(offer, 4, 1)
    runs = run_seconds(chain_seconds(profile, offer, Bound.EXPECTED, 1))
    stages = stage_bytes(chain, held_by(an_engine().holds))
    bounds = stage_bounds(runs, chain.boundary, gradients_of(stages), placed, 64)
    times = StageTimes(
        forward_s=1.0,
        backward_s=2.0,
        sent_bytes=1,
        gradient_bytes=0,
        num_exchanges=0,
        optimizer_step_s=0.0,
    )
    walked = walk([times] * 4, 64, placed)
    passes = max(bounds[s].passes[s, s + 1] for s in range(4))
    cycles = max(bounds[s].cycles[s, s + 1] for s in range(4))
    assert walked / passes > 1.4
    assert walked / cycles < 1.03


def test_shared_cores_bound_all_work() -> None:
    """Two replicas of 8 micro-batches of 12 s on 3 cores; without a limit no bound."""
    profile = chain_profile([Layer()] * 4)
    offer = an_offer(concurrent_devices_per_node=3)
    seconds = chain_seconds(profile, offer, Bound.EXPECTED, 1)
    assert shared_bound(seconds, topology(offer, 2, 2), 8) == 2 * 8 * 12 / 3
    assert shared_bound(seconds, topology(an_offer(), 2, 2), 8) == 0.0
