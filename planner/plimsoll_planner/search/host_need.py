"""Memory of the machine that a tuple lacks.

In: a tuple of which no plan fits, as its ranks may take no more than their share of the
machine's memory. Out: least bytes, over all cuts and choices, of the rank that takes
most. Called by `verdicts` and `nearest_miss`.
"""

from __future__ import annotations

import numpy as np

from plimsoll_planner.memory.bounds import Bound, Floats
from plimsoll_planner.memory.chain_bytes import LARGEST_BYTES
from plimsoll_planner.memory.stage_peaks import least_peaks
from plimsoll_planner.search.space import Candidate
from plimsoll_planner.search.tuple_bounds import TupleBounds
from plimsoll_planner.search.tuple_context import least_of
from plimsoll_planner.techniques.technique import StageChoice


def needed_host_bytes(search: TupleBounds, candidate: Candidate) -> int | None:
    """Least bytes of a machine for each rank, lower bound; None if none would do.

    0 where a plan fits that has nothing on the host. If no plan is within the machine's
    memory, its devices may be of any size: a larger machine is needed in any case.
    """
    if search.tables.is_grouped:
        return None
    capacity = search.capacity(candidate, Bound.LOWER)
    if search.least_peak(candidate, Bound.LOWER) >= LARGEST_BYTES:
        capacity = LARGEST_BYTES - 1
    stages = range(candidate.num_stages)
    values = [needed_by_stage(search, candidate, stage, capacity) for stage in stages]
    best = search.placement(candidate.num_stages).least_largest(values)
    return None if best is None else int(best.value)


def needed_by_stage(
    search: TupleBounds, candidate: Candidate, stage: int, capacity_bytes: int
) -> Floats:
    """[A, B]: least bytes of a machine with which a stage fits, infinite if none."""
    bound, b = Bound.LOWER, candidate.micro_batch
    costs = search.costs(candidate)

    def needed(choice: StageChoice) -> Floats:
        options = costs.least_peak_options(bound, b, choice.at_work, merge=True)
        asked = bound, b, choice.capped(None)
        flow = search.stage_flow(candidate, stage, choice)
        peaks = least_peaks(costs.stages(*asked), options, flow)
        uses_host = choice.uses_host
        own = search.state_on_host(candidate, bound, choice) if uses_host else 0
        return np.where(peaks <= capacity_bytes, own, np.inf)

    return least_of(map(needed, search.leanest(candidate, stage)))
