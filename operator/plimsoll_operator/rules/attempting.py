"""The steps of attempts: after the latest one, the next one, the open one.

In: the observed state. Out: results for Launched and Succeeded, with the actions that
start, stop and settle a worker group. Called by `decide`.
"""

from __future__ import annotations

from dataclasses import replace

from plimsoll_operator.api.reasons import DRY_RUN, WAITING
from plimsoll_operator.api.spec import LaunchPolicy, RunPolicy, TrainingPlanSpec
from plimsoll_operator.api.status import FALSE, TRUE, UNKNOWN
from plimsoll_operator.rules.actions import (
    Clear,
    RecordEnding,
    RecordPlan,
    StartTraining,
    StopTraining,
    WakeAt,
)
from plimsoll_operator.rules.failures import given_up, next_start_s
from plimsoll_operator.rules.observed_state import (
    Ending,
    ObservedTask,
    TaskKind,
    TaskState,
)
from plimsoll_operator.rules.revising import (
    plan_to_go_on_with,
    revising,
    settling,
    staying_text,
)
from plimsoll_operator.rules.step_result import StepInput, StepResult, joined
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.solution import Infeasible


def ended_before(given: StepInput) -> StepResult:
    """Whether the latest attempt was the last one."""
    latest = given.latest
    if latest is None:
        return StepResult(UNKNOWN, WAITING, goes_on=True)
    clear = tuple(Clear(task=t) for t in given.state.tasks if is_train(t))
    if latest.ending is Ending.DONE:
        message = "; ".join(filter(None, (latest.message, given.state.step_fault)))
        return StepResult(TRUE, "Trained", message, actions=clear, is_final=True)
    failure = given_up(given)
    if failure is not None:
        return failure.after(*clear)
    return StepResult(UNKNOWN, WAITING, actions=clear, goes_on=True)


def next_attempt(given: StepInput) -> StepResult:
    """Why no ranks run yet, and what records the plan of the next ones."""
    found = given.state.answer
    if given.spec.launch.policy is LaunchPolicy.PLAN_ONLY:
        return StepResult(FALSE, DRY_RUN, is_final=True, is_success=True)
    if given.spec.suspend:
        return StepResult(FALSE, "Suspended")
    at_s = next_start_s(given.counted, given.now_s)
    if at_s > given.now_s:
        return StepResult(FALSE, "BackingOff", actions=(WakeAt(at_s=at_s),))
    if found is None or isinstance(found.answer, Infeasible):
        return StepResult(FALSE, WAITING)
    record = RecordPlan(
        attempt=given.latest.number + 1 if given.latest is not None else 1,
        plan=plan_to_go_on_with(given.state, found, found.answer),
        problem_digest=found.problem_digest,
        asked_digest=asked_digest_of(given.spec),
    )
    return StepResult(FALSE, "Starting", actions=(record,))


def launched(given: StepInput) -> StepResult:
    """Whether the ranks of the open attempt were started; nothing else is kept."""
    number = str(given.state.attempts[-1].number)
    rest = [
        Clear(task=task)
        for task in given.state.tasks
        if not (is_train(task) and task.subject == number)
    ]
    return workers_result(given).after(*rest)


def workers_result(given: StepInput) -> StepResult:
    """Whether the ranks of the open attempt were started, and what starts them."""
    attempt = given.state.attempts[-1]
    task = given.state.task(TaskKind.TRAIN, str(attempt.number))
    if task is None:
        return starting(given)
    if task.ending is Ending.NEVER_STARTED:
        return StepResult(FALSE, "PendingTimeout", task.message, goes_on=True)
    if task.state is not TaskState.PENDING:
        return StepResult(TRUE, "Started", task.note)
    stop, asked = StopTraining(attempt=attempt.number), asked_to_leave(given)
    if task.stopping or asked:
        return StepResult(
            FALSE,
            task.stopping or asked,
            task.message if task.stopping else "",
            actions=(stop,),
        )
    is_late = given.is_late(task)
    return StepResult(
        FALSE,
        "PendingTimeout" if is_late else "Pending",
        joined(task.message, task.note),
        actions=(stop if is_late else WakeAt(at_s=given.late_s(task)),),
    )


