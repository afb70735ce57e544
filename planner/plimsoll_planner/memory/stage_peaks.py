"""Peaks of all stages that a pipeline could have, from the options of their layers.

In: a chain's bytes, its options, and how a pipeline flows. Out: matrices over (A, B),
the first layer of a stage and the layer behind its last one: least peak at any speed,
least added seconds under a capacity. Called by the search for each number in flight.

Entries with B <= A are no stages; their peak is `LARGEST_BYTES` or above.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from plimsoll_planner.memory.bounds import Flags, Floats, Ints
from plimsoll_planner.memory.chain_bytes import LARGEST_BYTES, ChainBytes
from plimsoll_planner.memory.engine_holdings import HoldingFactors
from plimsoll_planner.memory.flow import Flow
from plimsoll_planner.memory.option_arrays import OptionArrays

Runs = tuple[slice, slice]
"""Some A and some B, in a row each."""
EVERY = slice(None), slice(None)
MOST_SEARCHED = 1 / 16
"""Part of the options that is searched one by one; more of them by a ladder."""


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


@dataclass(frozen=True, kw_only=True, eq=False)
class StageBytes:
    """Bytes that do not depend on the flow, for all stages [A, B].

    A matrix is made when it is asked for first: most are of few questions.
    """

    chain: ChainBytes
    holdings: HoldingFactors
    bounds: Ints
    """[A]: layers that a stage may begin with; L comes last."""
    possible: Flags | None = None
    """[A, B]: runs that are not above any device; None: all."""

    def only_where(self, possible: Flags) -> StageBytes:
        """The same, with runs [A, B] that are not possible above any device."""
        return replace(self, possible=possible)

    def run_sums(self, values: Ints) -> Ints:
        """[A, B]: the sum of values from A to B, negative where B < A."""
        sums = np.append(0, np.cumsum(values))[self.bounds]
        return np.asarray(sums[None, :] - sums[:-1, None])

    def own_sums(self, name: str) -> Ints:
        """[A, B]: the sum of a column, without copies of what tied layers share."""
        found = self.run_sums(getattr(self.chain, name))
        for tie, copies in zip(self.chain.ties, self.copies, strict=True):
            found -= copies * getattr(tie, name)
        return found

    @cached_property
    def copies(self) -> list[Ints]:
        """[A, B] of each tie: its layers in a run but the first one."""
        found: list[Ints] = []
        for tie in self.chain.ties:
            is_member = np.zeros(self.chain.num_layers, dtype=np.int64)
            is_member[tie.members] = 1
            found.append(np.maximum(self.run_sums(is_member) - 1, 0))
        return found

    @cached_property
    def gradient(self) -> Ints:
        """Without copies for their exchange."""
        return self.own_sums("gradient")

    @cached_property
    def owned(self) -> Ints:
        """Numbers that the optimizer of a rank steps on."""
        return self.own_sums("owned")

    @cached_property
    def host(self) -> Ints:
        """In the memory of the machine."""
        return self.own_sums("host")

    @cached_property
    def state(self) -> Ints:
        """Parameters, gradients, buffers and optimizer state."""
        found = self.own_sums("state")
        if self.possible is None:
            return found
        return np.where(self.possible, found, LARGEST_BYTES)

    def num_layers_with(self, values: Ints) -> Ints:
        """[A, B]: how many layers have any."""
        return self.run_sums((values > 0).astype(np.int64))

    @property
    def num_trained(self) -> Ints:
        """Layers that have gradients."""
        return self.num_layers_with(self.chain.gradient)

    @property
    def at_end(self) -> AllReduces:
        """As long as what replicas exchange once in a step."""
        count = self.num_layers_with(self.chain.exchanged)
        return AllReduces(num_bytes=self.own_sums("exchanged"), count=count)

    @property
    def in_forward(self) -> AllReduces:
        """As long as what they exchange in a forward pass."""
        return self._of_passes(self.chain.exchanged_forward)

    @property
    def in_backward(self) -> AllReduces:
        """As long as what they exchange in a backward pass."""
        return self._of_passes(self.chain.exchanged_backward)

    def _of_passes(self, values: Ints) -> AllReduces:
        """Those of a pass."""
        count = self.num_layers_with(values)
        return AllReduces(num_bytes=self.run_sums(values), count=count)

    @cached_property
    def waiting(self) -> Ints:
        """Gradients that wait for those of tied layers on the same rank."""
        found = np.zeros_like(self.state)
        for tie, copies in zip(self.chain.ties, self.copies, strict=True):
            found += (copies > 0) * tie.waiting_bytes
        return found

    @cached_property
    def optimizer_transient(self) -> Ints:
        """Largest one of a run."""
        size = self.chain.num_layers
        first, last = self.bounds[:-1, None], self.bounds[1:] - 1
        inside = np.arange(size) >= first
        largest = np.where(inside, self.chain.optimizer_transient, 0)
        largest = np.maximum.accumulate(largest, axis=1)[:, last]
        return np.pad(largest, ((0, 0), (1, 0)))

    @cached_property
    def received(self) -> Ints:
        """[A]: what a stage receives from the one in front, 0 for the first."""
        return np.append(0, self.chain.received)[self.bounds[:-1]]

    @cached_property
    def sent_back(self) -> Ints:
        """[A]: gradients for the stage in front, 0 where nothing there is trained."""
        trains = self.bounds[:-1] > self.chain.num_untrained
        passed = np.where(trains, self.passed[:-1], 0)
        return np.asarray(passed + self.returning[:-1])

    @cached_property
    def passed(self) -> Ints:
        """[B]: boundary behind a stage, 0 for the last; of A in front of it."""
        return self._at_cuts(self.chain.boundary)

    @cached_property
    def returning(self) -> Ints:
        """[B]: gradients of carried values that come back, 0 for the last."""
        return self._at_cuts(self.chain.carried.returning)

    @cached_property
    def sent(self) -> Ints:
        """[B]: what the link behind a stage carries each way, 0 for the last."""
        return self._at_cuts(self.chain.linked)

    def _at_cuts(self, values: Ints) -> Ints:
        """[B]: values of the layers in front of cuts; 0 at both ends of the model."""
        found = np.append(0, values)[self.bounds]
        found[-1] = 0
        return np.asarray(found)

    @cached_property
    def carried_past(self) -> Ints:
        """[A, B]: carried values among past outputs; see `rank_peak.carried_past`."""
        carried, bounds = self.chain.carried, self.bounds
        sent = self._at_cuts(carried.crossing)
        held = self.holdings.input_in_flight * (bounds[:-1] > 0)
        more = carried.crossing_from_front(bounds[:-1], bounds)
        return np.asarray(sent - np.where(held[:, None], 0, more))

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
        chain, samples = self.chain, flow.micro_batch * num_micro_batches
        before = times * self.received
        before += (num_micro_batches > k) * holdings.gradient_sent * self.sent_back
        before[0] += samples * chain.inputs_per_sample
        past = holdings.outputs_past(k, num_micro_batches) if chain.past_output else 0
        behind = (standing + past) * self.passed + standing * self.returning
        behind[-1] += samples * chain.targets_per_sample
        behind[-1] += holdings.logits_kept * chain.boundary[-1]
        around = before[first][:, None] + behind[end]
        if chain.ties:
            around += self.waiting[runs]
        if past and not chain.carried.is_empty:
            around += self.carried_past[runs]
        return np.asarray(self.state_of(flow, runs) + around)

    def optimizer_step(self, flow: Flow, runs: Runs = EVERY) -> Ints:
        """[A, B]: peak of the optimizer step."""
        held = self.state_of(flow, runs) + self.optimizer_transient[runs]
        standing = self.holdings.standing(flow.in_flight, flow.num_micro_batches)
        if standing:
            first, end = runs
            behind = self.passed[end] + self.returning[end]
            held += standing * (self.received[first][:, None] + behind)
        return held


def stage_bytes(
    chain: ChainBytes, holdings: HoldingFactors, starts: Ints | None = None
) -> StageBytes:
    """Matrices of one chain; A counts the layers that a stage may begin with.

    Args:
        chain: the bytes.
        holdings: what the engine holds.
        starts: those layers; None: all.
    """
    every = np.arange(chain.num_layers) if starts is None else starts
    bounds = np.append(every, chain.num_layers)
    return StageBytes(chain=chain, holdings=holdings, bounds=bounds)


def option_peaks(
    stages: StageBytes,
    options: OptionArrays,
    flow: Flow,
    runs: tuple[Ints, ...],
) -> Ints:
    """Peaks of all options of some runs, one run after the other; see `of_runs`."""
    places, run, _ = options.of_runs(runs)
    peaks = options.peak[places] + (flow.in_flight - 1) * options.saved[places]
    peaks += stages.start(flow)[runs][run]
    return np.asarray(np.maximum(peaks, stages.optimizer_step(flow)[runs][run]))


def least_peaks(stages: StageBytes, options: OptionArrays, flow: Flow) -> Ints:
    """[A, B]: the least peak at any speed."""
    inner = options.peak + (flow.in_flight - 1) * options.saved
    peaks = options.least(inner, LARGEST_BYTES) + stages.start(flow)
    return np.asarray(np.maximum(peaks, stages.optimizer_step(flow)))


def room_of(stages: StageBytes, flow: Flow, capacity_bytes: int) -> Ints:
    """[A, B]: room for k - 1 micro-batches' S and the peak Q within a capacity.

    There is none where the optimizer step does not fit.
    """
    fits = stages.optimizer_step(flow) <= capacity_bytes
    return np.where(fits, capacity_bytes - stages.start(flow), -LARGEST_BYTES)


def least_seconds(options: OptionArrays, in_flight: int, room: Ints) -> Floats:
    """[A, B]: least added seconds of an option that has room, or infinity.

    Most runs need no search: what recomputes least fits already, or even the least of
    both terms does not.
    """
    more = in_flight - 1
    saved, peak, seconds = options.fastest
    easy = peak + more * saved <= room
    found = np.where(easy, seconds, np.inf)
    hard = ~easy & (options.least_peak + more * options.least_saved <= room)
    runs = np.nonzero(hard)
    num_hard = int(options.count[runs].sum())
    if num_hard > MOST_SEARCHED * len(options.seconds):
        places = np.flatnonzero(hard[options.runs])
        found[runs] = options.seconds_within(in_flight, places, room[runs])
    elif num_hard:
        places, run, begins = options.of_runs(runs)
        needed = options.peak[places] + more * options.saved[places]
        added_s = np.where(needed <= room[runs][run], options.seconds[places], np.inf)
        found[runs] = np.minimum.reduceat(added_s, begins)
    return found


def peaks_of_run(
    stages: StageBytes, options: OptionArrays, flow: Flow, first: int, end: int
) -> Ints:
    """[n]: the peak of every option of one run."""
    mine = options.of(first, end)
    inner = options.peak[mine] + (flow.in_flight - 1) * options.saved[mine]
    run = slice(first, first + 1), slice(end, end + 1)
    start, step = stages.start(flow, run), stages.optimizer_step(flow, run)
    return np.asarray(np.maximum(inner + start[0, 0], step[0, 0]))
