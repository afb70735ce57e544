"""Peaks of all stages that a pipeline could have, from the options of their layers.

In: a chain's bytes, its options, and how a pipeline flows. Out: matrices over (A, B),
the first layer of a stage and the layer behind its last one: least peak at any speed,
least added seconds under a capacity. Called by the search for each number in flight.

Entries with B <= A are no stages; their peak is `LARGEST_BYTES` or above.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plimsoll_planner.memory.chain_bytes import (
    LARGEST_BYTES,
    STATE,
    ChainBytes,
    Flags,
    Ints,
)
from plimsoll_planner.memory.engine_holdings import HoldingFactors
from plimsoll_planner.memory.flow import Flow
from plimsoll_planner.memory.option_arrays import Floats, OptionArrays

Runs = tuple[slice, slice]
"""Some A and some B, in a row each."""
EVERY = slice(None), slice(None)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AllReduces:
    """All-reduces of runs of layers, which take as long as some exchange."""

    num_bytes: Ints
    """[A, B]"""
    count: Ints
    """[A, B]: layers that exchange anything, each on its own."""

    def of(self, run: tuple[int, int]) -> AllReduces:
        """Those of one run, arrays without an axis."""
        num_bytes, count = np.asarray(self.num_bytes[run]), np.asarray(self.count[run])
        return AllReduces(num_bytes=num_bytes, count=count)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StageBytes:
    """Bytes that do not depend on the flow, for all stages [A, B]."""

    holdings: HoldingFactors
    gradient: Ints
    """Without copies for their exchange."""
    at_end: AllReduces
    """As long as what replicas exchange once in a step."""
    in_forward: AllReduces
    """As long as what they exchange in a forward pass."""
    in_backward: AllReduces
    """As long as what they exchange in a backward pass."""
    owned: Ints
    """Numbers that the optimizer of a rank steps on."""
    host: Ints
    """In the memory of the machine."""
    state: Ints
    """Parameters, gradients, buffers and optimizer state."""
    num_trained: Ints
    """Layers that have gradients."""
    waiting: Ints
    """Gradients that wait for those of tied layers on the same rank."""
    optimizer_transient: Ints
    received: Ints
    """[A]: boundary in front of the stage, 0 for the first."""
    sent: Ints
    """[B]: boundary behind it, 0 for the last."""
    past_output: bool
    """Whether an output that is held past its micro-batch counts."""
    logits: Ints
    """[B]: boundary behind the last layer, 0 for all stages but the last."""
    inputs: Ints
    """[A]: of a sample, 0 for all stages but the first."""
    targets: Ints
    """[B]: of a sample, 0 for all stages but the last."""

    def only_where(self, possible: Flags) -> StageBytes:
        """The same, with runs [A, B] that are not possible above any device."""
        return replace(self, state=np.where(possible, self.state, LARGEST_BYTES))

    def state_of(self, flow: Flow, runs: Runs = EVERY) -> Ints:
        """All state of some runs, copies for the exchange of gradients included."""
        state = self.state[runs]
        if flow.data_degree > 1 and self.holdings.gradient_copies > 0:
            copies = self.gradient[runs] * self.holdings.gradient_copies
            state = state + copies.astype(np.int64)
        return state

    def start(self, flow: Flow, runs: Runs = EVERY) -> Ints:
        """[A, B]: bytes of a stage before k - 1 micro-batches' S and the peak Q."""
        holdings, (first, end) = self.holdings, runs
        k, num_micro_batches = flow.in_flight, flow.num_micro_batches
        standing = holdings.standing(k, num_micro_batches)
        times = standing + k * holdings.input_in_flight
        times += (num_micro_batches > k) * holdings.gradient_sent
        samples = flow.micro_batch * num_micro_batches
        before = times * self.received[first] + samples * self.inputs[first]
        past = holdings.outputs_past(k, num_micro_batches) if self.past_output else 0
        behind = (standing + past) * self.sent[end] + samples * self.targets[end]
        behind += holdings.logits_kept * self.logits[end]
        total = self.state_of(flow, runs) + self.waiting[runs]
        return np.asarray(total + before[:, None] + behind)

    def optimizer_step(self, flow: Flow, runs: Runs = EVERY) -> Ints:
        """[A, B]: peak of the optimizer step."""
        first, end = runs
        standing = self.holdings.standing(flow.in_flight, flow.num_micro_batches)
        buffers = standing * (self.received[first][:, None] + self.sent[end])
        return self.state_of(flow, runs) + buffers + self.optimizer_transient[runs]


