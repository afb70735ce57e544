"""1F1B on paper."""

from __future__ import annotations

from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.memory.chain_bytes import chain_bytes
from plimsoll_planner.memory.engine_holdings import holding_factors
from plimsoll_planner.memory.stage_peaks import stage_bytes
from plimsoll_planner.records.offer import Link, Offer
from plimsoll_planner.records.strategy import Mesh
from plimsoll_planner.schedules.one_f_one_b import OneFOneB
from plimsoll_planner.timing.chain_seconds import chain_seconds
from plimsoll_planner.timing.stage_runs import StageBound, run_seconds, stage_runs
from plimsoll_planner.timing.stage_times import StageTimes
from plimsoll_planner.timing.step_walk import walk
from plimsoll_planner.timing.topology import topology
from tests.support.builders import an_engine, an_offer
from tests.support.chains import Layer, chain_profile
from tests.support.gradients import gradients_of

SCHEDULE = OneFOneB()


def test_three_stages_and_four_micro_batches() -> None:
    """The table of the module's text."""
    lines = [" ".join(map(str, SCHEDULE.operations(s, 3, 4))) for s in range(3)]
    assert lines == [
        "F0 F1 F2 B0 F3 B1 B2 B3",
        "F0 F1 B0 F2 B1 F3 B2 B3",
        "F0 B0 F1 B1 F2 B2 F3 B3",
    ]


def bounds_of(layer: Layer, offer: Offer, num_micro_batches: int) -> list[StageBound]:
    """Bounds of four stages of four equal layers."""
    profile = chain_profile([layer] * 4)
    chain = chain_bytes(profile, Bound.EXPECTED, 1)
    stages = stage_bytes(chain, holding_factors(an_engine().holds))
    placed = topology(offer, Mesh(pipeline=4))
    runs = stage_runs(
        run_seconds(chain_seconds(profile, offer, Bound.EXPECTED, 1)),
        chain.boundary,
        gradients_of(stages),
        placed,
    )
    return [
        SCHEDULE.stage_bound(
            mine, s, 4, num_micro_batches, min(num_micro_batches, 4 - s)
        )
        for s, mine in enumerate(runs)
    ]


def test_a_balanced_pipeline_meets_its_bound() -> None:
    """P = 4, M = 8, F + B = 3 s a stage: the last stage's bound is the step, 33 s."""
    bounds = bounds_of(Layer(), an_offer(link_in_node=None), 8)
    assert [bounds[s].passes[s, s + 1] for s in range(4)] == [30.0, 31.0, 32.0, 33.0]


def test_slow_links_bind_even_stages_by_their_cycles() -> None:
    """P = 4, M = 64, F + B = 3 s, 1 s a link: 4.5 s a micro-batch, not 3.

    A pass goes round all four stages and six links in 18 s, and four micro-batches go
    with it. By the passes of a stage alone the walk was 1.47 times its bound.
    """
    offer = an_offer(
        devices_per_node=1, link_between_nodes=Link(bandwidth_bytes_per_s=1.0)
    )
    bounds = bounds_of(Layer(boundary=1), offer, 64)
    times = StageTimes(
        forward_s=1.0,
        backward_s=2.0,
        sent_bytes=1,
        end_s=0.0,
    )
    walked = walk(SCHEDULE, [times] * 4, 64, topology(offer, Mesh(pipeline=4)))
    passes = max(bounds[s].passes[s, s + 1] for s in range(4))
    cycles = max(bounds[s].cycles[s, s + 1] for s in range(4))
    assert walked / passes > 1.4
    assert walked / cycles < 1.03
