"""Bounds of what recomputing adds, against the exact options."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_planner.memory.added_bounds import (
    NUM_PRICES,
    held_bytes,
    least_added,
    prices,
)
from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.memory.chain_bytes import (
    LARGEST_BYTES,
    chain_bytes,
    with_outputs_held_once,
)
from plimsoll_planner.memory.engine_holdings import holding_factors
from plimsoll_planner.memory.flow import Flow
from plimsoll_planner.memory.option_arrays import build_options
from plimsoll_planner.memory.stage_peaks import (
    least_peaks,
    least_seconds,
    room_of,
    stage_bytes,
)
from plimsoll_planner.records.engine import EngineHoldings
from plimsoll_planner.records.model_profile import ModelProfile
from tests.planner.memory.test_option_arrays import HOLDINGS, flows
from tests.support.builders import an_engine
from tests.support.chains import Activation, Layer, chain_profile, random_profiles
from tests.support.drawing import draws


@settings(max_examples=draws(150))
@given(random_profiles(6), HOLDINGS, flows(), st.booleans())
def test_no_bound_is_above_the_exact_seconds(
    profile: ModelProfile, holds: EngineHoldings, flow: Flow, is_once: bool
) -> None:
    """Every run, at every capacity at which the least peak of some run just fits."""
    holdings = holding_factors(holds)
    chain = chain_bytes(profile, Bound.EXPECTED, flow.micro_batch)
    if is_once and holdings.output_kept:
        chain = with_outputs_held_once(chain)
    assert profile.costs.recompute is not None
    slopes = profile.costs.recompute.slope_s_per_sample
    added = np.array([slopes[row] for row in chain.row])
    options, stages = (
        build_options(chain, holdings, added),
        stage_bytes(chain, holdings),
    )
    least = least_peaks(stages, options, flow)
    starts = np.arange(chain.num_layers + 1)
    held = held_bytes(chain)
    for capacity in np.unique(least[least < LARGEST_BYTES]).tolist():
        asked = flow.in_flight, room_of(stages, flow, capacity)
        bound = least_added(held, added, *asked, starts)
        exact = least_seconds(options, *asked)
        assert (bound <= exact).all()


def test_equal_layers_pay_for_each_byte_that_is_too_much() -> None:
    """Three micro-batches hold 20 bytes in each of 9 layers, the last one aside: 540.

    400 fit, so of each 140 / 3 are too much, and a layer spares 20 for 2 s.
    """
    layer = Layer(
        boundary=0, kept=Activation(saved=20), again=Activation(), recompute_s=2.0
    )
    profile = chain_profile([layer] * 10)
    chain = chain_bytes(profile, Bound.EXPECTED, 1)
    holdings = holding_factors(an_engine().holds)
    stages, flow = (
        stage_bytes(chain, holdings),
        Flow(in_flight=3, num_micro_batches=3, micro_batch=1, data_degree=1),
    )
    room = room_of(stages, flow, 400)
    found = least_added(
        held_bytes(chain), np.full(10, 2.0), flow.in_flight, room, np.arange(11)
    )
    assert np.isclose(found[0, 10], 140 / 3 * 2 / 20)
    assert found[0, 5] == 0
    assert found[5, 5] == np.inf


def test_few_prices_stand_for_many() -> None:
    """From the cheapest byte to the dearest one."""
    spared, added = np.full(100, 10), np.arange(100, dtype=np.float64)
    found = prices(spared, added)
    assert (len(found), found[0], found[-1]) == (NUM_PRICES, 0, 9.9)
    assert len(prices(np.zeros(3, dtype=np.int64), np.ones(3))) == 0
