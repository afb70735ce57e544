"""Seconds of every run of layers as one stage, and of what waits around it.

In: seconds of a chain, its boundaries, a topology. Out: for each stage a `StageRuns`,
matrices [A, B] in seconds, from which a schedule makes its bounds. Called by the
search.

Between stages whose cut is not known, the least boundary there is crosses the link, so
all sums around a stage are least sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from plimsoll_planner.memory.bounds import Floats, Ints
from plimsoll_planner.memory.stage_peaks import AllReduces
from plimsoll_planner.timing.chain_seconds import ChainSeconds
from plimsoll_planner.timing.ticks import TICKS_PER_S
from plimsoll_planner.timing.topology import Hop, Topology


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RunSeconds:
    """Sums over runs of layers [A, B] and over all layers before A."""

    forward: Floats
    """[A, B]"""
    backward: Floats
    """[A, B]"""
    optimizer_step: Floats
    """[A, B]"""
    host_step: Floats
    """[A, B]"""
    group_end: Floats
    """[A, B]: messages of tensor groups at the end of a step."""
    forward_before: Floats
    """[A], A from 0 to L."""
    backward_before: Floats
    """[A]"""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class EndSeconds:
    """Seconds after the last backward pass, of runs of layers."""

    exchange: Floats
    """Of gradients in tensor groups, and among replicas."""
    optimizer: Floats
    """Optimizer step, wherever it is computed."""
    host_step: Floats
    """Of the step, if it were computed on the host."""
    to_host: Floats
    """Of gradients on their way there."""
    from_host: Floats
    """Of parameters on their way back."""
    sharing: int = 1
    """Ranks that share the link to the host; the seconds are those of one alone."""

    @property
    def total(self) -> Floats:
        """All of them that are spent."""
        return self.exchange + self.optimizer


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Exchange:
    """Bytes that the replicas of a stage exchange and step on, [A, B]."""

    at_end: AllReduces
    """After the last backward pass."""
    in_forward: AllReduces
    """In each forward pass."""
    in_backward: AllReduces
    """In each backward pass."""
    copies: Ints
    """Layers that are copied to the host and back, each on its own."""
    to_host_bytes: Ints
    """Gradients that the optimizer of a rank steps on."""
    from_host_bytes: Ints
    """Parameters that it steps on."""

    def of(self, run: tuple[int, int]) -> Exchange:
        """That of one run, arrays without an axis."""
        return Exchange(
            at_end=self.at_end.of(run),
            in_forward=self.in_forward.of(run),
            in_backward=self.in_backward.of(run),
            copies=np.asarray(self.copies[run]),
            to_host_bytes=np.asarray(self.to_host_bytes[run]),
            from_host_bytes=np.asarray(self.from_host_bytes[run]),
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StageRuns:
    """One stage: its own seconds, and those of the layers before and behind it."""

    forward: Floats
    """[A, B]"""
    backward: Floats
    """[A, B]: without recomputing."""
    end: Floats
    """[A, B]: exchange of gradients and optimizer step."""
    forward_before: Floats
    """[A, 1]: forward of the layers before, one way over their links."""
    backward_before: Floats
    """[A, 1]: backward of the layers before, one way over their links."""
    both_before: Floats
    """[A, 1]: both passes of the layers before, both ways over their links."""
    both_behind: Floats
    """[B]: both passes of the layers behind, both ways over their links."""

    def of(self, runs: tuple[Ints, Ints]) -> StageRuns:
        """Seconds [run] of some runs, each an A and a B."""
        first, end = runs
        return StageRuns(
            forward=self.forward[runs],
            backward=self.backward[runs],
            end=self.end[runs],
            forward_before=self.forward_before[first, 0],
            backward_before=self.backward_before[first, 0],
            both_before=self.both_before[first, 0],
            both_behind=self.both_behind[end],
        )

    def paced(self, pace: float, least: float) -> StageRuns:
        """The same if passes take longer or shorter, those of others at the least.

        Of both it is a part of the seconds. Those of others stay lower bounds: links
        take as long as they do.
        """
        around = min(least, 1.0)
        if pace == around == 1:
            return self
        return replace(
            self,
            forward=self.forward * pace,
            backward=self.backward * pace,
            forward_before=self.forward_before * around,
            backward_before=self.backward_before * around,
            both_before=self.both_before * around,
            both_behind=self.both_behind * around,
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StageBound:
    """Lower bounds of the step for each run of layers as one stage, [A, B].

    They are of a stage with k micro-batches in flight; the first two hold with fewer as
    well.
    """

    passes: Floats
    """Without recomputing, which adds M * T."""
    cycles: Floats
    """Whatever recomputes."""
    cycles_of_k: Floats
    """Whatever recomputes, with k in flight alone."""

    def of(self, runs: tuple[Any, ...]) -> StageBound:
        """Bounds [run] of some runs, A and B as arrays, or of one, as numbers."""
        return StageBound(
            passes=self.passes[runs],
            cycles=self.cycles[runs],
            cycles_of_k=self.cycles_of_k[runs],
        )

    @property
    def with_fewer(self) -> Floats:
        """Lower bound whatever recomputes, with k or fewer in flight."""
        return np.maximum(self.passes, self.cycles)

    def step_s(self, num_micro_batches: int, added_s: Floats) -> Floats:
        """Lower bound of the step, if a way of layers adds T to a backward pass.

        T is [A, B], or [run, n] for the bounds of runs.
        """
        axes = (...,) + (None,) * (added_s.ndim - self.passes.ndim)
        passes = self.passes[axes] + num_micro_batches * added_s
        cycles = np.maximum(self.cycles, self.cycles_of_k)
        return np.maximum(passes, cycles[axes])


def run_seconds(chain: ChainSeconds) -> RunSeconds:
    """Sums of the seconds of all runs of layers."""

    def before(values: Floats) -> Floats:
        return np.concatenate([[0.0], np.cumsum(values)])

    def runs(values: Floats) -> Floats:
        sums = before(values)
        return sums[None, :] - sums[:-1, None]

    return RunSeconds(
        forward=runs(chain.forward),
        backward=runs(chain.backward),
        optimizer_step=runs(chain.optimizer_step),
        host_step=runs(chain.host_step),
        group_end=runs(chain.group_end),
        forward_before=before(chain.forward),
        backward_before=before(chain.backward),
    )


def stage_runs(
    runs: RunSeconds,
    boundary: Ints,
    exchange: Exchange,
    placed: Topology,
    end_s: Callable[[EndSeconds], Floats] = lambda end: end.total,
) -> list[StageRuns]:
    """Every stage with the layers around it.

    Args:
        runs: sums of seconds.
        boundary: [l], bytes over a link behind each layer.
        exchange: among replicas.
        placed: P, D and the links.
        end_s: seconds after the last backward pass.
    """
    hops = [hop_seconds(hop, boundary) for hop in placed.hops]
    size = runs.forward.shape[0]
    both = runs.forward_before + runs.backward_before
    of_runs = runs.optimizer_step, runs.host_step, runs.group_end
    # Stages whose replicas have like links take as long.
    own: dict[Hop, tuple[Floats, Floats, Floats]] = {}
    found: list[StageRuns] = []
    for stage, link in enumerate(placed.exchanges):
        links_before = transfers_before(hops[:stage], size)[:, None]
        links_behind = transfers_behind(hops[stage:], size)
        if link not in own:
            end = end_seconds(placed, stage, exchange, *of_runs)
            forward, backward = pass_seconds(placed, stage, exchange)
            own[link] = runs.forward + forward, runs.backward + backward, end_s(end)
        forward_s, backward_s, after_s = own[link]
        found.append(
            StageRuns(
                forward=forward_s,
                backward=backward_s,
                end=after_s,
                forward_before=runs.forward_before[:-1, None] + links_before,
                backward_before=runs.backward_before[:-1, None] + links_before,
                both_before=both[:-1, None] + 2 * links_before,
                both_behind=both[-1] - both + 2 * links_behind,
            )
        )
    return found


def hop_seconds(
    hop: Hop, num_bytes: Ints | Floats, num_messages: Ints | int = 1
) -> Floats:
    """Seconds of amounts of bytes over one link, each as `Hop.seconds` has them."""
    ticks = (num_messages * hop.latency_s + num_bytes * hop.s_per_byte) * TICKS_PER_S
    return np.asarray(np.ceil(ticks) / TICKS_PER_S)


def transfers_before(hops: list[Floats], num_layers: int) -> Floats:
    """[A]: least seconds, one way, of all cuts up to the one before A."""
    total = np.zeros(num_layers)
    if hops:
        total[1:] = hops[-1][:-1]
        for hop in hops[:-1]:
            total[1:] += np.minimum.accumulate(hop[:-1])
    return np.asarray(total)


def transfers_behind(hops: list[Floats], num_layers: int) -> Floats:
    """[B]: least seconds, one way, of all cuts from the one before B on."""
    total = np.zeros(num_layers + 1)
    if hops:
        total[1:-1] = hops[0][:-1]
        for hop in hops[1:]:
            total[1:-1] += np.minimum.accumulate(hop[:-1][::-1])[::-1]
    return np.asarray(total)


def exchange_seconds(placed: Topology, stage: int, all_reduces: AllReduces) -> Floats:
    """[A, B]: seconds of ring all-reduces of a stage: each 2 (D-1) steps of 1/D."""
    replicas = placed.mesh.data
    if replicas == 1:
        return np.zeros(all_reduces.num_bytes.shape)
    part, link = all_reduces.num_bytes / replicas, placed.exchanges[stage]
    return 2 * (replicas - 1) * hop_seconds(link, part, all_reduces.count)


def pass_seconds(
    placed: Topology, stage: int, exchange: Exchange
) -> tuple[Floats, Floats]:
    """[A, B]: seconds of what replicas exchange in a forward and a backward pass."""
    return (
        exchange_seconds(placed, stage, exchange.in_forward),
        exchange_seconds(placed, stage, exchange.in_backward),
    )


def end_seconds(
    placed: Topology,
    stage: int,
    exchange: Exchange,
    optimizer_s: Floats,
    host_step_s: Floats,
    group_s: Floats,
) -> EndSeconds:
    """Seconds of runs of layers as one stage after their last backward pass.

    Each layer is copied to the host and back on its own.
    """
    copies = exchange.copies
    return EndSeconds(
        exchange=group_s + exchange_seconds(placed, stage, exchange.at_end),
        optimizer=optimizer_s,
        host_step=host_step_s,
        to_host=hop_seconds(placed.host, exchange.to_host_bytes, copies),
        from_host=hop_seconds(placed.host, exchange.from_host_bytes, copies),
        sharing=placed.ranks_per_host_link,
    )


def shared_bound(
    chain: ChainSeconds,
    placed: Topology,
    num_micro_batches: int,
    optimizer_s: float | None = None,
) -> float:
    """All work over all cores, where ranks share cores; else 0.

    `optimizer_s` are the least seconds of the step on one rank of each stage; None:
    each of them steps on everything.
    """
    if placed.concurrent_per_node is None:
        return 0.0
    if optimizer_s is None:
        optimizer_s = float(chain.optimizer_step.sum())
    ranks = placed.mesh.ranks_per_stage
    work = ranks * (num_micro_batches * chain.total + optimizer_s)
    return work / (placed.concurrent_per_node * placed.num_nodes)
