"""Decides what is done next for one TrainingPlan, and what is said of it.

In: the spec, the status as it was said last, what is seen, the time. Out: actions and
a status. Pure and level-triggered: the same look gives the same decision, however often
it is asked for and whatever crashed in between. Called by the loop of either home.

    Accepted -> Profiled -> Planned -> Certified -> Launched -> Succeeded

Each condition is a step. A step that is not there yet says so and asks for what brings
it on; those behind it wait. While an attempt is open only the last two are looked at:
what it trains by is its plan of record, whatever was edited or lost since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from plimsoll_operator.api.spec import TrainingPlanSpec
from plimsoll_operator.api.status import Condition, ConditionType, Status, Truth
from plimsoll_operator.brain.actions import Action, Clear, WakeAt
from plimsoll_operator.brain.attempting import (
    ended_before,
    launched,
    next_attempt,
    succeeded,
)
from plimsoll_operator.brain.failures import failures_of
from plimsoll_operator.brain.preparing import accepted, certified, planned, profiled
from plimsoll_operator.brain.said import Look, Said
from plimsoll_operator.brain.seen import Seen
from plimsoll_operator.brain.summary import (
    alternatives_of,
    certificate_status,
    plan_status,
    profile_status,
)
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.solution import Solution


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """What is done next, and what is said."""

    actions: tuple[Action, ...]
    status: Status


def decide(
    spec: TrainingPlanSpec,
    status: Status,
    seen: Seen,
    *,
    generation: int,
    now_s: float,
) -> Decision:
    """Return what is done next for a plan, and what is said of it.

    Args:
        spec: what a person asks for.
        status: as it was said last.
        seen: a live look.
        generation: of the spec.
        now_s: seconds since 1970.
    """
    if status.is_over:
        return Decision(actions=clearing(seen), status=status)
    look = Look(spec=spec, seen=seen, generation=generation, now_s=now_s)
    now = datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    told = replace(
        status,
        observed_generation=generation,
        attempt=len(seen.attempts),
        failures=failures_of(look.counted),
        start_time=status.start_time or now,
    )
    actions: list[Action] = []
    steps = steps_for(look)
    behind: list[ConditionType] = []
    for place, (kind, step) in enumerate(steps, start=1):
        said = step(look)
        actions += said.actions
        told = told.saying(condition(kind, said, generation), now)
        if said.is_final and kind is not ConditionType.SUCCEEDED:
            told = told.saying(failed_by(said, generation), now)
        if said.is_final or not (said.truth is Truth.TRUE or said.goes_on):
            if kind is not ConditionType.SUCCEEDED:
                behind = [later for later, _ in steps[place:]]
            break
    told = waiting(told, (*behind, *unsaid(told)), generation, now)
    told = with_answer(told, seen)
    if told.is_over:
        told = replace(told, completion_time=now)
        actions = [a for a in actions if not isinstance(a, WakeAt)]
    return Decision(actions=tuple(actions), status=told)


Step = Callable[[Look], Said]


def steps_for(look: Look) -> list[tuple[ConditionType, Step]]:
    """Return the steps that are looked at, in order."""
    if look.latest is not None and look.latest.ending is None:
        return [
            (ConditionType.LAUNCHED, launched),
            (ConditionType.SUCCEEDED, succeeded),
        ]
    return [
        (ConditionType.SUCCEEDED, ended_before),
        (ConditionType.ACCEPTED, accepted),
        (ConditionType.PROFILED, profiled),
        (ConditionType.PLANNED, planned),
        (ConditionType.CERTIFIED, certified),
        (ConditionType.LAUNCHED, next_attempt),
    ]


def clearing(seen: Seen) -> tuple[Action, ...]:
    """Return what removes the children of a plan that is over."""
    return tuple(Clear(child=child) for child in seen.children)


def with_answer(status: Status, seen: Seen) -> Status:
    """Return the status with the plan that is trained by, or will be."""
    status = replace(status, profile=profile_status(seen) or status.profile)
    found = seen.answer.answer if seen.answer is not None else None
    if isinstance(found, Solution):
        status = replace(
            status,
            plan=plan_status(found.plan, found.certificate.space.limits),
            certificate=certificate_status(found),
            alternatives=alternatives_of(found),
        )
    planned = status.plan.digest if status.plan is not None else ""
    is_of_plan = seen.attempts and digest_of(seen.attempts[-1].plan) == planned
    return replace(status, observed=seen.observed if is_of_plan else None)


def condition(kind: ConditionType, said: Said, generation: int) -> Condition:
    """Return what a step says as a condition."""
    return Condition(
        type=kind,
        status=said.truth,
        reason=said.reason,
        message=said.message[:1024],
        observed_generation=generation,
    )


def failed_by(said: Said, generation: int) -> Condition:
    """Return the summary where a step before it is the end; a dry run succeeds."""
    truth = Truth.TRUE if said.is_success else Truth.FALSE
    return condition(ConditionType.SUCCEEDED, replace(said, truth=truth), generation)


def unsaid(status: Status) -> list[ConditionType]:
    """Return the conditions of which nothing was ever said."""
    return [kind for kind in ConditionType if status.condition(kind) is None]


def waiting(
    status: Status, kinds: Iterable[ConditionType], generation: int, now: str
) -> Status:
    """Return the status where some conditions wait for those before them."""
    said = Said(truth=Truth.UNKNOWN, reason="Waiting")
    for kind in kinds:
        status = status.saying(condition(kind, said, generation), now)
    return status
