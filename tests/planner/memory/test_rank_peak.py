"""The formula of one rank on small stages, worked out by hand."""

from __future__ import annotations

import dataclasses

import pytest

from plimsoll_planner.engines import PLIMSOLL_ON_TORCH_2_11
from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.memory.chain_bytes import chain_bytes
from plimsoll_planner.memory.engine_holdings import HoldingFactors, holding_factors
from plimsoll_planner.memory.flow import Flow
from plimsoll_planner.memory.rank_peak import StageLoad, phase_peaks
from plimsoll_planner.records.engine import EngineHoldings, ReceiveBuffers
from plimsoll_planner.records.model_profile import TiedLayers
from plimsoll_planner.records.plan import Phase
from tests.support.builders import an_engine
from tests.support.chains import Activation, Layer, chain_profile

OURS = dataclasses.replace(an_engine().holds, logits_kept=False)
LAYERS = (
    Layer(
        parameters=100,
        boundary=3,
        kept=Activation(saved=2, keeps_output=True, forward=7, backward=9),
        again=Activation(keeps_input=True, forward=7, backward=13),
    ),
    Layer(
        parameters=100,
        gradients=10,
        optimizer_transient=90,
        boundary=5,
        kept=Activation(saved=20, keeps_input=True, forward=31, backward=40),
        again=Activation(saved=1, keeps_input=True, forward=15, backward=45),
    ),
    Layer(
        parameters=200,
        optimizer_transient=300,
        boundary=4,
        kept=Activation(saved=8, forward=14, backward=17, held=8),
        again=Activation(keeps_input=True, forward=12, backward=21, held=2),
    ),
    Layer(
        parameters=50,
        boundary=1,
        kept=Activation(saved=6, keeps_input=True, forward=30, backward=25),
        again=Activation(keeps_input=True, forward=30, backward=33),
    ),
)


def a_load(first: int, end: int, **fields: object) -> StageLoad:
    """Build a stage with one micro-batch of one sample in flight."""
    defaults: dict[str, object] = {
        "recomputed": frozenset(),
        "in_flight": 1,
        "num_micro_batches": 1,
        "micro_batch": 1,
        "data_degree": 1,
    } | fields
    recomputed = defaults.pop("recomputed")
    return StageLoad(first=first, end=end, recomputed=recomputed, flow=Flow(**defaults))  # type: ignore[arg-type]


def peaks_of(
    load: StageLoad,
    holds: EngineHoldings = OURS,
    tied: tuple[TiedLayers, ...] = (),
    bound: Bound = Bound.UPPER,
) -> dict[Phase, int]:
    """Evaluate the formula on the four layers."""
    profile = chain_profile(
        LAYERS, tied=tied, input_bytes_per_sample=1000, target_bytes_per_sample=100
    )
    chain = chain_bytes(profile, bound, load.flow.micro_batch)
    peaks = phase_peaks(chain, load, holding_factors(holds))
    return {phase: peak.total() for phase, peak in peaks.items()}


def test_a_stage_in_the_middle() -> None:
    """Layers 1 and 2 with k = 2 of M = 3, both kept.

    state    100 + 10 + 200 = 310
    u_in = 3, u_out = 4; boundary 1|2 stays? layer 1 keeps no output, 2 no input: w = 0
    S        20 + 8 = 28       R = 3 + 28 = 31
    start    (k-1) R + u_in + stale u_in = 31 + 3 + 3 = 37
    forward  layer 1: 31 + u_out 4 = 35; layer 2: 20 + u_1 5 + 14 + 4 = 43
    exchange S + 2 u_out = 36
    backward layer 1: 40 + 4 = 44; layer 2, at the end: 20 + w 0 + 17 + 8 = 45
    optimizer 310 + 300
    """
    peaks = peaks_of(a_load(1, 3, in_flight=2, num_micro_batches=3))
    assert peaks == {
        Phase.FORWARD: 310 + 37 + 43,
        Phase.BACKWARD: 310 + 37 + 45,
        Phase.OPTIMIZER_STEP: 610,
    }


