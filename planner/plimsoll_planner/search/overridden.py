"""A plan that a person fixed and that does not fit: obeyed, with a warning.

In: tuples that an override leaves, none of which has a plan that fits and is fast
enough. Out: a `Solution` that is marked as fixed, None where nothing can be run at all.
Called by `answer`.
"""

from __future__ import annotations

from dataclasses import replace

from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.records.certificate import Certificate
from plimsoll_planner.records.solution import SearchStatistics, Solution, Termination
from plimsoll_planner.search.build_plan import build_plan
from plimsoll_planner.search.certify import warnings_of
from plimsoll_planner.search.choose import least_memory_tuple
from plimsoll_planner.search.explore import Explorer
from plimsoll_planner.search.nearest_miss import fullest
from plimsoll_planner.search.space import Candidate
from plimsoll_planner.text.explain import too_large_text
from plimsoll_planner.text.unfit import OPEN_MEMORY, UNFIT
from plimsoll_planner.units import at_least, at_most


def fixed_solution(
    explorer: Explorer, certificate: Certificate, statistics: SearchStatistics
) -> Solution | None:
    """Plan of the least peak that obeys the override."""
    candidate = least_memory_tuple(explorer, explorer.every_family)
    if candidate is None:
        return None
    fastest = explorer.search.fastest(candidate)
    found = fastest or explorer.search.least_peak_plan(candidate)
    if found is None:
        return None
    answer = Solution(
        termination=Termination.FIXED,
        gap=1.0,
        plan=build_plan(explorer.search, found),
        certificate=certificate,
        statistics=statistics,
    )
    fails = answer.is_proven_unfit
    if fastest is None:
        reason = misfit(explorer, candidate)
        reason = f"what is fixed {UNFIT if fails else f'is {OPEN_MEMORY}'}: {reason}"
    else:
        proven = "proven not" if fails else "not proven"
        reason = f"what is fixed fits, but is {proven} to reach the rate floor"
    warnings = reason, *warnings_of(explorer, candidate, found)
    return replace(answer, warnings=warnings)


def misfit(explorer: Explorer, candidate: Candidate) -> str:
    """Rank that the fixed plan is not sure to fit, and its bytes."""
    allowed = explorer.search.allowance(candidate)
    stage, phase, tensor_bytes = fullest(explorer.search, candidate, Bound.UPPER)
    layer = explorer.search.layer_too_large(candidate)
    needed = allowed.device(Bound.UPPER, tensor_bytes)
    return (
        f"rank {candidate.mesh.ranks(stage)[0]}, {phase}: "
        f"up to {at_least(needed)}, and the device has "
        f"{at_most(allowed.capacity_bytes)}{too_large_text(layer)}; "
        "free a fixed part, or expect it to run out of memory"
    )
