"""Walk of 1F1B whose stages hold fewer micro-batches in flight, round by round.

In: the stages' seconds, k of each stage, M, a topology. Out: ends of the last backward
passes. Called by the schedule for plans with caps; the text of `schedules/one_f_one_b`
has the plain order.

Stage s runs k_s forward passes to warm up, and k never rises from stage to stage; the
walk knows nothing of sends that wait to be taken, and so of falls by more than one. In
round m it runs backward pass m, then forward pass m + k_s, whose input the stage before
made k_{s-1} - k_s rounds earlier. So between two rounds a link holds as many inputs as
k falls by there. Rounds repeat themselves as those of the plain order do, once the ends
of all passes and the arrivals of all inputs on the links are later by the same amount.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import chain

from plimsoll_planner.timing.stage_times import StageTimes
from plimsoll_planner.timing.topology import Topology


class CappedRounds:
    """Ends of passes, and inputs on their way, between two rounds."""

    def __init__(
        self, stages: Sequence[StageTimes], in_flight: Sequence[int], placed: Topology
    ) -> None:
        """Warm up."""
        self._forward_s = [stage.forward_s for stage in stages]
        self._backward_s = [stage.backward_s for stage in stages]
        self._in_flight = in_flight
        self._delays = [
            hop.seconds(stage.sent_bytes)
            for hop, stage in zip(placed.hops, stages, strict=False)
        ]
        self._round = 0
        self._free: list[float] = []
        """End of each stage's newest pass."""
        self._inputs: list[deque[float]] = []
        """Arrivals at each stage of inputs that it has not used, but at the first."""
        arrived = [0.0] * in_flight[0]
        for place, (stage, count) in enumerate(zip(stages, in_flight, strict=True)):
            now = 0.0
            sent: list[float] = []
            for input_s in arrived[:count]:
                now = max(now, input_s) + stage.forward_s
                sent.append(now)
            self._free.append(now)
            self._inputs.append(deque(arrived[count:]))
            if place < len(self._delays):
                arrived = [end + self._delays[place] for end in sent]

    def last_backwards(self, num_micro_batches: int) -> list[float]:
        """Ends of the last backward passes of a step with M micro-batches."""
        earlier, earlier_round = self._state(), 0
        while self._round < num_micro_batches:
            self._advance(num_micro_batches)
            left = num_micro_batches - self._in_flight[0] - self._round
            if left > 0:
                later = [b - a for a, b in zip(earlier, self._state(), strict=True)]
                if all(one == later[0] for one in later):
                    period = self._round - earlier_round
                    self._skip(left // period, period, later[0])
            if self._round >= 2 * earlier_round:
                earlier, earlier_round = self._state(), self._round
        return self._free

    def _state(self) -> list[float]:
        """All that the next rounds depend on."""
        return [*self._free, *chain.from_iterable(self._inputs)]

    def _advance(self, num_micro_batches: int) -> None:
        """Run one round: backward passes from the last stage on, then forward ones."""
        free, inputs, delays = self._free, self._inputs, self._delays
        arrived = 0.0
        for place in range(len(free) - 1, -1, -1):
            begun = free[place] if free[place] > arrived else arrived
            free[place] = begun + self._backward_s[place]
            arrived = free[place] + delays[place - 1] if place else 0.0
        for place, in_flight in enumerate(self._in_flight):
            if self._round + in_flight >= num_micro_batches:
                continue
            arrived = inputs[place].popleft() if place else 0.0
            begun = free[place] if free[place] > arrived else arrived
            free[place] = begun + self._forward_s[place]
            if place < len(delays):
                inputs[place + 1].append(free[place] + delays[place])
        self._round += 1

    def _skip(self, times: int, period: int, later_s: float) -> None:
        """Leave out periods, each of which ends so much later."""
        self._round += times * period
        self._free = [end + times * later_s for end in self._free]
        self._inputs = [
            deque(end + times * later_s for end in inputs) for inputs in self._inputs
        ]
