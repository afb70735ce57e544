"""Peak of one rank, phase by phase: the formula, written to be read.

In: the layers of one pipeline stage with their choices, and how many micro-batches are
in flight. Out: the peak of each phase, kind by kind. Called for the plan that was
chosen, and by the report; the search evaluates the same formula for all stages at once
(`option_arrays`), and tests hold the two against each other. Settled from the source
of torch's Schedule1F1B, 2.11 to 2.15, and from measured ranks.

    A, B-1    first and last layer of the stage     L     layers of the model
    M, k      micro-batches, those in flight        b     samples in one
    s, u      saved bytes, boundary behind a layer  w     u if forward leaves it alive
    ft, bt    transient of forward and backward     S, R  what one micro-batch holds
    et        that of backward at the end of a stage, where the engine holds the
              gradient that it received until the pass is over
    ht        more in backward where the input outlives the layer's pass

A boundary between two layers of the stage stays alive after forward exactly where the
layer before keeps its output or the layer behind keeps its input. It outlives the
backward pass of the layer behind where the layer before keeps it; what a stage received
always does, as the engine holds it.

    S        = sum of s + sum of w inside + u_{B-1} if the last layer keeps its output
    R        = u_{A-1} + S
    start    = (k-1) R + u_{A-1} + [M > k] u_{A-1}    the last: sent gradients not freed
    forward  = start + max over l of (before_l + u_{l-1} + ft_l) + u_{B-1} not yet sent
    exchange = start + S + the output being sent + the gradient being received
    backward = start + max over l of (before_l + w_{l-1} + e_l)
    e_l      = (bt_l + u_{B-1} where l < B-1, else et_l) + (ht_l where that holds)
    before_l = s of the layers A..l-1 + w of the boundaries between them

The output that is not sent yet is that of the warm-up, the sent gradient is there
after it, so the two are never held at once, and with k = 1 there is no such output.
Expected bytes count the larger. An option of a run is the same for all k, so upper
bytes, which the search compares, count both in `forward`: up to one boundary too much,
where forward decides the peak and k = 1 or A > 0. Lower bytes, which have to stay below
the truth, count the gradient alone.

where u_{A-1} is 0 for the first stage and u_{B-1} is 0 for the last. No gradient is
sent where nothing in front of the stage is trained, and none comes back where nothing
in it is, or in front. Where layers of the stage share a parameter, the gradient that
backward computes first waits for the others; it is counted in all phases but the
optimizer step.

**Carried values** (`carried_bytes`) cross the cuts between their giver and their last
taker. With x behind a cut the bytes of those that cross it, y those of their gradients,
g_l what layer l gives,

    s        counts g_l; bt, et and ft of the giver count it as they count its output
    R        counts x_{A-1} besides u_{A-1}, and so does the last micro-batch
    sent     what goes on is what was received, and what is given is in S: no more
    start    [M > k] (u_{A-1} + y_{A-1}): gradients of both were sent
    exchange receives u_{B-1} + y_{B-1}
    e_l      the engine holds y_{B-1} as well until the pass is over, and at l are alive
             the gradients of what is given in front of l and last taken behind l inside
    end      = start + (u + y)_{B-1} + (u + y)_{A-1}    all that was received, and made

Received gradients of what l < B-1 itself gives are in bt_l already, where they are gone
once they are used: the engine holds them, so bt_l with all of them is no more than et_l
there. Lower bytes do not count that, nor `end`, nor at l what is given behind l: its
gradient may be the very tensor that comes to l, where a giver hands its input on.

Other engines differ by what `engine_holdings` says. On torch 2.11 to 2.14 outputs are
kept and receive buffers are made once, for all micro-batches:

    S        counts u_{B-1} always      R = S      exchange = start + S
    start    = (k-1) R + [M > k] u_{A-1} + [M >= 2k-1] u_{B-1}    the last: the send of
                the warm-up's last micro-batch but one is held till forward passes end
    forward  without the last u_{B-1}, which is that of a micro-batch in flight
    backward as it stands: the micro-batch's own output takes the received gradient's
                place, which has a buffer
    all phases, the optimizer step included: M (u_{A-1} + u_{B-1})
    carried  y_{B-1} is in buffers as well: in its place is, at l, what l and the layers
             behind it gave to later stages; their past outputs hold it (`carried_past`)
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.memory.chain_bytes import KEPT, RECOMPUTED, ChainBytes
from plimsoll_planner.memory.engine_holdings import HoldingFactors
from plimsoll_planner.memory.flow import Flow
from plimsoll_planner.records.plan import Phase


class MemoryKind(StrEnum):
    """Purpose of the bytes of a device, from what stays to what goes soonest."""

    PARAMETERS = "parameters"
    GRADIENTS = "gradients"
    """Copies for their exchange, and those that wait for tied layers, included."""
    OPTIMIZER = "optimizer state"
    BUFFERS = "buffers"
    """State that is not trained."""
    INPUTS = "inputs and targets"
    """Of the whole step, on the first and the last stage."""
    SAVED = "saved activations"
    """Of all micro-batches in flight; outputs between the stage's layers included."""
    BOUNDARIES = "boundaries"
    """Tensors received from other stages, for all micro-batches in flight, and sent to
    them; gradients of carried values; logits that are kept."""
    VALUES = "values"
    """Results of placed operators, on the device that computes them."""
    RECEIVED = "received values"
    """Copies of results from other devices."""
    WORKING = "working memory"
    """Of the layer that decides: what its pass or its optimizer step needs at once,
    what it saves itself included."""
    OUTSIDE = "outside of tensors"
    """Context, communicators, workspaces, and what the allocator loses."""


