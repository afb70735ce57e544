"""The state directory as a source of plans: all that it holds of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from plimsoll_cli.state.liveness import Liveness, liveness_of
from plimsoll_cli.state.run_record import (
    AttemptRevision,
    Gathered,
    RunRecord,
    record_from,
)
from plimsoll_cli.state.shown_plan import ShownPlan
from plimsoll_cli.state.state_dir import StateDir, open_existing, open_state_dir
from plimsoll_operator.backends.local.checkpoints import newest_step
from plimsoll_operator.backends.local.rank_reports import StepResult
from plimsoll_operator.backends.local.state_dir import StateFolder
from plimsoll_operator.store.answers import StoredAnswer
from plimsoll_operator.store.plans import StoredPlan
from plimsoll_operator.store.questions import StoredQuestion
from plimsoll_operator.store.store import Store
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.observation import Observation
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Infeasible, Solution


@dataclass(frozen=True, slots=True)
class HomeSource:
    """Plans of a state directory."""

    root: Path
    """Its absolute path."""

    @property
    def nothing(self) -> str:
        """Line for a list without a plan."""
        return f"no plans in {self.root}; `plimsoll run plan.yaml` begins one"

    @property
    def spans_namespaces(self) -> bool:
        """There are none."""
        return False

    async def plans(self) -> tuple[ShownPlan, ...]:
        """All plans, the newest first; none if nothing was ever run."""
        if StateFolder(self.root).is_new:
            return ()
        async with open_state_dir(self.root) as home:
            before = await home.store.plans.all()
            found = {plan.uid: liveness_of(home.folder, plan) for plan in before}
            plans = await home.store.plans.all()  # begun meanwhile, it is watched
            return tuple(
                shown_plan(plan, found.get(plan.uid, Liveness.WATCHED))
                for plan in plans
            )

    async def find(self, name: str) -> tuple[ShownPlan, RunRecord]:
        """A plan and its record."""
        async with open_existing(self.root) as home:
            liveness = liveness_of(home.folder, await home.plan(name))
            plan = await home.plan(name)
            record = await record_of(home, plan, liveness)
            return shown_plan(plan, liveness), record


def shown_plan(plan: StoredPlan, liveness: Liveness) -> ShownPlan:
    """A plan of a state directory."""
    return ShownPlan(
        name=plan.name,
        uid=plan.uid,
        generation=plan.generation,
        spec=plan.spec,
        status=plan.status,
        liveness=liveness,
        is_suspended=plan.is_suspended,
        created_s=plan.created_s,
        code=f"code in {plan.folder}: {plan.spec.workload.entrypoint}",
    )


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
        observed[attempt.number] = stored or reports.observations
        revisions += [
            AttemptRevision(attempt=attempt.number, recorded=one)
            for one in await home.store.revisions.of(plan.uid, attempt.number)
        ]
    by = attempts[-1].problem_digest if attempts else ""
    asked, answer = await latest_answer(home.store, plan, by)
    found = Gathered(
        attempts=attempts,
        observed=observed,
        revisions=revisions,
        problem=None if asked is None else asked.problem,
        problem_digest="" if asked is None else asked.digest,
        answer=None if answer is None else answer.answer,
        losses=losses,
        saved_step=newest_step(backend.checkpoints),
    )
    return record_from(shown_plan(plan, liveness), found)


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
