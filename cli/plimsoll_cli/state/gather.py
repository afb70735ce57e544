"""Collects all that a state directory holds of one plan, for report and `describe`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from plimsoll_cli.state.liveness import Liveness, liveness_of
from plimsoll_cli.state.run_record import AttemptRevision, RunRecord
from plimsoll_cli.state.state_dir import StateDir, open_existing
from plimsoll_operator.backends.local.checkpoints import newest_step
from plimsoll_operator.backends.local.rank_reports import StepResult
from plimsoll_operator.store.answers import StoredAnswer
from plimsoll_operator.store.plans import StoredPlan
from plimsoll_operator.store.questions import StoredQuestion
from plimsoll_operator.store.store import Store
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.observation import Observation, of_plan
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Infeasible, Solution


async def find_record(root: Path, name: str) -> tuple[StoredPlan, RunRecord]:
    """A plan of a state directory, and its record."""
    async with open_existing(root) as home:
        liveness = liveness_of(home.folder, await home.plan(name))
        plan = await home.plan(name)
        return plan, await record_of(home, plan, liveness)


async def record_of(home: StateDir, plan: StoredPlan, liveness: Liveness) -> RunRecord:
    """Gather what there is of a plan."""
    backend = home.backend(plan)
    attempts = await home.store.attempts.of(plan.uid)
    observed: dict[int, tuple[Observation, ...]] = {}
    revisions: list[AttemptRevision] = []
    losses: dict[int, float] = {}
    for attempt in attempts:
        reports = backend.observer.reports(plan, attempt, backend.processes)
        losses = gone_on(losses, reports.steps)
        stored = await home.store.observations.of(plan.uid, attempt.number)
        reported = stored or reports.observations
        observed[attempt.number] = tuple(one for one in reported if one.peaks)
        revisions += [
            AttemptRevision(attempt=attempt.number, recorded=one)
            for one in await home.store.revisions.of(plan.uid, attempt.number)
        ]
    by = attempts[-1].problem_digest if attempts else ""
    asked, answer = await latest_answer(home.store, plan, by)
    record = RunRecord(
        name=plan.name,
        uid=plan.uid,
        status=plan.status,
        liveness=liveness,
        problem=None if asked is None else asked.problem,
        answer=None if answer is None else answer.answer,
        is_planned_anew=answer is not None and asked is not None and asked.digest != by,
        attempts=attempts,
        revisions=tuple(revisions),
        observations=(),
        losses=tuple(sorted(losses.items())),
        saved_step=newest_step(backend.checkpoints),
        suspends=plan.spec.suspend,
    )
    if (shown := record.plan) is None:
        return record
    # Reports by another plan than the shown one have measured nothing about it.
    found = [tuple(of_plan(shown, observed[one.number])) for one in attempts]
    latest = next(filter(None, reversed(found)), ())
    return replace(record, observations=latest)


def gone_on(before: dict[int, float], steps: Sequence[StepResult]) -> dict[int, float]:
    """The loss of each step that counts after one more attempt.

    It went on from a checkpoint: what was trained beyond that before is lost.
    """
    first = steps[0].step if steps else math.inf
    kept = {step: loss for step, loss in before.items() if step < first}
    return kept | {one.step: one.loss for one in steps}


async def latest_answer(
    store: Store, plan: StoredPlan, digest: str
) -> tuple[StoredQuestion | None, StoredAnswer | None]:
    """Latest question of a plan that was answered, and its answer.

    No question is gone back to that is older than the one of the newest attempt, which
    has the `digest`; it is empty before there is one.
    """
    questions = await store.questions.of(plan.uid)
    for asked in questions:
        answer = await store.answers.find(asked.digest)
        if answer is not None:
            return asked, answer
        if asked.digest == digest:
            return asked, None
    return (questions[0] if questions else None), None


async def keep_answer(
    store: Store, problem: Problem, answer: Solution | Infeasible
) -> None:
    """Put more of an answer in the place of the answer that is kept."""
    digest = digest_of(problem)
    kept = await store.answers.find(digest)
    if kept is not None:
        await store.answers.save(digest, replace(kept, answer=answer))
