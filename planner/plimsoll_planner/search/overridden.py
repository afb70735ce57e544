"""A plan that a person fixed and that does not fit: obeyed, with a warning.

In: tuples that an override leaves, none of which has a plan that fits and is fast
enough. Out: a `Solution` that is marked as fixed, None where nothing can be run at all.
Called by `answer`.
"""

from __future__ import annotations

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
    return Solution(
        termination=Termination.FIXED,
        gap=1.0,
        plan=build_plan(explorer.search, found),
        certificate=certificate,
        statistics=statistics,
        warnings=(
            misfit(explorer, candidate, fits=fastest is not None),
            *warnings_of(explorer, candidate, found),
        ),
    )


def misfit(explorer: Explorer, candidate: Candidate, *, fits: bool) -> str:
    """Reason why the search would not choose the fixed plan."""
    if fits:
        return "what is fixed fits, but is not proven to reach the rate floor"
    allowed = explorer.search.allowance(candidate)
    stage, phase, tensor_bytes = fullest(explorer.search, candidate, Bound.UPPER)
    layer = explorer.search.layer_too_large(candidate)
    needed = allowed.device(Bound.UPPER, tensor_bytes)
    return (
        f"what is fixed does not fit: rank {candidate.mesh.ranks(stage)[0]}, {phase}: "
        f"up to {at_least(needed)}, and the device has "
        f"{at_most(allowed.capacity_bytes)}{too_large_text(layer)}; "
        "free a fixed part, or expect it to run out of memory"
    )
