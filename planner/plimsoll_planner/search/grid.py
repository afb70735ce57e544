"""What other numbers of devices and micro-batches would do: a grid of answers.

In: a problem, its answer, seconds that may be spent. Out: a `Grid`. Called by
`plimsoll plan`, `run` and `report`.

    1  the axes: 1, 2, 4, ... devices, the most that may be asked for, the count of the
       answer and one below it; doublings of the least micro-batch, and that of the plan
    2  the cells, that of the plan first, then those next to it, until time is up
    3  each cell: the tuples that are left if both are fixed, and of their plans the one
       that the goal asks for; if none fits, the verdict on all of them

A cell is the answer to a question of its own (`cell_problem`), with one offer: what
`solve` says of that. A relative rate floor is then a part of the best rate of the cell.
The tables of the whole question are shared, so that each array is computed once. That
of the plan is the plan itself, which was chosen among all micro-batches.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from plimsoll_planner.errors import InvalidFieldError
from plimsoll_planner.records.certificate import Binding, CountVerdict
from plimsoll_planner.records.frontier import FrontierPoint
from plimsoll_planner.records.grid import GRID_LIMIT_S, Grid, GridCell
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.objective import Goal
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Infeasible, Solution, Termination
from plimsoll_planner.records.strategy import divisors
from plimsoll_planner.search.alike import first_alike
from plimsoll_planner.search.build_plan import build_plan
from plimsoll_planner.search.certify import count_verdict
from plimsoll_planner.search.choose import choose, least_memory_near
from plimsoll_planner.search.explore import Explorer
from plimsoll_planner.search.found import Found
from plimsoll_planner.search.known_seconds import with_known_seconds
from plimsoll_planner.search.space import Candidate, Family, families_of
from plimsoll_planner.search.tuple_search import TupleSearch
from plimsoll_planner.search.variants import searched_variants

MOST_MICRO_BATCHES = 6
MOST_OFFERS = 4
"""Kinds of machines; more would be a page of their own."""


class OutOfTimeError(Exception):
    """Time is up in the middle of a cell; caught by `GridSearch.searched`."""


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Place:
    """A cell before it is searched."""

    offer: int
    num_gpus: int
    micro_batch: int


class CellExplorer(Explorer):
    """The tuples of one cell, with the tables of the whole question."""

    def __init__(
        self,
        problem: Problem,
        search: TupleSearch,
        families: list[Family],
        check_time: Callable[[], None],
    ) -> None:
        """Take what there is; nothing is laid out."""
        self.problem, self.left_out = problem, ()
        self.search = search
        self.families = {families[0].first.num_gpus: families}
        self._check_time = check_time

    def step_bound(self, candidate: Candidate, level: int) -> float:
        """See the base; ends the search of a cell if time is up."""
        self._check_time()
        return super().step_bound(candidate, level)

    def device_bytes(self, candidate: Candidate, tensor_bytes: int) -> int:
        """See the base; ends the search of a cell if time is up."""
        self._check_time()
        return super().device_bytes(candidate, tensor_bytes)


class GridSearch:
    """The cells around one answer."""

    def __init__(self, problem: Problem, answer: Solution | Infeasible) -> None:
        """Free what the cells fix, and prepare the tables of all of them.

        Raises:
            CannotPlanError: the profile or an offer lacks what the search needs.
        """
        known, _ = with_known_seconds(problem)
        needed = known.needed_override.micro_batch
        freed = replace(known.override, num_gpus=None, micro_batch=needed)
        self.problem = replace(known, override=freed)
        self.search = TupleSearch(self.problem)
        self.plan = answer.plan if isinstance(answer, Solution) else None
        self.own: Place | None = None
        """The cell that the plan is in, if it fits."""
        if isinstance(answer, Solution) and answer.termination is not Termination.FIXED:
            self.own = Place(
                offer=known.offers.index(answer.plan.offers[0]),
                num_gpus=answer.plan.num_gpus,
                micro_batch=answer.plan.micro_batch,
            )

    @cached_property
    def offers(self) -> list[int]:
        """One offer of each kind of machine, that of the plan first.

        The cheapest, or the first of them.
        """
        offers = self.problem.offers
        kinds: dict[int, int] = {}
        for place, kind in enumerate(first_alike(offers)):
            best = offers[kinds.setdefault(kind, place)]
            one = offers[place]
            prices = one.price_per_node_hour, best.price_per_node_hour
            is_same = one.currency == best.currency
            if is_same and (prices[0] or 0) < (prices[1] or 0):
                kinds[kind] = place
        mine = None if self.plan is None else offers.index(self.plan.offers[0])
        if mine is not None:
            kinds[first_alike(offers)[mine]] = mine
        return sorted(kinds.values(), key=lambda place: (place != mine, place))

    @cached_property
    def counts(self) -> list[int]:
        """Numbers of devices, rising."""
        most, least = self.problem.limits.max_gpus, self.problem.override.fixed_degrees
        found = {least * 2**power for power in range(most.bit_length())} | {most}
        if self.plan is not None:
            found |= {self.plan.num_gpus, max(self.plan.num_gpus - 1, 1)}
        return sorted(count for count in found if count <= most)

    @cached_property
    def micro_batches(self) -> list[int]:
        """Micro-batches, rising: the smaller ones, and that of the plan."""
        problem = self.problem
        own = None if self.plan is None else self.plan.micro_batch
        if problem.override.micro_batch:
            return [problem.override.micro_batch]
        least = problem.profile.least_micro_batch
        most = problem.limits.max_micro_batch or problem.global_batch_size
        every = divisors(problem.global_batch_size)
        every = [b for b in every if least <= b <= most] or [least]
        doubled = [b for b in every if b % every[0] == 0]
        doubled = [b for b in doubled if (b // every[0]).bit_count() == 1]
        if own is None or own in doubled[:MOST_MICRO_BATCHES]:
            return doubled[:MOST_MICRO_BATCHES]
        return sorted({*doubled[: MOST_MICRO_BATCHES - 1], own})

    def places(self) -> list[Place]:
        """All cells, in the order in which they are searched.

        Those nearest to the plan first, and of these the kind of device of the plan;
        without a plan the largest counts of the smallest micro-batches.
        """
        counts, batches = self.counts, self.micro_batches
        row, column = len(counts) - 1, 0
        if self.plan is not None:
            row = counts.index(self.plan.num_gpus)
            column = batches.index(self.plan.micro_batch)

        def distance(place: Place) -> tuple[int, int]:
            away = abs(counts.index(place.num_gpus) - row)
            away += abs(batches.index(place.micro_batch) - column)
            return away, self.offers.index(place.offer)

        every = (
            Place(offer=offer, num_gpus=count, micro_batch=b)
            for offer in self.offers[:MOST_OFFERS]
            for count in counts
            if count <= self.num_devices(offer)
            for b in batches
        )
        sound = (one for one in every if cell_problem(self.problem, one) is not None)
        return sorted(sound, key=distance)

    def num_devices(self, offer: int) -> float:
        """Devices that there are of an offer."""
        one = self.problem.offers[offer]
        nodes = math.inf if one.nodes_available is None else one.nodes_available
        return nodes * one.devices_per_node

    def searched(self, place: Place, check_time: Callable[[], None]) -> GridCell:
        """One cell; without a verdict if time is up before there is one."""
        if place == self.own and self.plan is not None:
            return with_plan(place, self.plan)
        try:
            check_time()
            return self._searched(place, check_time)
        except OutOfTimeError:
            return GridCell(
                offer=place.offer,
                num_gpus=place.num_gpus,
                micro_batch=place.micro_batch,
                verdict=None,
            )

    def _searched(self, place: Place, check_time: Callable[[], None]) -> GridCell:
        """One cell.

        Raises:
            OutOfTimeError: time is up.
        """
        problem = cell_problem(self.problem, place)
        if problem is None:
            raise AssertionError("such a place is left out")
        explorer = CellExplorer(
            problem, self.search, families_at(problem, place), check_time
        )
        found = chosen_plan(explorer)
        if found is None:
            floor = explorer.expected_floor(None)
            decisions = explorer.decide(place.num_gpus, floor)
            return without_plan(
                place, count_verdict(explorer, place.num_gpus, decisions, floor)
            )
        return with_plan(place, build_plan(self.search, found))


def cell_problem(problem: Problem, place: Place) -> Problem | None:
    """The question that a cell answers; all offers are kept, for their places.

    None if it contradicts what else is fixed, as two devices do for three stages.
    """
    try:
        fixed = replace(
            problem.override, num_gpus=place.num_gpus, micro_batch=place.micro_batch
        )
        return replace(problem, override=fixed)
    except InvalidFieldError:
        return None


def families_at(problem: Problem, place: Place) -> list[Family]:
    """Tuples of a cell."""
    num_layers = len(problem.profile.layers.name)
    variants = searched_variants(problem)
    every = families_of(problem, num_layers, place.num_gpus, variants)
    # A count that limits leave nothing of has one tuple, of the first offer.
    return [one for one in every if one.first.offer == place.offer] or every[:1]


def chosen_plan(explorer: Explorer) -> Found | None:
    """Plan of a cell that the goal asks for, None if none fits and is fast enough."""
    best = explorer.best_rate(explorer.open)
    if best is None:
        return None
    floor, count = explorer.expected_floor(best), best.candidate.num_gpus
    if explorer.problem.objective.goal is not Goal.MINIMIZE_GPUS:
        chosen = choose(explorer, floor)
        return None if chosen is None else chosen.found
    if explorer.rate(best) < floor.expected(count):
        return None
    needed = floor.expected(count)
    return least_memory_near(explorer, explorer.open, best, needed).found


def with_plan(place: Place, plan: HybridPlan) -> GridCell:
    """Cell of a plan that fits."""
    return GridCell(
        offer=place.offer,
        num_gpus=place.num_gpus,
        micro_batch=place.micro_batch,
        verdict=Verdict.FITS,
        plan=FrontierPoint.of(plan, 0),
        price_per_hour=plan.price_per_hour,
    )


def without_plan(place: Place, verdict: CountVerdict) -> GridCell:
    """Cell in which nothing fits for sure."""
    miss, least = verdict.nearest_miss, 0
    if miss is not None and miss.binding is Binding.MEMORY:
        least = miss.needed_bytes or 0
    if verdict.verdict is Verdict.UNDECIDED:
        pairs = zip(
            verdict.decisions.verdict, verdict.decisions.least_lower_bytes, strict=True
        )
        least = min(bound for one, bound in pairs if one is Verdict.UNDECIDED)
    return GridCell(
        offer=place.offer,
        num_gpus=place.num_gpus,
        micro_batch=place.micro_batch,
        verdict=verdict.verdict,
        binding=verdict.binding,
        least_bytes=least,
    )


def grid_of(
    problem: Problem,
    answer: Solution | Infeasible,
    limit_s: float = GRID_LIMIT_S,
    advance: Callable[[int, int], None] = lambda _done, _total: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Grid | None:
    """Grid of answers around an answer; None where what is fixed leaves no cell.

    Args:
        problem: the question.
        answer: its answer; the cells nearest to its plan are searched first.
        limit_s: wall seconds; what is not searched by then has no verdict.
        advance: told how many cells are done, of how many.
        clock: seconds.

    Raises:
        CannotPlanError: the profile or an offer lacks what the search needs.
    """
    started_s = clock()

    def check_time() -> None:
        if clock() - started_s >= limit_s:
            raise OutOfTimeError

    grid = GridSearch(problem, answer)
    places = grid.places()
    if not places:
        return None
    cells: list[GridCell] = []
    for place in places:
        advance(len(cells), len(places))
        cells.append(grid.searched(place, check_time))
    return Grid(
        cells=tuple(
            sorted(cells, key=lambda one: (one.offer, one.num_gpus, one.micro_batch))
        ),
        num_offers_left_out=max(len(grid.offers) - MOST_OFFERS, 0),
        limit_s=limit_s,
        search_s=clock() - started_s,
    )
