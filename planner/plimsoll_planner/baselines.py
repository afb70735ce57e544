"""What people do without a planner, judged by the same model, side by side.

In: a problem and a number of GPUs. Out: one `Row` for each rule of cutting. Called by
`plimsoll compare`. Only the cuts differ: every rule may choose P, D, b and the layers
that recompute as the search does, so what is left is the price of the cuts.

    uniform      stage i begins at layer round(i * L / P), halves to even
    parameters   the largest sum of parameter bytes is least
    time         the largest sum of forward and backward seconds is least
    ours         the exact search
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from plimsoll_planner.memory.chain_bytes import LARGEST_BYTES, Bound, rows_of
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.search.choose import corner_peak, slimmest_of
from plimsoll_planner.search.explore import Explorer, is_fitting
from plimsoll_planner.search.partition import least_largest
from plimsoll_planner.search.tuple_bounds import CutsOf
from plimsoll_planner.search.tuple_search import Found
from plimsoll_planner.search.verdicts import Floor

ROUNDING_RULE = "uniform: stage i begins at round(i * layers / stages), halves to even"


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """What one rule of cutting makes of a number of GPUs."""

    rule: str
    found: Found | None
    """Its plan; the one of the least peak where none fits, None where none runs."""
    fits: bool
    """It fits and reaches the rate floor."""
    peak_bytes: int
    """Upper bound on the fullest device; 0 without a plan."""
    samples_per_s: float
    price_per_hour: Decimal | None
    gpus_needed: int | None
    """Fewest GPUs on which the rule has such a plan, within the limits."""


def compare(problem: Problem, num_gpus: int) -> list[Row]:
    """Return one row for each rule; the rate floor is that of the exact search."""
    ours = Explorer(problem)
    floor = ours.floor(ours.best_per_gpu())
    rules: list[tuple[str, CutsOf | None]] = [
        ("uniform", lambda stages: uniform_cuts(num_layers(problem), stages)),
        ("parameters", balanced(parameter_weights(problem))),
        ("time", balanced(time_weights(ours))),
        ("ours", None),
    ]
    return [
        row_of(name, Explorer(problem, cuts_of), floor, num_gpus)
        for name, cuts_of in rules
    ]


def row_of(rule: str, explorer: Explorer, floor: Floor, num_gpus: int) -> Row:
    """Search with one rule of cutting."""
    decisions = explorer.decide(num_gpus, floor)
    found_fits = [
        decision.found
        for decision in decisions
        if decision.verdict is Verdict.FITS and decision.found is not None
    ]
    found: Found | None = None
    if found_fits:
        found = slimmest_of(explorer, found_fits, floor.expected(num_gpus))
    else:
        found = least_peak_plan(explorer, num_gpus)
    needed = (c for c in explorer.by_count if is_fitting(explorer.decide(c, floor)))
    return Row(
        rule=rule,
        found=found,
        fits=bool(found_fits),
        peak_bytes=explorer.device_peak(found) if found is not None else 0,
        samples_per_s=explorer.rate(found) if found is not None else 0.0,
        price_per_hour=None
        if found is None
        else explorer.search.price_per_hour(found.candidate),
        gpus_needed=next(needed, None),
    )


def least_peak_plan(explorer: Explorer, num_gpus: int) -> Found | None:
    """Return the plan of the least peak at any speed, whether it fits or not."""
    runnable = [
        candidate
        for candidate in explorer.by_count[num_gpus]
        if candidate.rule is None
        and explorer.search.corner(candidate, Bound.UPPER) < LARGEST_BYTES
    ]
    if not runnable:
        return None
    best = min(runnable, key=lambda candidate: corner_peak(explorer, candidate))
    return explorer.search.slimmest(best, LARGEST_BYTES, float("inf"))


def num_layers(problem: Problem) -> int:
    """L."""
    return len(problem.profile.layers.name)


def uniform_cuts(size: int, num_stages: int) -> tuple[int, ...]:
    """Return the first layers of stages of nearly equal length."""
    return tuple(round(stage * size / num_stages) for stage in range(num_stages))


def balanced(weights: list[float]) -> Callable[[int], tuple[int, ...]]:
    """Return the rule that makes the largest sum of weights least."""
    size = len(weights)
    sums = np.concatenate([[0.0], np.cumsum(weights)])
    matrix = sums[None, :] - sums[:-1, None]
    matrix[np.tri(size, size + 1, dtype=np.bool_)] = np.inf

    def cuts_of(num_stages: int) -> tuple[int, ...]:
        found = least_largest([matrix] * num_stages)
        return uniform_cuts(size, num_stages) if found is None else found.cuts

    return cuts_of


def parameter_weights(problem: Problem) -> list[float]:
    """Return the parameter bytes of every layer."""
    columns = problem.profile.costs.parameter_bytes
    return [float(columns[row]) for row in rows_of(problem.profile)]


def time_weights(explorer: Explorer) -> list[float]:
    """Return the seconds of every layer on the first offer, for one sample."""
    chain = explorer.search.tables.seconds(0, Bound.EXPECTED, 1)
    return [float(value) for value in chain.forward + chain.backward]
