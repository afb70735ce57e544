"""Least seconds that recomputing adds to a stage within a capacity, over all runs.

In: a tuple, a capacity, a choice of the stage or all of them, what flows through it.
Out: matrices [A, B]. The base of `TupleBounds`; keeps those of single choices.

Choices that options are built alike for differ by the room that they leave to these,
and more room never adds seconds. So of all choices only the most room is searched.
"""

from __future__ import annotations

import numpy as np

from plimsoll_planner.memory.added_bounds import least_added
from plimsoll_planner.memory.bounds import Floats, Ints
from plimsoll_planner.memory.flow import Flow
from plimsoll_planner.memory.stage_peaks import least_seconds, room_of
from plimsoll_planner.records.engine import Way
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.search.least_peaks import LeastPeaks, offloads
from plimsoll_planner.search.numbers import Numbers
from plimsoll_planner.search.space import Candidate
from plimsoll_planner.search.tuple_context import CutsOf, least_of
from plimsoll_planner.techniques.technique import StageChoice

Rooms = dict[tuple[StageChoice, int], Ints]
"""Room [A, B] by what options are built for, and micro-batches in flight."""
MOST_SECONDS_BYTES = 2**28
"""Matrices of added seconds that are kept."""


class AddedByRecomputing(LeastPeaks):
    """Seconds that recomputing adds to stages of single tuples."""

    def __init__(self, problem: Problem, cuts_of: CutsOf | None = None) -> None:
        """Begin with none known; see `TupleContext`."""
        super().__init__(problem, cuts_of)
        self._least_s: dict[tuple[object, ...], Floats] = {}

    def added_seconds(
        self,
        candidate: Candidate,
        bounds: Numbers,
        capacity_bytes: int,
        choice: StageChoice,
        flow: Flow,
    ) -> Floats:
        """[A, B]: least seconds that recomputing adds within a capacity."""
        b, costs = candidate.micro_batch, self.costs(candidate)
        clock = costs.clock(candidate.offer, choice.other_way)
        of_seconds = costs.variant, clock
        share = self.host_share(candidate) if choice.uses_host else 0
        key = (*of_seconds, bounds, capacity_bytes, choice, flow, share)
        if key not in self._least_s:
            asked = bounds.bytes, choice, flow.in_flight
            stages = self.stage_bytes(candidate, *asked)
            found = least_seconds(
                costs.options(candidate.offer, *bounds, b, choice.at_work),
                flow.in_flight,
                room_of(stages, flow, capacity_bytes),
            )
            if len(self._least_s) * found.nbytes > MOST_SECONDS_BYTES:
                self._least_s.clear()
            self._least_s[key] = found
        return self._least_s[key]

    def most_room(
        self,
        candidate: Candidate,
        bounds: Numbers,
        capacity_bytes: int,
        flow: Flow,
        offload: bool,
    ) -> Rooms:
        """[A, B]: most room that any choice leaves to options; see `room_of`.

        Unless `offload`, of those that offload nothing. By the part of choices that
        options are built for, and micro-batches in flight.
        """
        found: Rooms = {}
        for choice in self.choices(candidate):
            if offloads(choice) and not offload:
                continue
            own = choice.flow(flow)
            asked = bounds.bytes, choice, own.in_flight
            stages = self.stage_bytes(candidate, *asked)
            room = room_of(stages, own, capacity_bytes)
            key = choice.at_work, own.in_flight
            found[key] = np.maximum(found[key], room) if key in found else room
        return found

    def added_by_any(
        self, candidate: Candidate, bounds: Numbers, rooms: Rooms
    ) -> Floats:
        """[A, B]: `added_seconds` of the best choice."""
        costs, b = self.costs(candidate), candidate.micro_batch
        return least_of(
            least_seconds(
                costs.options(candidate.offer, *bounds, b, at_work), in_flight, room
            )
            for (at_work, in_flight), room in rooms.items()
        )

    def least_added(
        self, candidate: Candidate, bounds: Numbers, rooms: Rooms
    ) -> Floats:
        """[A, B]: `added_by_any` or less, at next to no cost; see `added_bounds`."""
        costs, b = self.costs(candidate), candidate.micro_batch
        most: dict[tuple[Way, int], Ints] = {}
        for (at_work, in_flight), room in rooms.items():
            key = at_work.other_way, in_flight
            most[key] = np.maximum(room, most.get(key, room))
        return least_of(
            least_added(
                costs.held(bounds.bytes, b, other),
                costs.added(candidate.offer, bounds.seconds, b, other).both,
                in_flight,
                room,
                np.append(costs.starts, len(self.problem.profile.layers.name)),
            )
            for (other, in_flight), room in most.items()
        )
