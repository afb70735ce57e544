"""Plans in the place of one that runs: its tuple, with devices as they are observed.

In: a problem, the plan that runs, paces and rooms of its stages. Out: plans (`Found`).
Called by `revising.revise`.

    pace        seconds of a stage's passes over those of the profile
    room        tensor bytes that its devices lack, beside those that were planned with

All bounds stay bounds: those of a stage hold with its own pace, those of what is around
it with the least of all. What a revision keeps is kept here: what is sharded and where
the optimizer is; layers whose tensors others hold; and the cut between two stages that
hold state differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from plimsoll_planner.memory.bounds import Bound, Flags, Floats
from plimsoll_planner.memory.chain_bytes import UNSPLIT
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.revision import LEAST_PACE, MOST_PACE
from plimsoll_planner.search.found import Found
from plimsoll_planner.search.numbers import Numbers
from plimsoll_planner.search.planned import candidate_of, found_of
from plimsoll_planner.search.plans_within import PlansWithin
from plimsoll_planner.search.space import Candidate
from plimsoll_planner.search.tuple_search import TupleSearch
from plimsoll_planner.timing.stage_times import StageTimes

GRAIN = 64
"""Paces are whole parts of this: sums of paced seconds stay exact (`timing.ticks`)."""


def rounded_pace(pace: float) -> float:
    """The nearest pace that is searched with, within bounds."""
    return round(min(max(pace, LEAST_PACE), MOST_PACE) * GRAIN) / GRAIN


class RevisedSearch(TupleSearch):
    """Plans of one tuple on the devices of a plan that runs."""

    def __init__(
        self,
        problem: Problem,
        plan: HybridPlan,
        *,
        lacking_bytes: Sequence[int] = (),
    ) -> None:
        """Prepare the tables; see `TupleBounds`.

        Args:
            problem: that the plan answers.
            plan: whose stages have one mesh.
            lacking_bytes: of each stage; empty: none.
        """
        super().__init__(replace(problem, offers=plan.offers))
        mesh = plan.mesh
        if mesh is None:
            raise ValueError("stages of several meshes are not revised")
        self.plan = plan
        self.candidate = candidate_of(plan, mesh, plan.offers)
        self.running = found_of(self, plan, self.candidate)
        """The plan, as a search finds one."""
        self._paces = (1.0,) * mesh.pipeline
        self._lacking = tuple(lacking_bytes) or (0,) * mesh.pipeline
        self._held = [choice.stated for choice in self.running.choices]

    @property
    def paces(self) -> tuple[float, ...]:
        """Of all stages."""
        return self._paces

    def take_paces(self, passes_s: Sequence[float]) -> None:
        """Let stages compute as they were seen to, before anything is searched.

        `passes_s` are seconds of all passes in a step, stage by stage; 0: not known.
        """
        self._paces = tuple(
            rounded_pace(seen_s / times.passes_s(self.plan.num_micro_batches))
            if seen_s
            else 1.0
            for seen_s, times in zip(passes_s, self._times(), strict=True)
        )

    def _times(self) -> list[StageTimes]:
        """Expected seconds of the plan that runs, stage by stage."""
        return self.stage_times(self.running, Bound.EXPECTED)

    def pace(self, stage: int | None = None) -> float:
        """See the base."""
        return min(self._paces) if stage is None else self._paces[stage]

    def stage_capacity(self, stage: int, capacity_bytes: int) -> int:
        """See the base."""
        return capacity_bytes - self._lacking[stage]

    def searched_on(
        self, candidate: Candidate, stage: int, bound: Bound, capacity_bytes: int
    ) -> list[int]:
        """All that hold state as the stage does: any may help where devices differ."""
        del bound, capacity_bytes
        held = self._held[stage]
        choices = enumerate(self.choices(candidate))
        return [place for place, choice in choices if choice.stated == held]

    def of_groups(
        self, plans: PlansWithin, below_s: float
    ) -> tuple[Found | None, float]:
        """None: groups are formed of stages that are alike."""
        del plans, below_s
        return None, 0.0

    def step_bounds(
        self, candidate: Candidate, bounds: Numbers, capacity_bytes: int
    ) -> list[Floats]:
        """See the base; infinite for runs that no moves lead to."""
        values = super().step_bounds(candidate, bounds, capacity_bytes)
        return [
            np.where(self._can_hold(stage, len(matrix)), matrix, np.inf)
            for stage, matrix in enumerate(values)
        ]

    def _can_hold(self, stage: int, size: int) -> Flags:
        """[A, B]: runs that a stage can have after moves."""
        first, end = np.arange(size)[:, None], np.arange(size + 1)[None, :]
        mine, last = self.running.cuts[stage], len(self._held) - 1
        found = np.ones((size, size + 1), dtype=np.bool_)
        if stage and self._held[stage] != self._held[stage - 1]:
            found &= first == mine
        if stage < last and self._held[stage] != self._held[stage + 1]:
            found &= end == self.running.cuts[stage + 1]
        run = self.tables.runs_of(self.running.cuts)[stage]
        for layer in self._tied:
            is_here = (first <= layer) & (layer < end)
            found &= is_here == (run[0] <= layer < run[1])
        return found

    @cached_property
    def _tied(self) -> list[int]:
        """Layers whose parameters other layers have, as places of the tables."""
        starts = self.tables.starts
        tied = self.problem.profile.tied
        layers = {layer for tie in tied if tie.parameter_bytes for layer in tie.layers}
        return sorted({int(np.searchsorted(starts, n, "right")) - 1 for n in layers})

    def step_now_s(self) -> float:
        """Expected seconds of a step of the plan that runs."""
        return self.plan_step_s(self.running, Bound.EXPECTED)

    def fastest_within(self, most_bytes: int) -> Found | None:
        """Plan of the shortest step whose peaks are within the devices and a limit."""
        capacity = min(self.capacity(self.candidate, Bound.UPPER), most_bytes)
        return self.plan_within(self.candidate, capacity)[0]

    def at_rest_bytes(self, stage: int, first: int, end: int) -> int:
        """Most bytes that a stage holds of a run of layers between two steps."""
        candidate, choice = self.candidate, self.running.choices[stage]
        held = self.stage_bytes(candidate, Bound.UPPER, choice.without_way, 1)
        run = self.tables.groups((first,))[0], self.tables.groups((end,))[0]
        return int(held.state[run])

    def built_bytes(self, layer: int) -> int:
        """Most bytes that a layer takes while it is built, split and divided by nobody.

        Its parameters lie there twice: as they are drawn, and as they are laid out.
        """
        table = self.tables.of(UNSPLIT)
        whole = table.bytes(Bound.UPPER, self.candidate.micro_batch)
        [place] = self.tables.groups((layer,))
        twice = 2 * whole.parameter[place]
        return int(twice + whole.gradient[place] + whole.buffer[place])