def stage_bytes(
    chain: ChainBytes, holdings: HoldingFactors, starts: Ints | None = None
) -> StageBytes:
    """Matrices of one chain; A counts the layers that a stage may begin with.

    [1] sums of each column over a run; [2] without what tied layers share, and with the
    gradients that wait for theirs; [3] largest optimizer transient of a run; [4]
    boundaries in front of a run and behind it.

    Args:
        chain: the bytes.
        holdings: what the engine holds.
        starts: those layers; None: all.
    """
    size = chain.num_layers
    bounds = np.append(np.arange(size) if starts is None else starts, size)
    num_starts = len(bounds) - 1

    def run_sums(values: Ints) -> Ints:
        """[A, B]: the sum of values from A to B, negative where B < A."""
        sums = np.append(0, np.cumsum(values))[bounds]
        return np.asarray(sums[None, :] - sums[:-1, None])

    # [1] sums
    summed = (*STATE, "exchanged", "owned", "host")
    columns = {name: run_sums(getattr(chain, name)) for name in summed}

    def all_reduces(values: Ints, num_bytes: Ints) -> AllReduces:
        count = run_sums((values > 0).astype(np.int64))
        return AllReduces(num_bytes=num_bytes, count=count)

    # [2] ties
    waiting = np.zeros_like(columns["gradient"])
    for tie in chain.ties:
        is_member = np.zeros(size, dtype=np.int64)
        is_member[tie.members] = 1
        copies = np.maximum(run_sums(is_member) - 1, 0)
        for name in summed:
            columns[name] -= copies * getattr(tie, name)
        waiting += (copies > 0) * tie.waiting_bytes
    # [3] optimizer
    transient = np.zeros((num_starts, num_starts + 1), dtype=np.int64)
    for first, layer in enumerate(bounds[:-1]):
        largest = np.maximum.accumulate(chain.optimizer_transient[layer:])
        transient[first, first + 1 :] = largest[bounds[first + 1 :] - layer - 1]
    # [4] boundaries
    before = np.append(0, chain.boundary)[bounds]
    is_first = np.arange(num_starts) == 0
    is_last = np.arange(num_starts + 1) == num_starts
    return StageBytes(
        holdings=holdings,
        gradient=columns["gradient"],
        at_end=all_reduces(chain.exchanged, columns["exchanged"]),
        in_forward=all_reduces(
            chain.exchanged_forward, run_sums(chain.exchanged_forward)
        ),
        in_backward=all_reduces(
            chain.exchanged_backward, run_sums(chain.exchanged_backward)
        ),
        owned=columns["owned"],
        host=columns["host"],
        state=np.asarray(sum(columns[name] for name in STATE)),
        num_trained=run_sums((chain.gradient > 0).astype(np.int64)),
        waiting=waiting,
        optimizer_transient=transient,
        received=before[:-1],
        sent=np.append(before[:-1], 0),
        past_output=chain.past_output,
        logits=chain.boundary[-1] * is_last,
        inputs=chain.inputs_per_sample * is_first,
        targets=chain.targets_per_sample * is_last,
    )


def option_peaks(
    stages: StageBytes,
    options: OptionArrays,
    flow: Flow,
    runs: tuple[NDArray[Any], ...],
) -> Ints:
    """[run, n]: the peak of every option of some runs, each an A and a B."""
    peaks = options.peak[runs] + (flow.in_flight - 1) * options.saved[runs]
    peaks += stages.start(flow)[runs][:, None]
    step = stages.optimizer_step(flow)[runs][:, None]
    return np.asarray(np.maximum(peaks, step))


def least_peaks(stages: StageBytes, options: OptionArrays, flow: Flow) -> Ints:
    """[A, B]: the least peak at any speed."""
    inner = (options.peak + (flow.in_flight - 1) * options.saved).min(axis=2)
    step = stages.optimizer_step(flow)
    return np.asarray(np.maximum(inner + stages.start(flow), step))


def least_seconds(
    stages: StageBytes, options: OptionArrays, flow: Flow, capacity_bytes: int
) -> Floats:
    """[A, B]: least added seconds of an option within the capacity, or infinity.

    Most runs need no search: what recomputes least fits already, or even the least of
    both terms does not.
    """
    room = capacity_bytes - stages.start(flow)
    fits = stages.optimizer_step(flow) <= capacity_bytes
    more = flow.in_flight - 1
    found = np.full(room.shape, np.inf)
    fastest = options.fastest[:, :, None]
    saved, peak, seconds = (
        np.take_along_axis(array, fastest, axis=2)[:, :, 0]
        for array in (options.saved, options.peak, options.seconds)
    )
    easy = fits & (peak + more * saved <= room)
    found[easy] = seconds[easy]
    hard = fits & ~easy & (options.least_peak < LARGEST_BYTES)
    hard[hard] = (options.least_peak + more * options.least_saved <= room)[hard]
    rows = np.nonzero(hard)
    within = options.peak[rows] + more * options.saved[rows] <= room[rows][:, None]
    found[rows] = np.where(within, options.seconds[rows], np.inf).min(axis=1)
    return found


def peaks_of_run(
    stages: StageBytes, options: OptionArrays, flow: Flow, first: int, end: int
) -> Ints:
    """[n]: the peak of every option of one run."""
    inner = options.peak[first, end] + (flow.in_flight - 1) * options.saved[first, end]
    run = slice(first, first + 1), slice(end, end + 1)
    start, step = stages.start(flow, run), stages.optimizer_step(flow, run)
    return np.asarray(np.maximum(inner + start[0, 0], step[0, 0]))
