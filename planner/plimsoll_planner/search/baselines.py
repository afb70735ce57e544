"""Usual plans without a planner, judged by the same model, side by side.

In: a problem and a number of GPUs. Out: one `Row` for each rule of cutting. Called by
`plimsoll compare`. Only the cuts differ: every rule may choose P, D, b and the layers
that recompute as the search does, where they are not fixed, so what is left is the
price of the cuts. The tensor degree is the one that is fixed, else the least. All rows
may take as long for a step: a tolerance more than the rule whose fastest plan is
slowest. So their memory is compared at one speed.

    uniform      stage i begins at layer round(i * L / P), halves to even
    parameters   the largest sum of parameter bytes is least
    time         the largest sum of forward and backward seconds is least
    ours         the exact search
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np

from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.memory.chain_bytes import UNSPLIT, rows_of
from plimsoll_planner.records.certificate import Rule
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.search.choose import TIE, least_memory_of, least_memory_tuple
from plimsoll_planner.search.explore import Explorer, is_fitting
from plimsoll_planner.search.found import Found
from plimsoll_planner.search.partition import least_largest
from plimsoll_planner.search.space import Candidate
from plimsoll_planner.search.tuple_context import CutsOf
from plimsoll_planner.search.verdicts import Floor
from plimsoll_planner.text.rules import RULES
from plimsoll_planner.units import number_text

ROUNDING_RULE = "uniform: stage i begins at round(i * layers / stages), halves to even"


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """Result of one rule of cutting for a number of GPUs."""

    rule: str
    found: Found | None
    """Its plan; the one of the least peak where none fits, None where none runs."""
    fits: bool | None
    """It fits and reaches the rate floor; None where the search was cut off before."""
    why: str
    """Why it does not, or what is not known; empty where it fits."""
    is_slow: bool
    """There is a plan that fits; none of them reaches the rate floor."""
    peak_bytes: int
    """Upper bound on the fullest device; 0 without a plan."""
    samples_per_s: float
    price_per_hour: Decimal | None
    gpus_needed: int | None
    """Fewest GPUs on which the rule has such a plan, within the limits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Results of all rules for a number of GPUs."""

    rows: tuple[Row, ...]
    step_s: float | None
    """The longest step that a row may have; None where no rule has a plan that fits."""


def compare(problem: Problem, num_gpus: int) -> Comparison:
    """One row for each rule; the rate floor is that of the exact search."""
    degree = min(problem.tensor_degrees)
    limits = replace(problem.limits, tensor_degrees=(degree,))
    problem = replace(problem, limits=limits)
    ours = Explorer(problem)
    floor = ours.floor(ours.best_per_gpu())
    rules: list[tuple[str, CutsOf | None]] = [
        ("uniform", lambda stages: uniform_cuts(num_layers(problem), stages)),
        ("parameters", balanced(parameter_weights(problem))),
        ("time", balanced(time_weights(ours))),
        ("ours", None),
    ]
    explorers = {name: Explorer(problem, cuts_of) for name, cuts_of in rules}
    best = [
        max(map(ours.rate, fits))
        for explorer in explorers.values()
        if (fits := fitting_plans(explorer, num_gpus, floor))
    ]
    slowest = min(best, default=0.0) * (1 - problem.objective.throughput_tolerance)
    needed = max(floor.expected(num_gpus), slowest * (1 - TIE))
    return Comparison(
        rows=tuple(
            row_of(name, explorers[name], num_gpus, needed, floor) for name, _ in rules
        ),
        step_s=problem.global_batch_size / needed if best and needed else None,
    )


def fitting_plans(explorer: Explorer, num_gpus: int, floor: Floor) -> list[Found]:
    """Fastest plans of the tuples of a count that fit and reach the floor."""
    decisions = explorer.decide(num_gpus, floor)
    return [decision.found for decision in decisions if decision.found is not None]


def row_of(
    rule: str, explorer: Explorer, num_gpus: int, needed_per_s: float, floor: Floor
) -> Row:
    """Search with one rule of cutting; see `compare`."""
    tuples = explorer.tuples_of(num_gpus)
    choice = least_memory_of(explorer, tuples, lambda _: needed_per_s)
    found = least_peak_plan(explorer, num_gpus) if choice is None else choice.found
    quick = None if choice else fastest_that_fits(explorer, tuples)
    is_cut_off = any(c.rule is Rule.NOT_SEARCHED for c in tuples)
    needed = (c for c in explorer.families if is_fitting(explorer.decide(c, floor)))
    return Row(
        rule=rule,
        found=found,
        fits=None if choice is None and is_cut_off else choice is not None,
        is_slow=quick is not None and not is_cut_off,
        why="" if choice else why_not(explorer, tuples, quick, needed_per_s),
        peak_bytes=explorer.device_peak(found) if found is not None else 0,
        samples_per_s=explorer.rate(found) if found is not None else 0.0,
        price_per_hour=None
        if found is None
        else explorer.search.price_per_hour(found.candidate),
        gpus_needed=next(needed, None),
    )


def fastest_that_fits(explorer: Explorer, tuples: Sequence[Candidate]) -> Found | None:
    """Fastest plan of tuples, whatever the rate floor; None where none fits."""
    return explorer.best_rate(
        c for c in tuples if c.rule is None and explorer.search.fits(c)
    )


def why_not(
    explorer: Explorer,
    tuples: Sequence[Candidate],
    quick: Found | None,
    needed_per_s: float,
) -> str:
    """Why a rule has no plan of a count that fits at a rate, in words.

    `quick` is the fastest plan that fits.
    """
    rules = {candidate.rule for candidate in tuples}
    if Rule.NOT_SEARCHED in rules:
        return "the search was cut off by `limits.max_tuples`"
    if None not in rules:
        return "; ".join(RULES[rule] for rule in Rule if rule in rules)
    if quick is None:
        return "no plan fits, at any speed"
    rate, needed = number_text(explorer.rate(quick)), number_text(needed_per_s)
    return f"fits, at most {rate} samples/s where {needed} are needed"


def least_peak_plan(explorer: Explorer, num_gpus: int) -> Found | None:
    """Plan of the least peak at any speed, whether it fits or not."""
    best = least_memory_tuple(explorer, explorer.families[num_gpus])
    return None if best is None else explorer.search.least_peak_plan(best)


def num_layers(problem: Problem) -> int:
    """L."""
    return len(problem.profile.layers.name)


def uniform_cuts(size: int, num_stages: int) -> tuple[int, ...]:
    """First layers of stages of nearly equal length."""
    return tuple(round(stage * size / num_stages) for stage in range(num_stages))


def balanced(weights: list[float]) -> Callable[[int], tuple[int, ...]]:
    """Rule that makes the largest sum of weights least."""
    size = len(weights)
    sums = np.concatenate([[0.0], np.cumsum(weights)])
    matrix = sums[None, :] - sums[:-1, None]
    matrix[np.tri(size, size + 1, dtype=np.bool_)] = np.inf

    def cuts_of(num_stages: int) -> tuple[int, ...]:
        found = least_largest([matrix] * num_stages)
        return uniform_cuts(size, num_stages) if found is None else found.cuts

    return cuts_of


def parameter_weights(problem: Problem) -> list[float]:
    """Parameter bytes of every layer."""
    columns = problem.profile.costs.parameter_bytes
    return [float(columns[row]) for row in rows_of(problem.profile)]


def time_weights(explorer: Explorer) -> list[float]:
    """Seconds of every layer on the first offer, for one sample."""
    chain = explorer.search.tables.of(UNSPLIT).seconds(0, Bound.EXPECTED, 1)
    return [float(value) for value in chain.forward + chain.backward]
