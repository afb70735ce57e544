"""Everything that a home has of one plan, for the report and for `describe`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from plimsoll_cli.homes import Home, open_old_home
from plimsoll_cli.presence import Presence, presence_of
from plimsoll_cli.report.record import RunRecord
from plimsoll_operator.home.checkpoints import newest_step
from plimsoll_operator.home.reports import StepTold
from plimsoll_operator.store.answers import StoredAnswer
from plimsoll_operator.store.plans import StoredPlan
from plimsoll_operator.store.questions import StoredQuestion
from plimsoll_operator.store.store import Store
from plimsoll_planner.records.observation import Observation


async def find_record(root: Path, name: str) -> tuple[StoredPlan, RunRecord]:
    """Return a plan of a home and what there is of it."""
    async with open_old_home(root) as home:
        presence = presence_of(home.folder, await home.plan(name))
        plan = await home.plan(name)
        return plan, await record_of(home, plan, presence)


async def record_of(home: Home, plan: StoredPlan, presence: Presence) -> RunRecord:
    """Gather what there is of a plan."""
    hands = home.hands(plan)
    attempts = await home.store.attempts.of(plan.uid)
    observations: tuple[Observation, ...] = ()
    losses: dict[int, float] = {}
    for attempt in attempts:
        reports = hands.eyes.reports(plan, attempt, hands.children)
        losses = gone_on(losses, reports.steps)
        stored = await home.store.observations.of(plan.uid, attempt.number)
        told = stored or reports.observations
        observations = tuple(one for one in told if one.peaks) or observations
    shown = observations[0].attempt if observations else len(attempts)
    by = attempts[shown - 1].problem_digest if shown else ""
    asked, answer = await answered(home.store, plan, by)
    return RunRecord(
        name=plan.name,
        uid=plan.uid,
        status=plan.status,
        presence=presence,
        problem=None if asked is None else asked.problem,
        answer=None if answer is None else answer.answer,
        attempts=attempts,
        observations=observations,
        losses=tuple(sorted(losses.items())),
        saved_step=newest_step(hands.checkpoints),
        suspends=plan.spec.suspend,
    )


def gone_on(before: dict[int, float], steps: Sequence[StepTold]) -> dict[int, float]:
    """Return the loss of each step that counts after one more attempt.

    It went on from a checkpoint: what was trained beyond that before is lost.
    """
    first = steps[0].step if steps else math.inf
    kept = {step: loss for step, loss in before.items() if step < first}
    return kept | {one.step: one.loss for one in steps}


async def answered(
    store: Store, plan: StoredPlan, digest: str
) -> tuple[StoredQuestion | None, StoredAnswer | None]:
    """Return a question of a plan, and its answer.

    Args:
        store: of the home.
        plan: that was asked about.
        digest: of the question that the attempt which is shown was planned by; empty
            before there is one: then the latest question that was answered.
    """
    questions = await store.questions.of(plan.uid)
    for asked in (one for one in questions if digest in ("", one.digest)):
        answer = await store.answers.find(asked.digest)
        if answer is not None:
            return asked, answer
    return (questions[0] if questions else None), None