Peak = Counter[MemoryKind]
"""Bytes of tensors by kind; `total()` is the peak."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageLoad:
    """One stage of a pipeline at work."""

    first: int
    """A."""
    end: int
    """B."""
    recomputed: frozenset[int]
    """Layers that recompute."""
    flow: Flow

    @property
    def layers(self) -> range:
        """Layers of the stage."""
        return range(self.first, self.end)


def rank_peak(chain: ChainBytes, load: StageLoad, holdings: HoldingFactors) -> int:
    """Peak of a rank over all phases of a step, allocated bytes."""
    return max(peak.total() for peak in phase_peaks(chain, load, holdings).values())


def phase_peaks(
    chain: ChainBytes, load: StageLoad, holdings: HoldingFactors
) -> dict[Phase, Peak]:
    """Peak of every phase of a step; of several layers that reach it the first's."""
    state = state_bytes(chain, load, holdings)
    buffers = Peak({MemoryKind.BOUNDARIES: buffer_bytes(chain, load, holdings)})
    standing = state + buffers + input_bytes(chain, load)
    standing[MemoryKind.GRADIENTS] += waiting_bytes(chain, load)
    standing[MemoryKind.BOUNDARIES] += logits_bytes(chain, load, holdings)
    forward, backward = pass_peaks(chain, load, holdings)
    step = max(int(chain.optimizer_transient[at]) for at in load.layers)
    return {
        Phase.FORWARD: standing + max(forward, key=Peak.total),
        Phase.BACKWARD: standing + max(backward, key=Peak.total),
        Phase.OPTIMIZER_STEP: state + buffers + Peak({MemoryKind.WORKING: step}),
    }