def starting(given: StepInput) -> StepResult:
    """Why the ranks of the open attempt are not started yet, and what starts them."""
    number = given.state.attempts[-1].number
    if given.spec.suspend:
        return StepResult(FALSE, "Suspended")
    if is_outdated(given):
        return left_unstarted(given)
    start = StartTraining(attempt=number, memory_factor=memory_factor_of(given))
    return StepResult(FALSE, "Starting", actions=(start,))


def memory_factor_of(given: StepInput) -> int:
    """Multiple of the stated host memory that the open attempt asks for.

    It is doubled each time it was too little, as often as the spec allows. That counts
    after a pause as well, until the spec asks for something else.
    """
    asked = asked_digest_of(given.spec)
    num_full = sum(
        one.ending is Ending.HOST_OUT_OF_MEMORY and one.asked_digest == asked
        for one in given.state.attempts
    )
    return 1 << min(num_full, given.spec.run_policy.host_memory_doublings)


def succeeded(given: StepInput) -> StepResult:
    """Progress of the open attempt, once it was started, and what stops it."""
    attempt = given.state.attempts[-1]
    task = given.state.task(TaskKind.TRAIN, str(attempt.number))
    if task is None or task.state is TaskState.PENDING:
        return StepResult(UNKNOWN, WAITING)
    limit_s = given.spec.run_policy.running_seconds
    until_s = given.now_s if task.state is TaskState.RUNNING else task.since_s
    has_begun = task.started_s > 0
    is_late = limit_s is not None and has_begun and until_s - task.started_s > limit_s
    if task.state is TaskState.RUNNING or task.ending is None:
        stop = StopTraining(attempt=attempt.number)
        asked = asked_to_leave(given) or ("DeadlineExceeded" if is_late else "")
        if reason := task.stopping or asked:
            return StepResult(UNKNOWN, reason, actions=(stop,))
        wake = () if limit_s is None else (WakeAt(at_s=task.started_s + limit_s + 1),)
        actions = (*wake, *revising(given))
        notes = given.state.step_fault, staying_text(given.state.running)
        message = "; ".join(filter(None, notes))
        return StepResult(UNKNOWN, "Running", message, actions=actions)
    was_late = is_late and task.ending in (Ending.CHECKPOINTED, Ending.DISRUPTED)
    ending = Ending.TIMED_OUT if was_late else task.ending
    record = RecordEnding(attempt=attempt.number, task=task, ending=ending)
    return StepResult(UNKNOWN, "Ended", actions=(*settling(given), record))


def asked_to_leave(given: StepInput) -> str:
    """Why a person wants the ranks to leave; empty where nobody does."""
    if given.spec.suspend:
        return "Suspending"
    return "Replanning" if is_outdated(given) else ""


def is_outdated(given: StepInput) -> bool:
    """Whether the spec was edited after the plan of record, and before ranks ran.

    An edit that only asks for a pause, or sets other limits of time, changes no plan.
    """
    attempt = given.state.attempts[-1]
    if given.was_launched or not attempt.asked_digest:
        return False
    return attempt.asked_digest != asked_digest_of(given.spec)


def asked_digest_of(spec: TrainingPlanSpec) -> str:
    """Digest of all that a plan and its worker group are made from."""
    return digest_of(replace(spec, suspend=False, run_policy=RunPolicy()))


def left_unstarted(given: StepInput) -> StepResult:
    """The end of an attempt whose ranks were never started: the spec has changed."""
    number = given.state.attempts[-1].number
    nothing = ObservedTask(
        kind=TaskKind.TRAIN,
        subject=str(number),
        state=TaskState.ENDED,
        since_s=given.now_s,
        message="the spec was edited before the ranks were started",
    )
    record = RecordEnding(attempt=number, task=nothing, ending=Ending.CHECKPOINTED)
    return StepResult(FALSE, "Replanning", actions=(record,))


def is_train(task: ObservedTask) -> bool:
    """Whether a task is a worker group."""
    return task.kind is TaskKind.TRAIN
