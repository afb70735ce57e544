"""Answers a problem: a plan with its certificate, or why there is none.

In: a `Problem`. Out: `Solution` or `Infeasible`. Called by the CLI and the operator.

    1  lay out the space                        space, explore
    2  find the best rate per GPU               branch and bound over tuples
    3  choose a count and a plan by the goal    choose
    4  judge every tuple of every smaller count verdicts, certify
    5  write it down                            build_plan, alternatives
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from plimsoll_planner.records.certificate import Certificate
from plimsoll_planner.records.objective import Goal
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import (
    LEAST_GAP,
    Infeasible,
    SearchStatistics,
    Solution,
    Termination,
)
from plimsoll_planner.search.alternatives import pareto_front
from plimsoll_planner.search.build_plan import build_plan
from plimsoll_planner.search.certify import certificate_of, warnings_of
from plimsoll_planner.search.choose import Chosen, choose
from plimsoll_planner.search.explore import Explorer
from plimsoll_planner.search.verdicts import Decision


def solve(
    problem: Problem, clock: Callable[[], float] = time.perf_counter
) -> Solution | Infeasible:
    """Best plan and its proof, or what stands in the way.

    Where a person fixed parts of the plan, the answer without them is added.

    Args:
        problem: the question.
        clock: seconds; only for the statistics, the answer does not depend on it.

    Raises:
        CannotPlanError: the profile or an offer lacks what the search needs.
    """
    answer = solve_as_fixed(problem, clock)
    if isinstance(answer, Infeasible) or not problem.is_fixed_by_hand:
        return answer
    unfixed = replace(problem, override=problem.needed_override)
    certificate = solve_as_fixed(unfixed, clock).certificate
    fewest = certificate.fewest_at_floor if certificate.is_proof else None
    return replace(answer, fewest_unfixed=fewest)


def solve_as_fixed(
    problem: Problem, clock: Callable[[], float]
) -> Solution | Infeasible:
    """Best plan with what a person fixed, or what stands in the way; see `solve`."""
    if problem.places_operators:
        # Imported here, for most questions are about layers.
        from plimsoll_planner.search.placed_answer import solve_placed  # noqa: PLC0415

        return solve_placed(problem, clock)
    started_s = clock()
    explorer = Explorer(problem)
    best = explorer.best_per_gpu()
    floor = explorer.floor(best)
    chosen = choose(explorer, floor)
    if chosen is None:
        decided = {count: explorer.decide(count, floor) for count in explorer.families}
        certificate = certificate_of(explorer, decided, best, floor)
        statistics = statistics_of(explorer, clock() - started_s)
        return without_choice(explorer, decided, certificate, statistics)
    last = max([chosen.found.candidate.num_gpus, *chosen.decided])
    decided = {
        count: chosen.decided.get(count) or explorer.decide(count, floor)
        for count in range(1, last + 1)
    }
    certificate = certificate_of(explorer, decided, best, floor)
    if explorer.problem.limits.whole_nodes and chosen.decided:
        paid = explorer.paid_gpus(chosen.found.candidate)
        certificate = replace(certificate, paid_gpus=paid)
    termination, gap = ending(problem, certificate, chosen)
    return Solution(
        termination=termination,
        gap=gap,
        memory_gap=min(chosen.memory_gap, 1.0),
        rate_gap=min(chosen.rate_gap, 1.0),
        plan=build_plan(explorer.search, chosen.found),
        certificate=certificate,
        alternatives=tuple(
            build_plan(explorer.search, found)
            for found in pareto_front(explorer, chosen.found, floor)
        ),
        statistics=statistics_of(explorer, clock() - started_s),
        warnings=warnings_of(explorer, chosen.found.candidate, chosen.found),
    )


def without_choice(
    explorer: Explorer,
    decided: dict[int, list[Decision]],
    certificate: Certificate,
    statistics: SearchStatistics,
) -> Solution | Infeasible:
    """Plan that a person fixed, or the reason why it cannot run."""
    # Imported here, for most questions have an answer and wait for the import.
    from plimsoll_planner.search.infeasible import infeasible  # noqa: PLC0415
    from plimsoll_planner.search.overridden import fixed_solution  # noqa: PLC0415

    if explorer.problem.is_fixed_by_hand:
        fixed = fixed_solution(explorer, certificate, statistics)
        if fixed is not None:
            return fixed
    return infeasible(explorer, decided, certificate, statistics)


def statistics_of(explorer: Explorer, search_s: float) -> SearchStatistics:
    """Statistics of the search."""
    return SearchStatistics(
        num_tuples=explorer.num_tuples - explorer.num_cut_off,
        num_plans=explorer.search.num_plans,
        search_s=search_s,
    )


def ending(
    problem: Problem, certificate: Certificate, chosen: Chosen
) -> tuple[Termination, float]:
    """Why the search ended, and how far the goal may be from the best.

    Of counts no gap is too small to be shown. Other goals are those of the plans that
    fit for sure; a count that is undecided leaves them open, but not by its own gap.
    """
    if certificate.cut_off:
        return Termination.WORK_LIMIT, 1.0
    gap = chosen.gap
    if problem.objective.goal is Goal.MINIMIZE_GPUS:
        gap = max(gap, certificate.count_gap)
    if not certificate.is_proof or gap >= LEAST_GAP:
        return Termination.WITHIN_GAP, min(gap, 1.0)
    return Termination.OPTIMAL, gap
