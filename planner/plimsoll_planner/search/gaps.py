"""How far a plan may be from the best one, in the measure of the goal.

In: the tuples of a problem and the plan that was chosen. Out: a part of what it
reaches, 0 for a plan that is proven the best. Called by `choose`.

Plans are compared by walked steps, and by those options that were not pruned. A gap
rests on neither: each tuple is bounded from the programme over merged options
(`HOPED`), so it covers plans that the search has not looked at. Bounds are taken from
the cheapest on, until one shows that the tuple has nothing better; the last is that of
the walked cuts, where nothing was pruned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.search.explore import QUICK, Explorer
from plimsoll_planner.search.numbers import FITTING, HOPED
from plimsoll_planner.search.space import Candidate

Measure = Callable[[Candidate, float], float]
"""The least that a tuple may reach with a step of at least so many seconds; infinite
where such a step is too slow."""


def gap_below(
    explorer: Explorer,
    tuples: Iterable[Candidate],
    reached: float,
    measure: Measure,
) -> float:
    """Part of `reached` by which another plan of the tuples may be better.

    Less of the measure is better, and it does not fall with the seconds.
    """
    least = reached
    for candidate in explorer.cheapest(c for c in tuples if c.rule is None):
        bounds = (measure(candidate, s) for s in step_bounds(explorer, candidate))
        least = min(least, lowest(bounds, least))
    return 1 - least / reached if reached else 0.0


def lowest(bounds: Iterator[float], enough: float) -> float:
    """Last of rising bounds, or the first one that is at least `enough`."""
    bound = float("inf")
    for bound in bounds:
        if bound >= enough:
            break
    return bound


def step_bounds(explorer: Explorer, candidate: Candidate) -> Iterator[float]:
    """Yield lower bounds of the steps of a tuple's fitting plans, ever better ones."""
    search = explorer.search
    yield explorer.step_bound(candidate, QUICK)
    yield candidate.num_micro_batches * search.quick_period(candidate, HOPED)
    if not search.fits(candidate, merge=True):
        yield float("inf")
        return
    numbers = search.hoped(candidate)
    yield candidate.num_micro_batches * search.least_period(candidate, numbers)
    capacity = search.capacity(candidate, Bound.UPPER)
    partition = (
        search.quickest_cuts(candidate)
        if numbers == FITTING
        else search.least_bound(candidate, numbers, capacity)
    )
    yield float("inf") if partition is None else partition.value
    if numbers == FITTING and candidate in search.fastest_of:
        yield search.fastest_of[candidate].bound_s
