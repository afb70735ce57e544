"""Pruned options err on the safe side of their use."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_planner.engines import PLIMSOLL
from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.memory.chain_bytes import chain_bytes
from plimsoll_planner.memory.engine_holdings import holding_factors
from plimsoll_planner.memory.flow import Flow
from plimsoll_planner.memory.joint_options import with_others
from plimsoll_planner.memory.option_arrays import build_options
from plimsoll_planner.memory.rank_peak import StageLoad, rank_peak
from plimsoll_planner.memory.stage_peaks import (
    least_peaks,
    least_seconds,
    peaks_of_run,
    room_of,
    stage_bytes,
)
from tests.support.chains import LAYERS, Activation, Layer, chain_profile, full_flow
from tests.support.drawing import draws

HELD = holding_factors(PLIMSOLL.holds)
DIFFERENT = st.lists(LAYERS, min_size=4, max_size=8)


@settings(max_examples=draws(100))
@given(DIFFERENT, st.integers(1, 3), st.integers(0, 40))
def test_pruned_options_bound_the_exact_ones_from_both_sides(
    layers: list[Layer], in_flight: int, slack: int
) -> None:
    """Merged ones are never above, dropped ones never below, and those are real.

    With the options of the least memory beside them, that is the exact one.
    """
    chain = chain_bytes(chain_profile(layers), Bound.UPPER, 1)
    added = np.array([layer.recompute_s for layer in layers])
    flow = full_flow(in_flight)
    stages = stage_bytes(chain, HELD)
    exact = build_options(chain, HELD, added)
    merged = build_options(chain, HELD, added, is_lower=True, most=2)
    dropped = build_options(chain, HELD, added, most=2)
    assert not exact.pruned.any()
    assert merged.count.max() <= 4
    assert dropped.count.max() <= 4
    least = build_options(chain, HELD, added, at_any_speed=True)
    joint = with_others(dropped, least)
    peaks = least_peaks(stages, exact, flow)
    assert (least_peaks(stages, merged, flow) <= peaks).all()
    assert (least_peaks(stages, dropped, flow) >= peaks).all()
    assert (least_peaks(stages, joint, flow) == peaks).all()
    capacity = int(peaks[0, len(layers)]) + slack
    asked = in_flight, room_of(stages, flow, capacity)
    quickest = least_seconds(exact, *asked)
    assert (least_seconds(merged, *asked) <= quickest).all()
    seconds = least_seconds(dropped, *asked)
    assert (seconds >= quickest).all()
    with_least = least_seconds(joint, *asked)
    assert ((quickest <= with_least) & (with_least <= seconds)).all()
    for run in itertools.combinations(range(len(layers) + 1), 2):
        found = peaks_of_run(stages, joint, flow, *run)
        mine = joint.of(*run)
        for place in range(mine.stop - mine.start):
            recomputed = joint.recomputed(*run, place)
            assert joint.num_recomputed[mine][place] == len(recomputed)
            assert joint.seconds[mine][place] == pytest.approx(
                added[list(recomputed)].sum()
            )
            load = StageLoad(
                first=run[0],
                end=run[1],
                recomputed=frozenset(recomputed),
                flow=Flow(
                    in_flight=in_flight,
                    num_micro_batches=in_flight,
                    micro_batch=1,
                    data_degree=1,
                ),
            )
            assert rank_peak(chain, load, HELD) == found[place]


@settings(max_examples=draws(100))
@given(DIFFERENT, st.integers(1, 3))
def test_pruning_without_seconds_keeps_both_ends(
    layers: list[Layer], in_flight: int
) -> None:
    """The least saved and the least peak of each run; all were one part before."""
    chain = chain_bytes(chain_profile(layers), Bound.UPPER, 1)
    exact = build_options(chain, HELD, None)
    merged = build_options(chain, HELD, None, is_lower=True, most=3)
    assert (merged.least_saved == exact.least_saved).all()
    assert (merged.least_peak == exact.least_peak).all()
    flow = Flow(in_flight=in_flight, num_micro_batches=9, micro_batch=1, data_degree=1)
    stages = stage_bytes(chain, HELD)
    crowded = merged.pruned & (exact.count > 0)
    assert (merged.count[crowded] >= 2).all()
    assert (least_peaks(stages, merged, flow) <= least_peaks(stages, exact, flow)).all()


def test_many_different_layers_stay_within_bounds() -> None:
    """Thirty layers, each of its own kind: options are pruned, and the run says so."""
    rng = np.random.default_rng(1)
    layers = []
    for saved, seconds in zip(rng.integers(50, 99, 30), rng.random(30), strict=True):
        kept = Activation(saved=int(saved), keeps_input=True, backward=int(saved) + 9)
        layers.append(Layer(boundary=1, kept=kept, recompute_s=float(seconds)))
    chain = chain_bytes(chain_profile(layers), Bound.UPPER, 1)
    added = np.array([layer.recompute_s for layer in layers])
    options = build_options(chain, HELD, added, most=64)
    assert options.pruned[0, 30]
    assert not options.pruned[0, 4]
    assert options.count.max() <= 128