def pass_peaks(
    chain: ChainBytes, load: StageLoad, holdings: HoldingFactors
) -> tuple[list[Peak], list[Peak]]:
    """Peaks of passes above the bytes that stand, of each layer and the exchange.

    Returns:
        For forward and for backward; `forward` ends with `exchange` on all stages but
        the last, and `backward` with `end` if values are carried.
    """
    first, last = load.first, load.end - 1
    u_out = ends_of(chain, load)[1] if chain.own_output[last] else 0
    choice = {at: RECOMPUTED if at in load.recomputed else KEPT for at in load.layers}
    keeps_output = holdings.output_kept or bool(chain.keeps_output[choice[last], last])
    # [1] S, what a micro-batch in flight holds, of it what is alive before each layer.
    before, saved = {first: 0}, 0
    alive = {at: alive_boundary(chain, choice, at) for at in load.layers[:-1]}
    for at in load.layers:
        saved += int(chain.saved[choice[at], at])
        before[at + 1] = saved
        saved += alive.get(at, 0)
    # [2] What the stage starts from.
    others = load.flow.in_flight - 1
    held_boundaries, unsent = received_and_unsent(chain, load, holdings, u_out)
    held_boundaries += others * u_out * keeps_output

    def peak(own_saved: int, boundaries: int, working: int) -> Peak:
        return Peak(
            {
                MemoryKind.SAVED: others * saved + own_saved,
                MemoryKind.BOUNDARIES: held_boundaries + boundaries,
                MemoryKind.WORKING: working,
            }
        )

    # [3] Every layer's passes.
    returned = u_out if load.end > chain.num_untrained else 0
    forward: list[Peak] = []
    backward: list[Peak] = []
    for at in load.layers:
        received = int(chain.boundary[at - 1]) if at > first else 0
        working = int(chain.forward_transient[choice[at], at])
        forward.append(peak(before[at] + received, unsent, working))
        turned, gradients = turned_bytes(chain, load, choice[at], at)
        gradients += carried_behind(chain, load, holdings, at)
        if at != last:
            gradients += returned
        if at == first or chain.keeps_output[choice[at - 1], at - 1]:
            turned += int(chain.held_input[choice[at], at])
        own = before[at] + alive.get(at - 1, 0)
        backward.append(peak(own, gradients, turned))
    # [4] The exchange with the stage behind, and the end of a pass.
    if load.end < chain.num_layers:
        gradients = returned + returning(chain, last)
        exchanged = u_out + gradients * holdings.gradient_received
        forward.append(peak(saved, exchanged, 0))
    if first > 0 and returning(chain, first - 1) and chain.bound is not Bound.LOWER:
        gradients = returned + carried_behind(chain, load, holdings, first)
        backward.append(peak(0, gradients + sent_back(chain, load), 0))
    return forward, backward


def turned_bytes(
    chain: ChainBytes, load: StageLoad, way: int, layer: int
) -> tuple[int, int]:
    """Transient of a layer's backward pass, and gradients of carried values besides.

    Those are of the values that are alive, less what the transient counts of those that
    are received.
    """
    inside = int(chain.backward_transient[way, layer])
    at_end = int(chain.backward_transient_at_end[way, layer])
    straight = int(chain.carried.straight(layer)[load.end])
    gradients = int(chain.carried.alive(layer)[load.end]) - straight
    if layer == load.end - 1:
        return at_end, gradients
    if straight and chain.bound is not Bound.LOWER:
        inside = min(inside + straight, max(inside, at_end))
    return inside, gradients


def received_and_unsent(
    chain: ChainBytes, load: StageLoad, holdings: HoldingFactors, u_out: int
) -> tuple[int, int]:
    """Bytes of boundaries that passes hold: received or past ones, and unsent ones.

    The second are held in forward alone.
    """
    flow, behind = load.flow, ends_of(chain, load)[1]
    u_in = received_bytes(chain, load)
    past = 0
    if flow.num_micro_batches > flow.in_flight:
        past += sent_back(chain, load) * holdings.gradient_sent
    if chain.past_output:
        output = behind + carried_past(chain, load, holdings)
        past += output * holdings.outputs_past(flow.in_flight, flow.num_micro_batches)
    unsent = u_out * holdings.output_unsent
    if chain.bound is Bound.EXPECTED:
        unsent = max(unsent * (flow.in_flight > 1) - past, 0)
    elif chain.bound is Bound.LOWER:
        unsent = 0
    return flow.in_flight * u_in * holdings.input_in_flight + past, unsent


def ends_of(chain: ChainBytes, load: StageLoad) -> tuple[int, int]:
    """Boundaries in front of a stage and behind it, 0 at the ends of the model."""
    in_front = int(chain.boundary[load.first - 1]) if load.first > 0 else 0
    is_last = load.end == chain.num_layers
    return in_front, 0 if is_last else int(chain.boundary[load.end - 1])


def received_bytes(chain: ChainBytes, load: StageLoad) -> int:
    """Boundary and carried values that a stage receives, 0 for the first."""
    return int(chain.received[load.first - 1]) if load.first > 0 else 0


