"""Peak of one rank, phase by phase: the formula, written to be read.

In: the layers of one pipeline stage with their choices, and how many micro-batches are
in flight. Out: allocated bytes for each phase. Called for the plan that was chosen; the
search evaluates the same formula for all stages at once (`recompute_labels`), and tests
hold the two against each other. Settled from the source of torch's Schedule1F1B, 2.11
to 2.15, and from measured ranks.

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

where u_{A-1} is 0 for the first stage and u_{B-1} is 0 for the last. Where layers of
the stage share a parameter, the gradient that backward computes first waits for the
others; it is counted in all phases but the optimizer step.

Other engines differ by what `engine_holdings` says. On torch 2.11 to 2.14 outputs are
kept and receive buffers are made once, for all micro-batches:

    S        counts u_{B-1} always      R = S      exchange = start + S
    start    = (k-1) R + [M > k] u_{A-1} + [M >= 2k-1] u_{B-1}    the last: the send of
                the warm-up's last micro-batch but one is held till forward passes end
    forward  without the last u_{B-1}, which is that of a micro-batch in flight
    backward as it stands: the micro-batch's own output takes the received gradient's
                place, which has a buffer
    all phases, the optimizer step included: M (u_{A-1} + u_{B-1})
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_planner.memory.chain_bytes import KEPT, RECOMPUTED, ChainBytes
from plimsoll_planner.memory.engine_holdings import Held
from plimsoll_planner.records.plan import Phase


@dataclass(frozen=True, kw_only=True, slots=True)
class StageLoad:
    """One stage of a pipeline at work."""

    first: int
    """A."""
    end: int
    """B."""
    recomputed: frozenset[int]
    """Layers that recompute."""
    in_flight: int
    """k."""
    num_micro_batches: int
    """M."""
    micro_batch: int
    """b."""
    data_degree: int
    """D."""


def phase_peaks(chain: ChainBytes, load: StageLoad, held: Held) -> dict[Phase, int]:
    """Return the peak of allocated bytes of every phase of a step."""
    state = state_bytes(chain, load, held)
    standing = state + input_bytes(chain, load) + buffer_bytes(chain, load, held)
    standing += logits_bytes(chain, load, held)
    standing += waiting_bytes(chain, load)
    first, layers = load.first, range(load.first, load.end)
    u_in = int(chain.boundary[first - 1]) if first > 0 else 0
    sent = int(chain.boundary[load.end - 1]) if load.end < chain.num_layers else 0
    u_out = sent if chain.own_output[load.end - 1] else 0
    choice = {at: RECOMPUTED if at in load.recomputed else KEPT for at in layers}
    saved = {at: int(chain.saved[choice[at], at]) for at in layers}
    alive = {at: alive_boundary(chain, choice, at) for at in layers[:-1]}
    keeps_output = held.output_kept or bool(
        chain.keeps_output[choice[load.end - 1], load.end - 1]
    )
    per_micro_batch = (
        sum(saved.values()) + sum(alive.values()) + (u_out if keeps_output else 0)
    )
    held_input = u_in * held.input_in_flight
    goes_on = load.num_micro_batches > load.in_flight
    stale = u_in * held.gradient_sent if goes_on else 0
    if chain.past_output:
        stale += sent * held.outputs_past(load.in_flight, load.num_micro_batches)
    start = (load.in_flight - 1) * (held_input + per_micro_batch) + held_input + stale
    forward: list[int] = []
    backward: list[int] = []
    for at in layers:
        before = sum(saved[j] for j in range(first, at))
        before += sum(alive[j] for j in range(first, at - 1))
        received = int(chain.boundary[at - 1]) if at > first else 0
        forward.append(
            before
            + received
            + int(chain.forward_transient[choice[at], at])
            + u_out * held.output_unsent
        )
        turned = int(chain.backward_transient[choice[at], at]) + u_out
        if at == load.end - 1:
            turned = int(chain.backward_transient_at_end[choice[at], at])
        if at == first or chain.keeps_output[choice[at - 1], at - 1]:
            turned += int(chain.held_input[choice[at], at])
        backward.append(before + (alive[at - 1] if at > first else 0) + turned)
    if load.end < chain.num_layers:
        exchanged = held.gradient_received + (0 if keeps_output else 1)
        forward.append(per_micro_batch + u_out * exchanged)
    return {
        Phase.FORWARD: standing + start + max(forward),
        Phase.BACKWARD: standing + start + max(backward),
        Phase.OPTIMIZER_STEP: state
        + buffer_bytes(chain, load, held)
        + max(int(chain.optimizer_transient[at]) for at in layers),
    }


def alive_boundary(chain: ChainBytes, choice: dict[int, int], layer: int) -> int:
    """Return w: the boundary behind `layer`, where forward leaves it alive."""
    kept = (
        chain.keeps_output[choice[layer], layer]
        or chain.keeps_input[choice[layer + 1], layer + 1]
    )
    return int(chain.boundary[layer]) if kept else 0


def state_bytes(chain: ChainBytes, load: StageLoad, held: Held) -> int:
    """Return parameters, gradients, buffers and optimizer state, shared ones once."""
    total = int(chain.state[load.first : load.end].sum())
    gradients = int(chain.gradient[load.first : load.end].sum())
    for copies, tie in chain.tied_more_than_once(load.first, load.end):
        total -= copies * tie.state_bytes
        gradients -= copies * tie.gradient_bytes
    return total + bucket_bytes(gradients, load.data_degree, held)


def waiting_bytes(chain: ChainBytes, load: StageLoad) -> int:
    """Return the gradients that wait for those of tied layers on the same rank."""
    return sum(
        tie.waiting_bytes
        for copies, tie in chain.tied_more_than_once(load.first, load.end)
        if copies > 0
    )


def bucket_bytes(gradient_bytes: int, data_degree: int, held: Held) -> int:
    """Return what the exchange of gradients holds besides them."""
    return int(gradient_bytes * held.gradient_copies) if data_degree > 1 else 0


def input_bytes(chain: ChainBytes, load: StageLoad) -> int:
    """Return the inputs and targets that a stage holds for a whole step."""
    samples = load.micro_batch * load.num_micro_batches
    first = chain.inputs_per_sample if load.first == 0 else 0
    last = chain.targets_per_sample if load.end == chain.num_layers else 0
    return (first + last) * samples


def buffer_bytes(chain: ChainBytes, load: StageLoad, held: Held) -> int:
    """Buffers to receive into that the engine holds for good."""
    count = held.standing(load.in_flight, load.num_micro_batches)
    total = 0
    if load.first > 0:
        total += count * int(chain.boundary[load.first - 1])
    if load.end < chain.num_layers:
        total += count * int(chain.boundary[load.end - 1])
    return total


def logits_bytes(chain: ChainBytes, load: StageLoad, held: Held) -> int:
    """Logits that the engine keeps on the last stage."""
    is_last = load.end == chain.num_layers
    return held.logits_kept * int(chain.boundary[load.end - 1]) if is_last else 0
