"""Decides what is done next for one TrainingPlan, and what is reported of it.

In: the spec, the latest status, the observed state, the time. Out: actions and a
status. Pure and level-triggered: the same state gives the same decision, however often
it is asked for and whatever crashed in between. Called by the loop of either back end.

    Accepted -> Profiled -> Planned -> Certified -> Launched -> Succeeded

Each condition is a step. A step that is not there yet says so and asks for what brings
it on; those behind it wait, and the summary, Succeeded, says what is waited for. While
an attempt is open only the last two are looked at: what it trains by is its plan of
record, whatever was lost since. Where the spec was edited before the ranks ran, that
attempt ends, and the next one is planned anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from plimsoll_operator.api.reasons import DRY_RUN
from plimsoll_operator.api.spec import LaunchPolicy, TrainingPlanSpec
from plimsoll_operator.api.status import (
    FALSE,
    MOST_REVISIONS,
    TRUE,
    UNKNOWN,
    Condition,
    ConditionType,
    Status,
    WorkloadRef,
)
from plimsoll_operator.rules.actions import Action, Clear, WakeAt
from plimsoll_operator.rules.attempting import (
    ended_before,
    launched,
    next_attempt,
    succeeded,
)
from plimsoll_operator.rules.failures import failures_of
from plimsoll_operator.rules.observed_state import ObservedState, TaskKind
from plimsoll_operator.rules.preparing import accepted, certified, planned, profiled
from plimsoll_operator.rules.revising import plan_to_go_on_with
from plimsoll_operator.rules.step_result import StepInput, StepResult
from plimsoll_operator.rules.summary import (
    alternatives_of,
    certificate_status,
    plan_status,
    profile_status,
    revision_status,
    time_text,
)
from plimsoll_planner.errors import one_line
from plimsoll_planner.pod_names import WEIGHTS
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.solution import Solution


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """The next actions, and the status that is reported."""

    actions: tuple[Action, ...]
    status: Status


def decide(
    spec: TrainingPlanSpec,
    status: Status,
    state: ObservedState,
    *,
    generation: int,
    now_s: float,
) -> Decision:
    """The decision on a plan: its next actions, and its status.

    `status` is the latest, `generation` that of the spec, `now_s` is since 1970.
    """
    if is_closed(status, generation):
        clear = tuple(Clear(task=task) for task in state.tasks)
        return Decision(actions=clear, status=status)
    certificate = status.certificate
    given = StepInput(
        spec=spec,
        state=state,
        generation=generation,
        now_s=now_s,
        was_launched=status.holds(ConditionType.LAUNCHED),
        fewest_unfixed=None if certificate is None else certificate.fewest_unfixed,
    )
    now = time_text(now_s)
    updated = replace(
        status,
        observed_generation=generation,
        attempt=given.latest.number if given.latest is not None else 0,
        failures=failures_of(given.counted),
        start_time=status.start_time or now,
        completion_time="",
        checkpoints=state.checkpoints if is_launched_by(spec) else None,
    )
    actions: list[Action] = []
    steps = steps_for(given)
    behind: list[ConditionType] = []
    for place, (kind, step) in enumerate(steps, start=1):
        result = step(given)
        actions += result.actions
        updated = updated.with_condition(condition(kind, result, generation), now)
        if result.is_final or not result.may_go_on:
            if kind is not ConditionType.SUCCEEDED:
                updated = updated.with_condition(summary(given, result), now)
                behind = [
                    later
                    for later, _ in steps[place:]
                    if later is not ConditionType.SUCCEEDED
                ]
            break
    unset = [kind for kind in ConditionType if updated.condition(kind) is None]
    updated = waiting(updated, (*behind, *unset), generation, now)
    updated = with_workload(with_answer(updated, state), state)
    if updated.is_over:
        updated = with_weights(replace(updated, completion_time=now), spec)
        actions = [a for a in actions if not isinstance(a, WakeAt)]
    return Decision(actions=tuple(actions), status=updated)


def with_weights(status: Status, spec: TrainingPlanSpec) -> Status:
    """The status with the folder of weights that a job writes before it ends well."""
    saves = status.checkpoints
    if saves is None or not spec.checkpoint.export_weights:
        return status
    if not status.holds(ConditionType.SUCCEEDED):
        return status
    folder = f"{saves.folder}/{WEIGHTS}"
    return replace(status, checkpoints=replace(saves, weights=folder))


def is_closed(status: Status, generation: int) -> bool:
    """Whether nothing more is decided on a plan.

    It has come to its end; but a dry run goes on where a person edits it, above all to
    launch what it has found.
    """
    is_edited = was_dry(status) and status.observed_generation < generation
    return status.is_over and not is_edited


def is_launched_by(spec: TrainingPlanSpec) -> bool:
    """Whether a spec asks for more than a dry run."""
    return spec.launch.policy is LaunchPolicy.LAUNCH


def was_dry(status: Status) -> bool:
    """Whether a plan has come to its end as a dry run."""
    return status.reason(ConditionType.SUCCEEDED) == DRY_RUN


def unreadable(
    status: Status, fault: str, *, generation: int, now_s: float
) -> Decision:
    """The decision on a plan whose spec the types refuse; nothing is done.

    A schema lets more through than the types do, and a newer release may refuse what
    an older one took. What is over stays as it is, and so does the report on ranks that
    run.
    """
    if is_closed(status, generation):
        return Decision(actions=(), status=status)
    now = time_text(now_s)
    result = StepResult(FALSE, "InvalidSpec", fault)
    updated = replace(
        status,
        observed_generation=generation,
        start_time=status.start_time or now,
    ).with_condition(condition(ConditionType.ACCEPTED, result, generation), now)
    if status.holds(ConditionType.LAUNCHED):
        return Decision(actions=(), status=updated)
    others = [kind for kind in ConditionType if kind is not ConditionType.ACCEPTED]
    return Decision(actions=(), status=waiting(updated, others, generation, now))


Step = Callable[[StepInput], StepResult]


def steps_for(given: StepInput) -> list[tuple[ConditionType, Step]]:
    """The steps that are taken, in order."""
    if given.latest is not None and given.latest.ending is None:
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


def with_answer(status: Status, state: ObservedState) -> Status:
    """The status with the plan that is trained by, or will be."""
    status = replace(status, profile=profile_status(state) or status.profile)
    answer, running = state.answer, state.running
    found = None if answer is None else answer.answer
    if answer is not None and isinstance(found, Solution):
        plan = plan_to_go_on_with(state, answer, found)
        status = replace(
            status,
            plan=plan_status(plan, found.certificate.space.limits),
            certificate=certificate_status(found),
            alternatives=alternatives_of(found),
        )
    elif running is not None:
        status = replace(status, plan=plan_status(running.plan, running.limits))
    planned = status.plan.digest if status.plan is not None else ""
    digests = [one.plan_digest for one in state.attempts[-1:]]
    if running is not None:
        digests = [digest_of(running.plan)]
        latest = running.revisions[-MOST_REVISIONS:]
        status = replace(status, revisions=tuple(map(revision_status, latest)))
    # What was reported before stands while the store, which holds it, cannot be asked.
    observed = state.observed or (status.observed if state.store_fault else None)
    is_revised = running is None and bool(state.store_fault and status.revisions)
    is_of_plan = planned in digests or is_revised
    return replace(status, observed=observed if is_of_plan else None)


def with_workload(status: Status, state: ObservedState) -> Status:
    """The status with the Job of the latest attempt; it stays when that ends."""
    number = state.attempts[-1].number if state.attempts else 0
    task = state.task(TaskKind.TRAIN, str(number))
    if task is not None and task.workload_uid:
        ref = WorkloadRef(
            name=task.workload_name, uid=task.workload_uid, attempt=number
        )
        return replace(status, workload_ref=ref)
    before = status.workload_ref
    is_latest = before is not None and before.attempt == number
    return status if is_latest else replace(status, workload_ref=None)


def condition(kind: ConditionType, result: StepResult, generation: int) -> Condition:
    """The result of a step as a condition."""
    return Condition(
        type=kind,
        status=result.truth,
        reason=result.reason,
        message=one_line(result.message)[:1024],
        observed_generation=generation,
    )


def summary(given: StepInput, result: StepResult) -> Condition:
    """The summary if a step before it is the end, or is waited for.

    A dry run succeeds. The end of the latest attempt is reported with what is waited
    for, where that says nothing itself.
    """
    truth = UNKNOWN
    if result.is_final:
        truth = TRUE if result.is_success else FALSE
    latest, message = given.latest, result.message
    if not message and not result.is_final and latest is not None and latest.message:
        message = f"attempt {latest.number} ended: {latest.message}"
    updated = replace(result, truth=truth, message=message)
    return condition(ConditionType.SUCCEEDED, updated, given.generation)


def waiting(
    status: Status, kinds: Iterable[ConditionType], generation: int, now: str
) -> Status:
    """The status in which some conditions wait for those before them."""
    result = StepResult(UNKNOWN, "Waiting")
    for kind in kinds:
        status = status.with_condition(condition(kind, result, generation), now)
    return status
