"""Step bounds for given cuts, which know of what all stages recompute at least.

In: cuts, seconds of each stage with each number in flight. Out: bounds of the step with
a number on one stage, and with numbers on the first stages. Made by `plans_within`;
`plan_caps` looks for numbers by them.

The bound of a run of layers as one stage (`choice_bounds`) knows neither the cuts
around it nor what is recomputed there. Here both are known. The stage behind one with k
in flight has k or k - 1, and the one before it k or k + 1; the seconds around it are
least sums over such numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from plimsoll_planner.search.plan_caps import INFINITE, NumberBounds, Row, Vector
from plimsoll_planner.timing.schedule import PipelineSchedule
from plimsoll_planner.timing.stage_runs import StageRuns
from plimsoll_planner.timing.stage_times import StageTimes


@dataclass(kw_only=True)
class CutBounds(NumberBounds):
    """Bounds for one list of cuts; they hold for every choice of the stages."""

    times: Callable[[int, int], StageTimes]
    """Least seconds of a stage with a number in flight, over its choices."""
    links_s: Sequence[float]
    """One way over the link behind each stage but the last."""
    schedule: PipelineSchedule
    num_micro_batches: int

    def __post_init__(self) -> None:
        """Begin with nothing known."""
        self._known: list[dict[int, StageTimes]] = [
            {} for _ in range(len(self.links_s) + 1)
        ]
        self._behind: list[Row] = []

    def _stage(self, stage: int, in_flight: int) -> StageTimes:
        """Look up `times` once."""
        known = self._known[stage]
        if in_flight not in known:
            known[in_flight] = self.times(stage, in_flight)
        return known[in_flight]

    def narrowed(self, rows: Sequence[Row]) -> list[Row]:
        """Better bounds of the same stages; numbers that fit no others are left out."""
        self._behind = self._sums_behind(rows)
        forward_s, backward_s = self._sums_before(rows)
        places = [
            (stage, k)
            for stage, row in enumerate(rows)
            for k in row
            if self._behind[stage][k] + backward_s[stage][k] < INFINITE
        ]
        found: list[Row] = [{} for _ in rows]
        if not places:
            return found
        times = [self._stage(*place) for place in places]
        before_s = np.array([backward_s[stage][k] for stage, k in places])
        ahead_s = np.array([forward_s[stage] for stage, _ in places])
        runs = StageRuns(
            forward=np.array([one.forward_s for one in times]),
            backward=np.array([one.backward_s for one in times]),
            end=np.array([one.end_s for one in times]),
            forward_before=ahead_s,
            backward_before=before_s,
            both_before=ahead_s + before_s,
            both_behind=np.array([self._behind[stage][k] for stage, k in places]),
        )
        stages, numbers = np.array(places).T
        bound = self.schedule.stage_bound(
            runs, stages, len(rows), self.num_micro_batches, numbers
        )
        steps = np.maximum(bound.with_fewer, bound.cycles_of_k)
        for (stage, k), step_s in zip(places, steps.tolist(), strict=True):
            found[stage][k] = max(rows[stage][k], step_s)
        return found

    def _sums_behind(self, rows: Sequence[Row]) -> list[Row]:
        """Least seconds of the stages behind each one, both ways with their links."""
        mine: Row = dict.fromkeys(rows[-1], 0.0)
        found = [mine]
        for stage in range(len(rows) - 1, 0, -1):
            link_s, behind, mine = 2 * self.links_s[stage - 1], mine, {}
            sums: Row = {}
            for k, behind_s in behind.items():
                one = self._stage(stage, k)
                sums[k] = behind_s + link_s + one.forward_s + one.backward_s
            for k in rows[stage - 1]:
                mine[k] = min(sums.get(k, INFINITE), sums.get(k - 1, INFINITE))
            found.append(mine)
        return found[::-1]

    def _sums_before(self, rows: Sequence[Row]) -> tuple[list[float], list[Row]]:
        """Least seconds of the stages before each one, forward and backward."""
        mine: Row = dict.fromkeys(rows[0], 0.0)
        forward_s, backward_s = [0.0], [mine]
        for stage, link_s in enumerate(self.links_s):
            before, mine = mine, {}
            own_s = min(self._stage(stage, k).forward_s for k in before)
            forward_s.append(forward_s[-1] + own_s + link_s)
            sums = {
                k: before_s + link_s + self._stage(stage, k).backward_s
                for k, before_s in before.items()
            }
            for k in rows[stage + 1]:
                mine[k] = min(sums.get(k, INFINITE), sums.get(k + 1, INFINITE))
            backward_s.append(mine)
        return forward_s, backward_s

    def cycle_s(self, vector: Vector) -> float:
        """Lower bound of the step from what goes round the first stages."""
        stages = [self._stage(stage, k) for stage, k in enumerate(vector)]
        behind_s = self._behind[len(vector) - 1][vector[-1]]
        return self.schedule.cycles_bound(
            stages, self.num_micro_batches, self.links_s, behind_s
        )