def test_an_unsent_output_is_in_no_lower_bound() -> None:
    """The stage above: after the warm-up the gradient that was sent takes its place.

    forward  layer 2: 20 + u_1 5 + 14 = 39, less u_out; real ranks hold that, as they
             showed where forward is the larger one, but for the larger boundary
    """
    load = a_load(1, 3, in_flight=2, num_micro_batches=3)
    expected = peaks_of(load, bound=Bound.EXPECTED)
    assert expected[Phase.FORWARD] == 310 + 37 + 39 + (4 - 3)
    one = a_load(0, 2, in_flight=1, num_micro_batches=3)
    most, least = (peaks_of(one, bound=b) for b in (Bound.UPPER, Bound.LOWER))
    assert most[Phase.FORWARD] == least[Phase.FORWARD] + 5
    assert peaks_of(one, bound=Bound.EXPECTED) == least
    assert peaks_of(load, bound=Bound.LOWER) == {
        Phase.FORWARD: 310 + 37 + 39,
        Phase.BACKWARD: 310 + 37 + 45,
        Phase.OPTIMIZER_STEP: 610,
    }


def test_recomputing_moves_the_peak() -> None:
    """The same stage, layer 2 recomputes: it keeps its input, so boundary 1|2 stays.

    S        20 + 0 + w 5 = 25       R = 28       start = 28 + 3 + 3 = 34
    forward  layer 1: 35; layer 2: 20 + 5 + 12 + 4 = 41; exchange 25 + 8 = 33
    backward layer 1: 44; layer 2, at the end: 20 + w 5 + 21 + 2 = 48
    """
    load = a_load(1, 3, in_flight=2, num_micro_batches=3, recomputed=frozenset({2}))
    peaks = peaks_of(load)
    assert peaks[Phase.FORWARD] == 310 + 34 + 41
    assert peaks[Phase.BACKWARD] == 310 + 34 + 48


def test_the_first_stage_holds_the_inputs_of_the_step() -> None:
    """Layer 0 alone, k = M = 2, b = 2: 1000 * 2 * 2 of inputs, nothing received.

    Two samples double every line. The layer keeps its output, so S = 4 + 6 and the
    gradient that is received adds one boundary to it: exchange 10 + 6.
    start = S = 10; forward 14 + 6 = 20, exchange 16; backward 18.
    """
    peaks = peaks_of(a_load(0, 1, in_flight=2, num_micro_batches=2, micro_batch=2))
    assert peaks[Phase.FORWARD] == 100 + 4000 + 10 + 20
    assert peaks[Phase.BACKWARD] == 100 + 4000 + 10 + 18
    assert peaks[Phase.OPTIMIZER_STEP] == 100


def test_the_last_stage_holds_the_targets_and_sends_nothing() -> None:
    """Layer 3 alone, k = 1 of M = 4: no exchange, a stale input gradient.

    start = u_in 4 + stale 4; forward 30, backward 25.
    """
    peaks = peaks_of(a_load(3, 4, num_micro_batches=4))
    assert peaks[Phase.FORWARD] == 50 + 400 + 8 + 30
    assert peaks[Phase.BACKWARD] == 50 + 400 + 8 + 25


def test_tied_layers_on_one_rank_are_held_once() -> None:
    """Both ends on one rank share 40 bytes; apart, each has its own."""
    tied = (TiedLayers(layers=(0, 3), parameter_bytes=40),)
    together = peaks_of(a_load(0, 4), tied=tied)[Phase.OPTIMIZER_STEP]
    assert together == 450 + 10 - 40 + 300
    alone = peaks_of(a_load(3, 4), tied=tied)[Phase.OPTIMIZER_STEP]
    assert alone == 50


