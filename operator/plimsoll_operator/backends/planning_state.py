"""What one plan was observed to be, with what carrying out a decision on it needs.

Made by `backends.local.observe` and `control.observe`; read by `executor`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from plimsoll_operator.rules.observed_state import ObservedState
from plimsoll_operator.rules.profile_request import ProfileRequest
from plimsoll_operator.solving.solve_cache import SolveCache, SolveRequest
from plimsoll_operator.store.profiles import StoredProfile
from plimsoll_operator.store.questions import StoredQuestion
from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.records.offer import Offer


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanningState(ObservedState):
    """What a decision is made on, and what that was made from."""

    wish: ProfileRequest | None = None
    """None where nothing is prepared: an attempt is open, or something is wrong."""
    offers: tuple[Offer, ...] = ()
    """Machines that the plan may use."""
    asked: StoredQuestion | None = None
    """None where there is no profile to ask with."""


S = TypeVar("S", bound=PlanningState)


async def with_answer(
    seen: S, asking: SolveCache, asker: SolveRequest, profile: StoredProfile
) -> S:
    """The state with what the search is asked now, and what it said to that."""
    try:
        found = await asking.look(asker, profile)
    except InvalidInputError as error:
        return replace(seen, complaint=str(error))
    seen = replace(seen, asked=found.question)
    if found.refusal:
        return replace(seen, complaint=found.refusal)
    return replace(seen, answer=found.answer, refuted=found.refuted)
