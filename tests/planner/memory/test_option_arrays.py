"""Options against the formula: every run, every set of layers that recompute."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_planner.engines import PLIMSOLL_ON_TORCH_2_11
from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.memory.chain_bytes import (
    ChainBytes,
    chain_bytes,
    with_outputs_held_once,
)
from plimsoll_planner.memory.engine_holdings import HoldingFactors, holding_factors
from plimsoll_planner.memory.flow import Flow
from plimsoll_planner.memory.option_arrays import build_options
from plimsoll_planner.memory.rank_peak import StageLoad, rank_peak
from plimsoll_planner.memory.run_options import swappable
from plimsoll_planner.memory.stage_peaks import (
    least_peaks,
    least_seconds,
    option_peaks,
    peaks_of_run,
    room_of,
    stage_bytes,
)
from plimsoll_planner.records.engine import EngineHoldings, ReceiveBuffers, Sharding
from plimsoll_planner.records.model_profile import ModelProfile, TiedLayers
from plimsoll_planner.techniques.sharded_layers import LayersAtWork, ShardedLayers
from plimsoll_planner.techniques.technique import UNCHANGED, Choice
from tests.support.builders import an_engine
from tests.support.chains import (
    SMALL,
    Activation,
    Layer,
    chain_profile,
    random_profiles,
)
from tests.support.drawing import draws

HOLDINGS = st.builds(
    EngineHoldings,
    receive_buffers=st.sampled_from(list(ReceiveBuffers)),
    stage_outputs_kept=st.booleans(),
    logits_kept=st.booleans(),
    sends_waited_at_step_end=st.booleans(),
    gradient_bucket_copies=st.sampled_from([0.0, 0.5, 1.0]),
)


@st.composite
def flows(draw: st.DrawFn) -> Flow:
    """Draw how a stage works."""
    count = draw(st.integers(1, 5))
    return Flow(
        in_flight=draw(st.integers(1, count)),
        num_micro_batches=count,
        micro_batch=draw(st.integers(1, 3)),
        data_degree=draw(st.integers(1, 2)),
    )


@st.composite
def block_profiles(draw: st.DrawFn) -> ModelProfile:
    """Draw chains of blocks that meet the conditions of the exchange argument."""
    boundary = draw(st.integers(1, 3))
    saved = draw(st.integers(boundary, 9))
    forward, backward = draw(SMALL), draw(SMALL)
    keeps_output = draw(st.booleans())
    block = Layer(
        boundary=boundary,
        kept=Activation(
            saved=saved,
            keeps_input=True,
            keeps_output=keeps_output,
            forward=saved + forward,
            backward=saved + backward,
            held=draw(SMALL),
        ),
        again=Activation(
            keeps_input=True,
            forward=forward + draw(SMALL),
            backward=saved + backward + draw(SMALL),
            held=draw(SMALL),
        ),
    )
    head = Layer(kept=Activation(saved=draw(SMALL), keeps_input=draw(st.booleans())))
    size = draw(st.integers(2, 5))
    return chain_profile([Layer(boundary=draw(SMALL)), *[block] * size, head])


@st.composite
def offloading_profiles(draw: st.DrawFn) -> ModelProfile:
    """Draw chains of blocks that keep their input only if they are kept.

    Most meet the conditions of the second exchange argument.
    """
    boundary = draw(st.integers(1, 3))
    saved = draw(st.integers(0, 9))
    forward, backward = draw(SMALL), draw(SMALL)
    block = Layer(
        boundary=boundary,
        kept=Activation(
            saved=saved,
            keeps_input=True,
            forward=saved + forward,
            backward=saved + backward,
            held=draw(SMALL),
        ),
        again=Activation(
            saved=draw(st.sampled_from([0, 0, 1])),
            forward=max(saved + forward - draw(st.sampled_from([0, 1])), 0),
            backward=backward + draw(SMALL),
            held=draw(SMALL),
            held_input=boundary,
        ),
    )
    head = Layer(kept=Activation(saved=draw(SMALL), keeps_input=draw(st.booleans())))
    first = Layer(boundary=draw(st.sampled_from([boundary, boundary, 0, 4])))
    return chain_profile([first, *[block] * draw(st.integers(2, 5)), head])


def subsets(chain: ChainBytes, first: int, end: int) -> Iterator[frozenset[int]]:
    """Yield every set of layers of a run that may recompute."""
    layers = [layer for layer in range(first, end) if chain.allowed[1, layer]]
    for size in range(len(layers) + 1):
        yield from map(frozenset, itertools.combinations(layers, size))


def peak(
    chain: ChainBytes,
    holdings: HoldingFactors,
    flow: Flow,
    run: tuple[int, int],
    again: frozenset[int],
) -> int:
    """Peak of one choice by the formula."""
    load = StageLoad(
        first=run[0],
        end=run[1],
        recomputed=again,
        flow=flow,
    )
    return rank_peak(chain, load, holdings)


def check_against_formula(
    profile: ModelProfile,
    holds: EngineHoldings,
    flow: Flow,
    slack: int,
    *,
    is_lower: bool = False,
    choice: Choice = UNCHANGED,
) -> None:
    """Compare options and queries of every run with all of its choices."""
    holdings = holding_factors(holds)
    whole = chain_bytes(profile, Bound.UPPER, flow.micro_batch)
    if is_lower:
        whole = with_outputs_held_once(whole)
    at_work, chain = choice.at_work.bytes(whole), choice.bytes(whole)
    assert profile.costs.recompute is not None
    slopes = profile.costs.recompute.slope_s_per_sample
    added = np.array([slopes[row] for row in chain.row])
    options, stages = (
        build_options(at_work, holdings, added),
        stage_bytes(chain, holdings),
    )
    peaks = option_peaks(stages, options, flow, options.runs)
    at_any_speed = least_peaks(stages, build_options(at_work, holdings, None), flow)
    for run in itertools.combinations(range(chain.num_layers + 1), 2):
        by_choice = {
            again: peak(chain, holdings, flow, run, again)
            for again in subsets(chain, *run)
        }
        least = min(by_choice.values())
        assert at_any_speed[run] == least
        mine = options.of(*run)
        for place in range(mine.stop - mine.start):
            again = frozenset(options.recomputed(*run, place))
            assert peaks[mine][place] == by_choice[again]
            assert options.seconds[mine][place] == sum(added[l_] for l_ in again)
            assert options.num_recomputed[mine][place] == len(again)
        one_run = peaks_of_run(stages, options, flow, *run)
        assert one_run.tolist() == peaks[mine].tolist()
        fewest = min(len(c) for c, found in by_choice.items() if found == least)
        at_least = peaks[mine] == least
        assert options.num_recomputed[mine][at_least].min() == fewest
        capacity = least + slack
        quickest = min(
            sum(added[l_] for l_ in again)
            for again, found in by_choice.items()
            if found <= capacity
        )
        k, enough = flow.in_flight, room_of(stages, flow, capacity)
        assert least_seconds(options, k, enough)[run] == quickest
        lacking = room_of(stages, flow, least - 1)
        assert least_seconds(options, k, lacking)[run] == np.inf


@settings(max_examples=draws(300))
@given(random_profiles(5), HOLDINGS, flows(), st.integers(0, 20))
def test_options_are_the_formula_for_all_choices(
    profile: ModelProfile, holds: EngineHoldings, flow: Flow, slack: int
) -> None:
    """Peaks, least peak, fewest layers and least seconds of every run and engine."""
    check_against_formula(profile, holds, flow, slack)


OUTPUTS_KEPT = PLIMSOLL_ON_TORCH_2_11.holds


@settings(max_examples=draws(200))
@given(random_profiles(5), flows(), st.integers(0, 20))
def test_options_are_the_formula_where_outputs_are_counted_once(
    profile: ModelProfile, flow: Flow, slack: int
) -> None:
    """As for the lower bytes of an engine that keeps them: no term is lost or added."""
    check_against_formula(profile, OUTPUTS_KEPT, flow, slack, is_lower=True)


@settings(max_examples=draws(200))
@given(offloading_profiles(), HOLDINGS, flows(), st.integers(0, 20))
def test_runs_of_equal_layers_that_offload_lose_nothing(
    profile: ModelProfile, holds: EngineHoldings, flow: Flow, slack: int
) -> None:
    """Neither at the front of a stage, whose input is there anyway, nor behind it."""
    check_against_formula(profile, holds, flow, slack)


@settings(max_examples=draws(200))
@given(block_profiles(), flows(), st.integers(0, 20))
def test_runs_of_equal_layers_lose_nothing(
    profile: ModelProfile, flow: Flow, slack: int
) -> None:
    """If only the first layers of a run recompute, the best choices still exist."""
    chain = chain_bytes(profile, Bound.UPPER, 1)
    assert swappable(chain, 1)[0] or chain.keeps_output[0, 1]
    check_against_formula(profile, an_engine().holds, flow, slack)
    check_against_formula(profile, OUTPUTS_KEPT, flow, slack, is_lower=True)


@st.composite
def tied_profiles(draw: st.DrawFn) -> ModelProfile:
    """Draw equal layers of which two are tied."""
    numbers = 16 * draw(st.integers(4, 8))
    of_64 = SMALL.map(lambda times: 64 * times)
    activations = st.builds(
        Activation,
        saved=of_64,
        keeps_output=st.booleans(),
        forward=of_64,
        backward=st.integers(0, 19).map(lambda times: 64 * times),
        keeps_input=st.just(draw(st.booleans())),
    )
    layer = Layer(
        parameters=4 * numbers,
        gradients=4 * numbers,
        optimizer=8 * numbers,
        numbers=numbers,
        optimizer_of_number=8,
        boundary=64 * draw(st.integers(0, 4)),
        kept=draw(activations),
        again=draw(activations),
    )
    tie = TiedLayers(
        layers=draw(st.sampled_from([(0, 1), (0, 2), (1, 2), (2, 3)])),
        parameter_bytes=4 * numbers,
        gradient_bytes=4 * numbers,
        optimizer_bytes=8 * numbers,
        num_numbers=numbers,
        optimizer_bytes_per_number=8,
    )
    return chain_profile([layer] * 4, tied=(tie,))


@settings(max_examples=draws(100))
@given(
    tied_profiles(),
    flows(),
    st.sampled_from([Sharding.GRADIENTS, Sharding.PARAMETERS]),
)
def test_equal_layers_that_are_divided_or_not_are_no_run(
    profile: ModelProfile, flow: Flow, level: Sharding
) -> None:
    """Layers of one kind of which replicas divide those alone that are not tied."""
    work = LayersAtWork(level, most=4)
    check_against_formula(
        profile,
        an_engine().holds,
        replace(flow, data_degree=2),
        0,
        choice=ShardedLayers(2, in_place=False, work=work),
    )


def test_a_run_of_n_equal_layers_has_n_options_more() -> None:
    """One option for each number of layers that recompute, not one for each subset."""
    block = Layer(
        boundary=1,
        kept=Activation(saved=8, keeps_input=True, forward=9, backward=12),
        again=Activation(keeps_input=True, forward=5, backward=13),
    )
    chain = chain_bytes(chain_profile([block] * 12), Bound.EXPECTED, 1)
    options = build_options(chain, holding_factors(an_engine().holds), np.ones(12))
    assert options.count[0, 12] == 13
    found = [options.recomputed(0, 12, place) for place in range(13)]
    assert sorted(found) == [tuple(range(size)) for size in range(13)]


def test_a_layer_that_gains_nothing_is_kept() -> None:
    """Recomputing an embedding saves no byte, so no option does it."""
    embedding = Layer(boundary=2, kept=Activation(forward=2, backward=2))
    useless = Layer(
        boundary=2,
        kept=Activation(forward=2, backward=2),
        again=Activation(keeps_input=True, forward=2, backward=2),
    )
    chain = chain_bytes(chain_profile([embedding, useless]), Bound.EXPECTED, 1)
    options = build_options(chain, holding_factors(an_engine().holds), np.zeros(2))
    assert options.count[1, 2] == 1
    assert options.recomputed(1, 2, 0) == ()
