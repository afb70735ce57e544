"""Observed state of one plan, with what carrying out a decision on it needs.

Made by `backends.local.observe` and `control.observe`; read by `executor`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from plimsoll_operator.rules.observed_state import (
    ObservedProfile,
    ObservedState,
    RunningPlan,
)
from plimsoll_operator.rules.profile_request import ProfileRequest
from plimsoll_operator.rules.summary import observed_status, step_fault
from plimsoll_operator.solving.solve_cache import SolveCache, SolveRequest
from plimsoll_operator.store.profiles import StoredProfile
from plimsoll_operator.store.questions import StoredQuestion
from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.records.observation import of_plan
from plimsoll_planner.records.offer import Offer


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanningState(ObservedState):
    """State that a decision is made on, and its sources."""

    profile_request: ProfileRequest | None = None
    """None where nothing is prepared: an attempt is open, or something is wrong."""
    offers: tuple[Offer, ...] = ()
    """Machines that the plan may use."""
    asked: StoredQuestion | None = None
    """None where there is no profile to ask with."""


def observed_profile(
    created_s: float, request: ProfileRequest, profile: StoredProfile
) -> ObservedProfile:
    """A profile of the store as a decision reads it.

    Whether it is of the code that runs is known once something was started with it.
    `created_s` is when the plan was made, seconds since 1970.
    """
    return ObservedProfile(
        source=request.source,
        made_s=profile.made_s,
        was_cached=profile.made_s < created_s,
        has_batch_statistics=bool(profile.profile.batch_statistics),
    )


S = TypeVar("S", bound=PlanningState)


def with_running(state: S, running: RunningPlan) -> S:
    """The state with the plan that the latest attempt runs by, and what is seen of it.

    Reports by another revision are of other layers.
    """
    observed = observed_status(running.plan, of_plan(running.plan, running.reports))
    fault = step_fault(running.plan, observed)
    return replace(state, running=running, observed=observed, step_fault=fault)


async def with_answer(
    state: S,
    solve_cache: SolveCache,
    request: SolveRequest,
    profile: StoredProfile,
) -> S:
    """The state with the question for the search now, and its answer."""
    try:
        found = await solve_cache.state(request, profile)
    except InvalidInputError as error:
        return replace(state, complaint=str(error))
    state = replace(state, asked=found.question)
    if found.refusal:
        return replace(state, complaint=found.refusal)
    return replace(state, answer=found.answer, refuted=found.refuted)
