"""Lower bound of the seconds of a 1F1B step, as a matrix over all stages of a tuple.

In: seconds of a chain, its boundaries, a topology, M. Out: for each stage s matrices
[A, B] in seconds. Called by the exact programmes, which minimise the largest entry over
the stages of a plan; why this and not the bare period M * max load is written in
docs/decisions/0009.

    F, B'   seconds of forward and backward of the stage's layers; T added by recompute
    k       micro-batches in flight, min(M, P - s)

**Passes.** Layers before the stage run the first micro-batch forward before the stage
starts, and the last one backward after it ends. Between, the stage runs M (F + B' + T).
Also, its first backward pass waits for the layers behind the stage to have run the
first micro-batch both ways, and by then it has run at most k forward passes; M - k of
them and all backward passes follow. So with sums over layers before (`<`) and behind
(`>`), links included (between stages whose cut is not known, the least boundary there
is),

    passes = forward(<) + M (B' + T) + max(M F, F + both(>) + (M - k) F)
             + max(backward(<), exchange of gradients + optimizer step)

**Cycles.** Backward pass i of stage s is followed there by forward pass i + k_s, which
goes on to stage t and is followed there by backward pass i + r, r = k_s - k_t + 1,
which comes back to s. So every r micro-batches take all work of the stages s to t and
their links both ways. This happens n = ceil((M - k_s) / r) times after the first
backward pass of s, and M - n r backward passes of s follow. Over slow links this is
what binds. Two cycles depend on the stage alone: from it to the last stage (r = P - s),
and from the first stage to it (r = s + 1, k_0 = P):

    to last     forward(<) + F + both(>) + n (F + B' + both(>)) + (M - n r) B'
                + max(backward(<), exchange of gradients + optimizer step)
    from first  both of all layers + n (both(<) + F + B')

No 1F1B step is shorter: each term is a chain of operations that wait for one another.
Where a node computes for a limited number of ranks at a time, all work of a node over
its cores bounds the step as well (`shared_bound`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plimsoll_planner.memory.chain_bytes import Ints
from plimsoll_planner.timing.chain_seconds import ChainSeconds, Floats
from plimsoll_planner.timing.schedule import in_flight
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
    forward_before: Floats
    """[A], A from 0 to L."""
    backward_before: Floats
    """[A]"""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Gradients:
    """What the replicas of a stage exchange, [A, B]."""

    num_bytes: Ints
    exchanges: Ints
    """All-reduces: one for each layer that has gradients."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StageBound:
    """Two lower bounds of the step for each run of layers as one stage, [A, B]."""

    passes: Floats
    """Without recomputing, which adds M * T."""
    cycles: Floats
    """Whatever recomputes."""

    def of(self, runs: tuple[NDArray[Any], ...]) -> StageBound:
        """Bounds [run] of some runs, each an A and a B."""
        return StageBound(passes=self.passes[runs], cycles=self.cycles[runs])

    def step_s(self, num_micro_batches: int, added_s: Floats) -> Floats:
        """Lower bound of the step, where recomputing adds T seconds to a backward pass.

        Args:
            num_micro_batches: M.
            added_s: T, [A, B], or [run, n] for the bounds of runs.
        """
        axes = (...,) + (None,) * (added_s.ndim - self.passes.ndim)
        passes = self.passes[axes] + num_micro_batches * added_s
        return np.maximum(passes, self.cycles[axes])


def run_seconds(chain: ChainSeconds) -> RunSeconds:
    """Sum the seconds of all runs of layers."""

    def before(values: Floats) -> Floats:
        return np.concatenate([[0.0], np.cumsum(values)])

    def runs(values: Floats) -> Floats:
        sums = before(values)
        return sums[None, :] - sums[:-1, None]

    return RunSeconds(
        forward=runs(chain.forward),
        backward=runs(chain.backward),
        optimizer_step=runs(chain.optimizer_step),
        forward_before=before(chain.forward),
        backward_before=before(chain.backward),
    )


def stage_bounds(
    runs: RunSeconds,
    boundary: Ints,
    gradients: Gradients,
    placed: Topology,
    num_micro_batches: int,
) -> list[StageBound]:
    """Bounds of each stage s.

    Args:
        runs: sums of seconds.
        boundary: [l], bytes behind each layer.
        gradients: what replicas exchange.
        placed: P, D and the links.
        num_micro_batches: M.
    """
    hops = [hop_seconds(hop, boundary) for hop in placed.hops]
    return [
        stage_bound(runs, hops, gradients, placed, stage, num_micro_batches)
        for stage in range(placed.num_stages)
    ]


