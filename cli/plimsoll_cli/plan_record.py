"""Everything that a home has of one plan, for the report and for `describe`."""

from __future__ import annotations

from pathlib import Path

from plimsoll_cli.homes import Home, open_old_home
from plimsoll_cli.report.record import RunRecord
from plimsoll_operator.store.plans import StoredPlan
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.observation import Observation


async def find_record(root: Path, name: str) -> tuple[StoredPlan, RunRecord]:
    """Return a plan of a home and what there is of it."""
    async with open_old_home(root) as home:
        plan = await home.plan(name)
        return plan, await record_of(home, plan)


async def record_of(home: Home, plan: StoredPlan) -> RunRecord:
    """Gather what there is of a plan."""
    hands = home.hands(plan)
    attempts = await home.store.attempts.of(plan.uid)
    problem = await hands.eyes.asked(plan, attempts)
    found = (
        None if problem is None else await home.store.answers.find(digest_of(problem))
    )
    observations: tuple[Observation, ...] = ()
    losses: dict[int, float] = {}
    for attempt in attempts:
        reports = hands.eyes.reports(plan, attempt, hands.children)
        losses |= {step.step: step.loss for step in reports.steps}
        stored = await home.store.observations.of(plan.uid, attempt.number)
        told = stored or reports.observations
        observations = tuple(one for one in told if one.peaks) or observations
    return RunRecord(
        name=plan.name,
        uid=plan.uid,
        status=plan.status,
        problem=problem,
        answer=None if found is None else found.answer,
        attempts=attempts,
        observations=observations,
        losses=tuple(sorted(losses.items())),
    )
