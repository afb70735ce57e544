"""Effects of revising a plan that runs: a search, records, and what ranks are given.

In: an action of `rules.revising`, and the state that it was decided on. Out: its
effect, through the store and a back end. Called by `executor`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from plimsoll_operator.backends.protocols import Backend
from plimsoll_operator.rules import actions
from plimsoll_operator.rules.observed_state import ObservedState
from plimsoll_operator.solving.revise_cache import (
    ReviseCache,
    ReviseQuestion,
    question_of,
)
from plimsoll_operator.store.store import Store
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.revising.revise import Stays

NO_PROBLEM = "the store has lost what was asked for the plan"
Revise = Callable[[ReviseQuestion, Problem], Awaitable[None]]
"""Answers whether to revise a plan that runs, or begins to."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RevisionEffects:
    """Carries out what was decided on the plan of an open attempt."""

    plan_uid: str
    store: Store
    backend: Backend
    cache: ReviseCache
    revise: Revise
    clock: Callable[[], float]
    """Seconds since 1970."""

    async def apply(self, action: actions.RevisionAction, state: ObservedState) -> None:
        """Do one thing."""
        uid, revisions = self.plan_uid, self.store.revisions
        match action:
            case actions.RecordRevision(attempt=number, revision=revision):
                await revisions.record(uid, number, revision, self.clock())
            case actions.OfferRevision(attempt=number, revision=revision):
                await self.backend.offer(number, revision)
            case actions.SettleRevision(attempt=number, settled=settled):
                await revisions.settle(uid, number, settled)
            case _:
                await self._ask(state)

    async def _ask(self, state: ObservedState) -> None:
        """Ask whether to revise the plan that runs."""
        running, attempt = state.running, state.attempts[-1]
        assert running is not None  # noqa: S101 - it was decided on
        asked = question_of(running, attempt)
        problem = await self.cache.problem(self.plan_uid, attempt.problem_digest)
        self.cache.asked(self.plan_uid, asked, self.clock())
        if problem is None:
            stays = Stays(reason=NO_PROBLEM)
            self.cache.answered(self.plan_uid, asked, stays, self.clock())
        else:
            await self.revise(asked, problem)