ENGINES: list[tuple[str, dict[str, object], int, int]] = [
    # 3 buffers for each of u_in = 3 and u_out = 4 stand for good, in place of R's
    # and the current u_in: start = S 28 + stale 3 + 21; exchange loses the gradient.
    (
        "buffers for all",
        {"receive_buffers": ReceiveBuffers.ALL_MICRO_BATCHES},
        28 + 3 + 21 + 43,
        28 + 3 + 21 + 45,
    ),
    # max(2, k) = 2 of each; nothing stale was looked for in such an engine.
    (
        "buffers in flight",
        {"receive_buffers": ReceiveBuffers.IN_FLIGHT},
        28 + 14 + 43,
        28 + 14 + 45,
    ),
    # Each in flight holds u_out: R grows by 4. So does the start, as M = 2k - 1: the
    # warm-up's last send holds the output of a micro-batch that is over. Forward loses
    # the output not sent yet, which is that of one in flight: 43 - 4.
    ("outputs kept", {"stage_outputs_kept": True}, 37 + 4 + 4 + 39, 37 + 4 + 4 + 45),
    (
        "both, as on torch 2.11",
        {
            "receive_buffers": ReceiveBuffers.ALL_MICRO_BATCHES,
            "stage_outputs_kept": True,
        },
        28 + 4 + 3 + 4 + 21 + 39,
        28 + 4 + 3 + 4 + 21 + 45,
    ),
]


@pytest.mark.parametrize(("name", "changes", "forward", "backward"), ENGINES)
def test_engines_differ_by_numbers(
    name: str, changes: dict[str, object], forward: int, backward: int
) -> None:
    """The middle stage again, under what other engines hold."""
    del name
    holds = dataclasses.replace(OURS, **changes)  # type: ignore[arg-type]
    peaks = peaks_of(a_load(1, 3, in_flight=2, num_micro_batches=3), holds)
    assert peaks[Phase.FORWARD] == 310 + forward
    assert peaks[Phase.BACKWARD] == 310 + backward


@pytest.mark.parametrize(
    ("num_micro_batches", "start"),
    [(2, 28 + 4 + 14), (3, 28 + 4 + 21 + 3 + 4), (9, 28 + 4 + 63 + 3 + 4)],
)
def test_buffers_of_torch_2_11_stay_for_good(
    num_micro_batches: int, start: int
) -> None:
    """M for each direction, in the optimizer step as well.

    The stale gradient of u_in = 3 is there from M = k + 1 on, the output of a
    micro-batch that is over from M = 2k - 1 on: both 3 here.
    """
    load = a_load(1, 3, in_flight=2, num_micro_batches=num_micro_batches)
    peaks = peaks_of(load, PLIMSOLL_ON_TORCH_2_11.holds)
    assert peaks[Phase.BACKWARD] == 310 + start + 45
    assert peaks[Phase.OPTIMIZER_STEP] == 610 + num_micro_batches * (3 + 4)


def test_copies_of_gradients_need_replicas() -> None:
    """Half of 10 gradient bytes again, where D > 1; logits stay on the last stage."""
    holds = dataclasses.replace(OURS, gradient_bucket_copies=0.5, logits_kept=True)
    assert peaks_of(a_load(1, 3, data_degree=2), holds)[Phase.OPTIMIZER_STEP] == 615
    assert peaks_of(a_load(1, 3), holds)[Phase.OPTIMIZER_STEP] == 610
    kept = peaks_of(a_load(3, 4), holds)[Phase.BACKWARD]
    assert kept == peaks_of(a_load(3, 4))[Phase.BACKWARD] + 1


def test_our_engine_holds_nothing_besides() -> None:
    """Plimsoll's own trainer is the formula as it stands."""
    holdings: HoldingFactors = holding_factors(OURS)
    assert (holdings.input_in_flight, holdings.gradient_received) == (1, 1)
    assert (holdings.output_kept, holdings.logits_kept, holdings.gradient_copies) == (
        False,
        0,
        0,
    )
    assert holdings.standing(4, 8) == 0