def sent_back(chain: ChainBytes, load: StageLoad) -> int:
    """Gradients that a stage sends to the one in front, 0 for the first."""
    passed = ends_of(chain, load)[0] if load.first > chain.num_untrained else 0
    return passed + (returning(chain, load.first - 1) if load.first > 0 else 0)


def returning(chain: ChainBytes, layer: int) -> int:
    """Gradients of carried values that come back through the cut behind a layer."""
    return int(chain.carried.returning[layer])


def carried_behind(
    chain: ChainBytes, load: StageLoad, holdings: HoldingFactors, layer: int
) -> int:
    """Carried part of what stays at a layer's backward pass till the pass is over.

    That is gradients, or the values in the stage's own output where those have buffers.
    """
    if holdings.gradient_received:
        if chain.bound is Bound.LOWER:
            return int(chain.carried.surely_held(layer)[load.end])
        return returning(chain, load.end - 1)
    return int(chain.carried.given_behind(layer)[load.end])


def carried_past(chain: ChainBytes, load: StageLoad, holdings: HoldingFactors) -> int:
    """Carried values among the output of a micro-batch that is over.

    What the stage received is in a buffer that stands, or was received on its own; the
    first stage has inputs of the model anyway.
    """
    at = np.array([load.first]), np.array([load.end])
    found = int(chain.carried.crossing[load.end - 1])
    if load.first > 0 and holdings.input_in_flight:
        return found
    return found - int(chain.carried.crossing_from_front(*at)[0, 0])


def alive_boundary(chain: ChainBytes, choice: dict[int, int], layer: int) -> int:
    """w: the boundary behind `layer`, where forward leaves it alive."""
    kept = (
        chain.keeps_output[choice[layer], layer]
        or chain.keeps_input[choice[layer + 1], layer + 1]
    )
    return int(chain.boundary[layer]) if kept else 0


def state_bytes(chain: ChainBytes, load: StageLoad, holdings: HoldingFactors) -> Peak:
    """Parameters, gradients, buffers and optimizer state, shared ones once."""

    def total(column: str) -> int:
        ties = chain.tied_more_than_once(load.first, load.end)
        shared = sum(copies * int(getattr(tie, column)) for copies, tie in ties)
        return int(getattr(chain, column)[load.first : load.end].sum()) - shared

    gradients = total("gradient")
    return Peak(
        {
            MemoryKind.PARAMETERS: total("parameter"),
            MemoryKind.GRADIENTS: gradients
            + bucket_bytes(gradients, load.flow.data_degree, holdings),
            MemoryKind.OPTIMIZER: total("optimizer"),
            MemoryKind.BUFFERS: total("buffer"),
        }
    )


def waiting_bytes(chain: ChainBytes, load: StageLoad) -> int:
    """Gradients that wait for those of tied layers on the same rank."""
    return sum(
        tie.waiting_bytes
        for copies, tie in chain.tied_more_than_once(load.first, load.end)
        if copies > 0
    )


def bucket_bytes(
    gradient_bytes: int, data_degree: int, holdings: HoldingFactors
) -> int:
    """Copies of gradients that their exchange holds."""
    return int(gradient_bytes * holdings.gradient_copies) if data_degree > 1 else 0


def input_bytes(chain: ChainBytes, load: StageLoad) -> Peak:
    """Inputs and targets that a stage holds for a whole step."""
    samples = load.flow.micro_batch * load.flow.num_micro_batches
    first = chain.inputs_per_sample if load.first == 0 else 0
    last = chain.targets_per_sample if load.end == chain.num_layers else 0
    return Peak({MemoryKind.INPUTS: (first + last) * samples})


def buffer_bytes(chain: ChainBytes, load: StageLoad, holdings: HoldingFactors) -> int:
    """Buffers to receive into that the engine holds for good."""
    count = holdings.standing(load.flow.in_flight, load.flow.num_micro_batches)
    gradients = ends_of(chain, load)[1] + returning(chain, load.end - 1)
    return count * (received_bytes(chain, load) + gradients)


def logits_bytes(chain: ChainBytes, load: StageLoad, holdings: HoldingFactors) -> int:
    """Logits that the engine keeps on the last stage."""
    is_last = load.end == chain.num_layers
    return holdings.logits_kept * int(chain.boundary[load.end - 1]) if is_last else 0