def stage_bound(
    runs: RunSeconds,
    hops: list[Floats],
    gradients: Gradients,
    placed: Topology,
    stage: int,
    num_micro_batches: int,
) -> StageBound:
    """Bounds of one stage."""
    num_stages, size = placed.num_stages, runs.forward.shape[0]
    before = transfers_before(hops[:stage], size)[:, None]
    behind = transfers_behind(hops[stage:], size)
    k = in_flight(stage, num_stages, num_micro_batches)
    own = runs.forward + runs.backward
    # [1] What runs before the stage starts, on both ways, and behind it.
    lead = runs.forward_before[:-1, None] + before
    trail = runs.backward_before[:-1, None] + before
    both_before = runs.forward_before + runs.backward_before
    both_behind = both_before[-1] - both_before + 2 * behind
    # [2] The stage's own end, or the way back.
    end = runs.optimizer_step
    if placed.data_degree > 1:
        end = end + exchange_seconds(placed, stage, gradients)
    last = np.maximum(trail, end)
    # [3] The stage's passes.
    late = num_micro_batches - k
    forward = np.maximum(
        num_micro_batches * runs.forward,
        runs.forward + both_behind + late * runs.forward,
    )
    passes = lead + num_micro_batches * runs.backward + forward + last
    # [4] Cycles to the last stage and from the first one.
    times = num_cycles(stage, num_stages - 1, num_stages, num_micro_batches)
    rest = num_micro_batches - times * (num_stages - stage)
    to_last = lead + runs.forward + both_behind + times * (own + both_behind)
    to_last += rest * runs.backward + last
    times = num_cycles(0, stage, num_stages, num_micro_batches)
    to_here = both_before[:-1, None] + own + 2 * before
    from_first = to_here + both_behind + times * to_here
    return StageBound(passes=passes, cycles=np.maximum(to_last, from_first))


def num_cycles(first: int, last: int, num_stages: int, num_micro_batches: int) -> int:
    """How often a pass goes round from one stage to another and back."""
    waiting = num_micro_batches - in_flight(first, num_stages, num_micro_batches)
    return -(-waiting // (last - first + 1))


def hop_seconds(hop: Hop, boundary: Ints) -> Floats:
    """Return [l]: seconds of each boundary over one link, in whole ticks."""
    ticks = (hop.latency_s + boundary * hop.s_per_byte) * TICKS_PER_S
    return np.asarray(np.ceil(ticks) / TICKS_PER_S)


def transfers_before(hops: list[Floats], num_layers: int) -> Floats:
    """Return [A]: least seconds, one way, of all cuts up to the one before A."""
    total = np.zeros(num_layers)
    if hops:
        total[1:] = hops[-1][:-1]
        for hop in hops[:-1]:
            total[1:] += np.minimum.accumulate(hop[:-1])
    return np.asarray(total)


def transfers_behind(hops: list[Floats], num_layers: int) -> Floats:
    """Return [B]: least seconds, one way, of all cuts from the one before B on."""
    total = np.zeros(num_layers + 1)
    if hops:
        total[1:-1] = hops[0][:-1]
        for hop in hops[1:]:
            total[1:-1] += np.minimum.accumulate(hop[:-1][::-1])[::-1]
    return np.asarray(total)


def exchange_seconds(placed: Topology, stage: int, gradients: Gradients) -> Floats:
    """Return [A, B]: `Topology.exchange_s` of all stages at once."""
    hop, replicas = placed.exchanges[stage], placed.data_degree
    latency = gradients.exchanges * hop.latency_s
    transfer = gradients.num_bytes / replicas * hop.s_per_byte
    ticks = np.ceil((latency + transfer) * TICKS_PER_S)
    return np.asarray(2 * (replicas - 1) * (ticks / TICKS_PER_S))


def shared_bound(
    chain: ChainSeconds, placed: Topology, num_micro_batches: int
) -> float:
    """Return all work over all cores, where ranks share cores; else 0."""
    if placed.concurrent_per_node is None:
        return 0.0
    work = placed.data_degree * (
        num_micro_batches * chain.total + float(chain.optimizer_step.sum())
    )
    return work / (placed.concurrent_per_node * placed.num_nodes)


def closed_bound(total_s: float, num_stages: int, num_micro_batches: int) -> float:
    """Return a bound that needs no cuts: W / (1 - (1 - 1/M)^P) for W seconds.

    The stages' bounds contain before_s + M load_s with before_{s+1} = before_s +
    load_s. Their maximum is least where all are equal, so load_s falls by the factor
    1 - 1/M from stage to stage, and the loads add up to W.
    """
    rest = (1 - 1 / num_micro_batches) ** num_stages
    return total_s / (1 - rest)
