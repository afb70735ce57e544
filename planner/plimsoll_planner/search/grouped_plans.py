"""Plans of one tuple by next-fit groups, and the bound of the step that they give.

In: a tuple, a capacity. Out: a plan (`Found`), seconds. The base of `TupleSearch`.

A step fills the pipeline, repeats a period and drains it. A cycle of r micro-batches
from stage s on takes r periods at least and goes round until M - k_s of them are
through; before and after, one micro-batch takes all passes. So with g periods of the
least order that next-fit finds (`next_fit`)

    step >= both passes of all layers and links + (M - P) g

Bounds of single stages take what is behind a stage without recomputing. This one knows
that all stages have to fit at once, and so it is the better one where memory is scarce
and M is large.
"""

from __future__ import annotations

import numpy as np

from plimsoll_planner.memory.bounds import Floats
from plimsoll_planner.search.found import Found
from plimsoll_planner.search.next_fit import Grouped, least_period
from plimsoll_planner.search.numbers import Numbers
from plimsoll_planner.search.plan_caps import lowered
from plimsoll_planner.search.plans_within import PlansWithin
from plimsoll_planner.search.space import Candidate
from plimsoll_planner.search.stage_options import StageOptions
from plimsoll_planner.search.tuple_context import least_of

FEWEST_GROUPED = 5
"""Stages from which on plans by next-fit groups are looked at."""
ROUNDING = 1e-9
"""Relative; parts of periods are no whole ticks."""


class GroupedPlans(StageOptions):
    """Plans by next-fit groups."""

    def group_bound(
        self,
        candidate: Candidate,
        numbers: Numbers,
        capacity_bytes: int,
        below_s: float = np.inf,
    ) -> float:
        """Lower bound of the step within a capacity, 0 where groups say nothing.

        At least `below_s` if no shorter step is possible.
        """
        return self._by_groups(candidate, numbers, capacity_bytes, below_s)[1]

    def of_groups(
        self, plans: PlansWithin, below_s: float
    ) -> tuple[Found | None, float]:
        """Plan of the least period, if its step is short enough; and `group_bound`.

        With few stages all numbers in flight were tried for the best cuts.
        """
        candidate = plans.candidate
        asked = candidate, plans.numbers, plans.capacity_bytes
        groups, least_s = self._by_groups(*asked, below_s)
        if groups is None or candidate.num_stages < FEWEST_GROUPED:
            return None, least_s
        first = lowered(groups.in_flight)
        return plans.found(groups.cuts, below_s, first)[0], least_s

    def _by_groups(
        self,
        candidate: Candidate,
        numbers: Numbers,
        capacity_bytes: int,
        below_s: float,
    ) -> tuple[Grouped | None, float]:
        """Groups of the least period of a step below a limit, and its lower bound."""
        repeated = candidate.num_micro_batches - candidate.num_stages
        is_free = self.placement(candidate.num_stages).is_free
        is_open = self.tables.is_grouped and numbers.merge
        has_caps = len(self.stage_caps(candidate, 0)) > 1
        if repeated <= 0 or is_open or not is_free or not has_caps:
            return None, 0.0
        loads, links = self._loads_and_links(candidate, numbers, capacity_bytes)
        once_s = self._once_s(candidate, numbers, links)
        groups = least_period(loads, links, (below_s - once_s) / repeated)
        if groups is None:
            return None, below_s
        bound_s = once_s + repeated * groups.least_period_s * (1 - ROUNDING)
        return groups, bound_s

    def _once_s(
        self, candidate: Candidate, numbers: Numbers, links: list[Floats]
    ) -> float:
        """Least seconds of one micro-batch through all stages and back."""
        b = candidate.micro_batch
        runs = self.costs(candidate).runs(candidate.offer, numbers.seconds, b)
        passes_s = float(runs.forward_before[-1] + runs.backward_before[-1])
        return passes_s + sum(float(link[1:-1].min()) for link in links)

    def _loads_and_links(
        self, candidate: Candidate, numbers: Numbers, capacity_bytes: int
    ) -> tuple[Floats, list[Floats]]:
        """Seconds of runs by number in flight, and of links, for `next_fit`."""
        b, costs = candidate.micro_batch, self.costs(candidate)
        runs = costs.runs(candidate.offer, numbers.seconds, b)
        load = runs.forward + runs.backward

        searched = self.searched(candidate, numbers.bytes, capacity_bytes)

        def added_s(in_flight: int) -> Floats:
            return least_of(
                self.stage_added_s(
                    *(candidate, 0, choice, numbers, capacity_bytes), in_flight
                )
                for choice in (self.choices(candidate)[at] for at in searched)
            )

        boundaries = costs.boundaries(numbers.seconds, b)
        links = [
            np.append(0.0, [2 * hop.seconds(int(size)) for size in boundaries])
            for hop in self.placed(candidate).hops
        ]
        caps = self.stage_caps(candidate, 0)
        return np.stack([load + added_s(k) for k in caps]), links
