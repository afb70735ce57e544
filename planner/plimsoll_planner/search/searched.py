"""Refuses a problem that asks for more than the search covers.

In: a problem. Out: nothing, or an error that says what to change. Called before any
search, for a certificate lists the limits that it holds within: what is listed there
must have been searched.
"""

from __future__ import annotations

from enum import StrEnum

from plimsoll_planner.errors import CannotPlanError
from plimsoll_planner.records.engine import (
    Granularity,
    OptimizerHome,
    Schedule,
    Sharding,
)
from plimsoll_planner.records.model_profile import Sequences
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.schedules import SCHEDULES
from plimsoll_planner.techniques import TECHNIQUES

SEARCHED: dict[str, tuple[StrEnum, ...]] = {
    "schedules": tuple(SCHEDULES),
    "shardings": tuple(Sharding),
    "optimizer_homes": tuple(OptimizerHome),
}
"""Fields of `Limits`, and the entries of theirs that the search covers."""


def require_searched(problem: Problem) -> None:
    """Refuse limits and engines whose plans the search does not cover.

    Raises:
        CannotPlanError: names the field, the entry and what may stand there.
    """
    for field, known in SEARCHED.items():
        for entry in getattr(problem.limits, field):
            if entry not in known:
                only = ", ".join(known)
                raise CannotPlanError(
                    f"limits.{field}: {entry} is not searched yet, and a certificate "
                    f"would say that it was: allow only {only}"
                )
    require_degrees(problem)
    if not searched_schedules(problem):
        raise CannotPlanError(
            f"engine {problem.engine.engine} runs {', '.join(problem.schedules)}, and "
            f"only {', '.join(SCHEDULES)} is searched yet"
        )
    for technique in TECHNIQUES:
        if reason := technique.missing(problem):
            raise CannotPlanError(reason)
    if problem.engine.can.recompute is not Granularity.LAYER:
        raise CannotPlanError(
            f"engine {problem.engine.engine} recomputes by "
            f"{problem.engine.can.recompute}, and only recompute by layer is searched "
            "yet"
        )


def require_degrees(problem: Problem) -> None:
    """Refuse tensor degrees that layers were not profiled for.

    Raises:
        CannotPlanError: names the degree, and which may be asked for.
    """
    for degree in problem.limits.tensor_degrees:
        if degree not in problem.possible_tensor_degrees:
            only = ", ".join(map(str, problem.possible_tensor_degrees))
            raise CannotPlanError(
                f"limits.tensor_degrees: {degree} is not searched, as "
                f"{lacking_text(problem, degree)}: allow only {only}"
            )
    if not problem.tensor_degrees:
        raise CannotPlanError(
            "`override.sequences` is split, and limits.tensor_degrees leaves no "
            "degree that layers were profiled with split sequences for: allow one of "
            + ", ".join(map(str, problem.profile.tensor_degrees_of(Sequences.SPLIT)))
        )


def lacking_text(problem: Problem, degree: int) -> str:
    """Why layers are not split by a degree, in words."""
    if not problem.engine.can.tensor_parallel:
        return f"{problem.engine.engine} has no tensor parallelism"
    reason = problem.profile.why_not_split(degree)
    return reason or "the layers were not profiled for it"


def searched_schedules(problem: Problem) -> tuple[Schedule, ...]:
    """Schedules of a problem that the search covers."""
    return tuple(one for one in problem.schedules if one in SCHEDULES)
