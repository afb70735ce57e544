"""Carried values in the formula, against events of the engine, and in the search."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.memory.chain_bytes import chain_bytes
from plimsoll_planner.memory.engine_holdings import holding_factors
from plimsoll_planner.memory.flow import Flow
from plimsoll_planner.memory.rank_peak import Peak, StageLoad, pass_peaks, phase_peaks
from plimsoll_planner.memory.stage_peaks import stage_bytes
from plimsoll_planner.records.engine import EngineHoldings
from plimsoll_planner.records.model_profile import ModelProfile
from tests.planner.memory.test_option_arrays import (
    HOLDINGS,
    OUTPUTS_KEPT,
    check_against_formula,
    flows,
)
from tests.support.builders import an_engine
from tests.support.carried import Value, carried_columns, carrying_profiles
from tests.support.chains import Activation, Layer, chain_profile
from tests.support.drawing import draws
from tests.support.enumerated_carried import Stage, stage_runs

OURS = dataclasses.replace(an_engine().holds, logits_kept=False)
HELD = holding_factors(OURS)
BLOCK = Layer(
    boundary=2,
    kept=Activation(saved=3, keeps_input=True, forward=4, backward=9, held=1),
)


def a_load(first: int, end: int, *again: int, in_flight: int, count: int) -> StageLoad:
    """Build a stage with micro-batches of one sample."""
    flow = Flow(
        in_flight=in_flight, num_micro_batches=count, micro_batch=1, data_degree=1
    )
    return StageLoad(first=first, end=end, recomputed=frozenset(again), flow=flow)


def largest(profile: ModelProfile, load: StageLoad, bound: Bound) -> tuple[int, int]:
    """Most bytes of passes, forward and backward, above those that stand."""
    chain = chain_bytes(profile, bound, load.flow.micro_batch)
    forward, backward = pass_peaks(chain, load, HELD)
    return max(map(Peak.total, forward)), max(map(Peak.total, backward))


@settings(max_examples=draws(40))
@given(carrying_profiles(4), flows(), st.data())
def test_the_formula_is_what_events_hold(
    profile: ModelProfile, flow: Flow, data: st.DataObject
) -> None:
    """Every stage under every bound, any layers recomputed; the bounds are in order."""
    size = len(profile.layers.name)
    layers = [
        layer
        for layer in range(size)
        if profile.costs.recomputable[profile.layers.kind[layer]]
    ]
    again = data.draw(st.sets(st.sampled_from(layers)) if layers else st.just(set()))
    for run in stage_runs(size):
        mine = frozenset(again) & {*range(*run)}
        load = StageLoad(first=run[0], end=run[1], recomputed=mine, flow=flow)
        peaks: list[tuple[int, int]] = []
        for bound in Bound:
            stage = Stage(profile, bound, flow.micro_batch, run, mine)
            most = stage.step(flow.in_flight, flow.num_micro_batches).most
            peaks.append(largest(profile, load, bound))
            assert peaks[-1] == (most["F"], most["B"])
        for lower, upper in itertools.pairwise(peaks):
            assert max(lower) <= max(upper)


@settings(max_examples=draws(60))
@given(carrying_profiles(4), HOLDINGS, flows(), st.integers(0, 20))
def test_options_are_the_formula_with_carried_values(
    profile: ModelProfile, holds: EngineHoldings, flow: Flow, slack: int
) -> None:
    """Peaks, least peak, fewest layers and least seconds of every run and engine."""
    check_against_formula(profile, holds, flow, slack)
    check_against_formula(profile, OUTPUTS_KEPT, flow, slack, is_lower=True)


@st.composite
def carrying_blocks(draw: st.DrawFn) -> ModelProfile:
    """Draw equal blocks that swap what recomputes, below and beside carried values."""
    block = dataclasses.replace(
        BLOCK,
        kept=Activation(saved=8, keeps_input=True, forward=9, backward=12, held=2),
        again=Activation(keeps_input=True, forward=5, backward=13, held=2),
    )
    size = draw(st.integers(3, 5))
    values: list[Value] = []
    for _ in range(draw(st.integers(1, 3))):
        giver = draw(st.integers(0, size - 2))
        takers = draw(st.sets(st.integers(giver + 1, size - 1), min_size=1, max_size=2))
        num_bytes = draw(st.integers(1, 5))
        values.append(
            Value(giver=giver, takers=tuple(sorted(takers)), num_bytes=num_bytes)
        )
    return chain_profile([block] * size, carried=carried_columns(values))


@settings(max_examples=draws(40))
@given(carrying_blocks(), flows(), st.integers(0, 20))
def test_runs_of_equal_layers_lose_nothing_beside_carried_values(
    profile: ModelProfile, flow: Flow, slack: int
) -> None:
    """If only the first layers of a run recompute, the best choices still exist."""
    check_against_formula(profile, OURS, flow, slack)


VALUES = [
    Value(giver=0, takers=(1, 3), num_bytes=10),
    Value(giver=1, takers=(2,), num_bytes=100),
    Value(giver=-1, takers=(3,), num_bytes=1000, has_gradient=False),
]
FOUR = chain_profile([BLOCK] * 4, carried=carried_columns(VALUES))


def test_cuts_are_crossed_between_giver_and_last_taker() -> None:
    """And gradients come back through them; an input of the model has none."""
    chain = chain_bytes(FOUR, Bound.EXPECTED, 1)
    carried = chain.carried
    assert carried.given.tolist() == [10, 100, 0, 0]
    assert carried.crossing.tolist() == [1010, 1110, 1010, 0]
    assert carried.returning.tolist() == [10, 110, 10, 0]
    assert chain.saved.tolist()[0] == [13, 103, 3, 3]
    assert stage_bytes(chain, HELD).sent.tolist() == [0, 1012, 1112, 1012, 0]


def test_gradients_live_from_the_last_taker_to_the_giver() -> None:
    """In a stage of all four: 10 before layers 1 and 2, 100 before none.

    The value of layer 1 is taken by the next layer, whose transient counts its gradient
    as it is made, and that of layer 1 as it is used.
    """
    carried = chain_bytes(FOUR, Bound.EXPECTED, 1).carried
    assert [int(carried.alive(layer)[4]) for layer in range(4)] == [0, 10, 10, 0]
    # Without layer 3 the gradient is received, and layers add to it.
    assert [int(carried.alive(layer)[3]) for layer in range(3)] == [0, 0, 0]
    assert carried.straight(0).tolist() == [0, 10, 10, 10, 0]


@pytest.mark.parametrize("count", [2, 3])
def test_a_stage_in_the_middle(count: int) -> None:
    """Layers 1 and 2 with k = 2 of M = 2 or 3, both kept.

    received 2 + 10 + 1000 = 1012, back 2 + 10; behind: sent 2, back 2 + 10
    S        103 + 2 + 3 = 108     R = 1120
    start    1120 + 1012 + [M > 2] 12
    forward  layer 1: 4 + unsent 2; layer 2: 103 + 2 + 4 + 2; exchange 108 + 2 + 12
    backward layer 1: 9 + 12; layer 2: 103 + 2 + 10 + 10 of the other one's, held
    """
    start = 1120 + 1012 + 12 * (count > 2)
    load = a_load(1, 3, in_flight=2, count=count)
    assert largest(FOUR, load, Bound.EXPECTED) == (start + 122, start + 125)


def test_all_gradients_are_there_when_a_pass_is_over() -> None:
    """Layer 2 alone hands on 10 and 1000, and takes 100: no lower bytes count that.

    It has received 2 + 10 from behind, and sends 2 + 10 + 100.
    """
    load = a_load(2, 3, in_flight=1, count=1)
    received = 2 + 1110
    exchange, turned, end = received + 3 + 2 + 12, received + 20, received + 124
    assert largest(FOUR, load, Bound.LOWER) == (exchange, turned)
    for bound in (Bound.EXPECTED, Bound.UPPER):
        assert largest(FOUR, load, bound) == (exchange, end)


def test_a_received_gradient_counts_once_where_it_is_used() -> None:
    """Layers 0 and 1; layer 0 has given 10 that are taken behind them.

    Its transient of 9 counts the gradient until it is used. If the engine holds that it
    is at most 10, as at the end of a stage; the received 2 + 10 are there as well. What
    layer 1 gives has its gradient among what is received too, and in its transient.
    """
    turned = {
        bound: pass_peaks(
            chain_bytes(FOUR, bound, 1), a_load(0, 2, in_flight=1, count=1), HELD
        )[1]
        for bound in Bound
    }
    by_layer = {
        bound: [peak.total() for peak in peaks] for bound, peaks in turned.items()
    }
    behind = 2 + 10 + 100
    own = 100  # of layer 1, which may be what comes to layer 0
    assert by_layer[Bound.LOWER] == [9 + behind - own - 10, 13 + 2 + 10 + 10]
    assert by_layer[Bound.EXPECTED] == [10 + behind - 10, 13 + 2 + 10 + 10]
    assert by_layer[Bound.UPPER] == by_layer[Bound.EXPECTED]


def test_a_profile_without_values_has_no_terms_of_them() -> None:
    """All arrays are empty or zero, and the formula is the one of a chain."""
    plain = chain_profile([BLOCK] * 4)
    carried = chain_bytes(plain, Bound.UPPER, 1).carried
    assert carried.is_empty
    assert not carried.crossing.any()
    load = a_load(1, 3, in_flight=2, count=3)
    peaks = phase_peaks(chain_bytes(plain, Bound.UPPER, 1), load, HELD)
    without = dataclasses.replace(FOUR, carried=plain.carried)
    assert phase_peaks(chain_bytes(without, Bound.UPPER, 1), load, HELD) == peaks
