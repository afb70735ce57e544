"""1F1B: one backward pass and one forward pass in turn (torch's Schedule1F1B).

Stage s runs k = min(M, P - s) forward passes to warm up, then one backward and one
forward pass in turn, then the backward passes that remain; P = 3, M = 4, one line for
each stage:

    s = 0   F0 F1 F2 B0 F3 B1 B2 B3
    s = 1   F0 F1 B0 F2 B1 F3 B2 B3
    s = 2   F0 B0 F1 B1 F2 B2 F3 B3

**Bounds of the step**, for a run of layers as stage s, with sums over the layers before
(`<`) and behind (`>`), links included. docs/decisions/0009 says why these and not the
bare period M * max load.

    F, B'   seconds of forward and backward of the stage's layers; T added by recompute

[1] Passes. Layers before the stage run the first micro-batch forward before the stage
starts, and the last one backward after it ends. Between, the stage runs M (F + B' + T).
Also, its first backward pass waits for the layers behind to have run the first
micro-batch both ways, and by then it has run at most k forward passes; M - k of them
and all backward passes follow:

    passes = forward(<) + M (B' + T) + max(M F, F + both(>) + (M - k) F)
             + max(backward(<), exchange of gradients + optimizer step)

[2] Cycles. Backward pass i of stage s is followed there by forward pass i + k_s, which
goes on to stage t and is followed there by backward pass i + r, r = k_s - k_t + 1,
which comes back to s. So every r micro-batches take all work of the stages s to t and
their links both ways. This happens n = ceil((M - k_s) / r) times after the first
backward pass of s, and M - n r backward passes of s follow. Over slow links this is
what binds. Two cycles depend on the stage alone: from it to the last stage (k = 1
there, so r = k_s), and from the first stage to it (k_0 <= K, so r <= K - k_s + 1, with
K = min(M, P, k_s + s)):

    to last     forward(<) + F + both(>) + n (F + B' + both(>)) + (M - n r) B'
                + max(backward(<), exchange of gradients + optimizer step)
    from first  both of all layers + n (both(<) + F + B'),  n = ceil((M - K) / r)

If numbers in flight of the first stages are known, the cycles between any two of them
count as well (`cycles_bound`), from s to t with r = k_s - k_t + 1 and all of it before
and after as above:

    between     forward(<) + F + both(>) + n (both from s to t) + (M - n r) B'
                + max(backward(<), exchange of gradients + optimizer step)

No 1F1B step is shorter: each term is a chain of operations that wait for one another.

**Caps.** A stage may be kept to fewer in flight, 1 <= k <= min(M, P - s), as long as
each stage has as many as the one before or one fewer (`can_follow`). With more it would
wait for inputs that the one before does not make. With two fewer the stage before would
send a forward output that is taken only with the gradient that it waits for itself, so
its own number would be of no use; with three fewer both would wait for ever, as a send
ends when it is taken. Stages with the same number are a group of Beaumont et al., and
take turns. [1] and `to last` hold for k and for any fewer, for the chains have only
more to wait for; `from first` holds for k alone.

**Repetition.** With w = P - s in flight a stage runs

    F0 .. Fw-1  B0 | Fw B1 | Fw+1 B2 | .. | FM-1 BM-w | .. BM-1
    fills          | repeats itself M - w times       | drains

The first repetition holds what each of them holds: w in flight, and the gradient that
is sent back meanwhile. While the stage fills and drains less is held.

**Shortcut of the walk**, for M >= P. Round m has the backward pass of micro-batch m on
every stage, from the last stage to the first, and then the forward pass of micro-batch
m + k_s, if there is one. Stage s - 1 ran that one in the round before, because
k_{s-1} = k_s + 1. So the ends of the forward passes of a round depend on those of the
round before alone:

    B_s = max(free_s, B_{s+1} + delay_s) + b_s      scanned from the last stage
    F_s = max(B_s, F'_{s-1} + delay_{s-1}) + f_s    F' of the round before, free = F'

If a round ends later than an earlier one by the same amount on all stages, so does
each round after it, as long as all stages have a forward pass to run: as many times as
fit, what lies between the two is skipped. A cycle of r micro-batches that binds repeats
after r rounds. The earlier round is the last power of two (Brent's cycle search).
Seconds are whole ticks, so this is exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from plimsoll_planner.memory.bounds import Floats, Ints
from plimsoll_planner.records.engine import EngineHoldings, Schedule
from plimsoll_planner.timing.capped_rounds import CappedRounds
from plimsoll_planner.timing.schedule import Operation, Pass, PipelineSchedule
from plimsoll_planner.timing.stage_runs import StageBound, StageRuns
from plimsoll_planner.timing.stage_times import StageTimes
from plimsoll_planner.timing.topology import Topology


class OneFOneB(PipelineSchedule):
    """See the module's text."""

    name: ClassVar[Schedule] = Schedule.ONE_F_ONE_B

    def operations(
        self,
        stage: int,
        num_stages: int,
        num_micro_batches: int,
        in_flight_cap: int | None = None,
    ) -> Iterator[Operation]:
        """Warm-up, turns, and the backward passes that remain."""
        most = self.in_flight(num_stages - stage, num_micro_batches)
        warm_up = min(in_flight_cap or most, most)
        for micro_batch in range(warm_up):
            yield Operation(Pass.FORWARD, micro_batch)
        for micro_batch in range(num_micro_batches):
            yield Operation(Pass.BACKWARD, micro_batch)
            if micro_batch + warm_up < num_micro_batches:
                yield Operation(Pass.FORWARD, micro_batch + warm_up)

    def in_flight(self, num_left: int, num_micro_batches: int) -> int:
        """K = min(M, P - s)."""
        return min(num_micro_batches, num_left)

    def caps(self, num_left: int, num_micro_batches: int) -> range:
        """1 to k: the warm-up may be as short as one forward pass.

        A rank holds the less, the fewer are in flight, as M is at least P.
        """
        return range(1, self.in_flight(num_left, num_micro_batches) + 1)

    def is_saturated(self, num_stages: int, num_micro_batches: int) -> bool:
        """If M >= P."""
        return num_micro_batches >= num_stages

    def steady(
        self, num_left: int, num_micro_batches: int, holds: EngineHoldings
    ) -> int:
        """W + 1, where w = P - s are in flight; see the module's text.

        An engine that keeps outputs (torch before 2.15) holds on to one of the warm-up,
        which is one more as soon as its own micro-batch is over: with 2 w - 1 of them.
        """
        turned = 2 * num_left - 1 if holds.stage_outputs_kept else 0
        return min(max(num_left + 1, turned), num_micro_batches)

    def stage_bound(
        self,
        runs: StageRuns,
        stage: int | Ints,
        num_stages: int,
        num_micro_batches: int,
        in_flight: int | Ints,
    ) -> StageBound:
        """Passes [1] and cycles [2]."""
        forward, backward = runs.forward, runs.backward
        last = np.maximum(runs.backward_before, runs.end)
        around = runs.forward_before + last
        # [1] passes
        waiting = num_micro_batches - in_flight
        begun = np.maximum(
            num_micro_batches * forward, (waiting + 1) * forward + runs.both_behind
        )
        passes = begun + num_micro_batches * backward + around
        # [2] cycles
        times = -(-waiting // in_flight)
        left = num_micro_batches - times * in_flight
        to_last = (times + 1) * forward + (times + left) * backward
        to_last += (times + 1) * runs.both_behind + around
        allowed = self.in_flight(num_stages, num_micro_batches)
        most = np.minimum(allowed, in_flight + stage)
        rounds = -(-(num_micro_batches - most) // (most - in_flight + 1))
        from_first = (rounds + 1) * (forward + backward + runs.both_before)
        from_first += runs.both_behind
        return StageBound(passes=passes, cycles=to_last, cycles_of_k=from_first)

    def closed_bound(
        self, total_s: float, num_stages: int, num_micro_batches: int
    ) -> float:
        """W / (1 - (1 - 1/M)^P) for W seconds.

        The stages' bounds contain before_s + M load_s with before_{s+1} = before_s +
        load_s. Their maximum is least if all are equal, so load_s falls by the factor
        1 - 1/M from stage to stage, and the loads add up to W.
        """
        rest = (1 - 1 / num_micro_batches) ** num_stages
        return total_s / (1 - rest)

    def cycles_bound(
        self,
        stages: list[StageTimes],
        num_micro_batches: int,
        links_s: Sequence[float],
        behind_s: float,
    ) -> float:
        """Cycles of every stage s before the last one t, and what is around them."""
        forward_s, backward_s = [0.0], [0.0]  # before each stage, one way
        for stage, link_s in zip(stages, links_s, strict=False):
            forward_s.append(forward_s[-1] + stage.forward_s + link_s)
            backward_s.append(backward_s[-1] + stage.backward_s + link_s)
        fewest = stages[-1].in_flight_cap or 1
        longest_s, around_s = 0.0, 0.0
        for place in range(len(stages) - 1, -1, -1):
            stage = stages[place]
            k = stage.in_flight_cap or num_micro_batches
            r = k - fewest + 1
            times = -((k - num_micro_batches) // r)
            own_s = stage.forward_s + stage.backward_s
            begun_s = forward_s[place] + stage.forward_s + around_s + behind_s
            left_s = (num_micro_batches - times * r) * stage.backward_s
            ended_s = left_s + max(backward_s[place], stage.end_s)
            longest_s = max(longest_s, begun_s + times * (own_s + around_s) + ended_s)
            if place:
                around_s += own_s + 2 * links_s[place - 1]
        return longest_s

    def last_backwards(
        self, stages: list[StageTimes], num_micro_batches: int, placed: Topology
    ) -> list[float] | None:
        """Round by round; without caps for M >= P alone."""
        plain = [
            self.in_flight(len(stages) - place, num_micro_batches)
            for place in range(len(stages))
        ]
        capped = [
            min(stage.in_flight_cap or k, k)
            for stage, k in zip(stages, plain, strict=True)
        ]
        if capped != plain:
            rounds = CappedRounds(stages, capped, placed)
            return rounds.last_backwards(num_micro_batches)
        if num_micro_batches < len(stages):
            return None
        return last_of_rounds(stages, num_micro_batches, placed)


def last_of_rounds(
    stages: list[StageTimes], num_micro_batches: int, placed: Topology
) -> list[float]:
    """Ends of the last backward passes, for M >= P and no caps."""
    num_stages = len(stages)
    forward = np.array([stage.forward_s for stage in stages], dtype=np.float64)
    backward = np.array([stage.backward_s for stage in stages], dtype=np.float64)
    delays = np.array(
        [hop.seconds(s.sent_bytes) for hop, s in zip(placed.hops, stages, strict=False)]
    )
    in_flight = num_stages - np.arange(num_stages)
    # Sums along the way back, so that the scan becomes a running maximum.
    way = np.cumsum(backward)
    way[1:] += np.cumsum(delays)
    free = warmed_up(forward, delays)
    micro_batch, earlier, earlier_round = 0, free, 0
    while micro_batch < num_micro_batches:
        through = np.maximum.accumulate((free + way)[::-1])[::-1]
        ends = through - way + backward
        arrived = np.concatenate([[0.0], free[:-1] + delays])
        runs_on = micro_batch + in_flight < num_micro_batches
        free = np.where(runs_on, np.maximum(ends, arrived) + forward, ends)
        micro_batch += 1
        later = free - earlier
        if runs_on[0] and (later == later[0]).all():
            period = micro_batch - earlier_round
            times = (num_micro_batches - num_stages - micro_batch) // period
            free += times * later[0]
            micro_batch += times * period
        if micro_batch >= 2 * earlier_round:
            earlier, earlier_round = free, micro_batch
    return [float(end) for end in free]


def warmed_up(forward: Floats, delays: Floats) -> Floats:
    """Ends of the P - s forward passes of each stage's warm-up."""
    num_stages = len(forward)
    ends = np.cumsum(np.full(num_stages, forward[0]))
    last = [float(ends[-1])]
    for stage in range(1, num_stages):
        arrived = ends[: num_stages - stage] + delays[stage - 1]
        # end_m = max(end_{m-1}, arrived_m) + f, unrolled into a running maximum.
        steps = forward[stage] * np.arange(num_stages - stage)
        ends = np.maximum.accumulate(arrived - steps) + steps + forward[stage]
        last.append(float(ends[-1]))
    return np.array(last)


SCHEDULE = OneFOneB()
