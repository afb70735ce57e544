"""The steps of attempts: what follows the latest one, the next one, the open one.

In: a look. Out: what is said of Launched and Succeeded, with the actions that start,
stop and settle a gang. Called by `decide`.
"""

from __future__ import annotations

from dataclasses import replace

from plimsoll_operator.api.reasons import DRY_RUN, WAITING
from plimsoll_operator.api.spec import LaunchPolicy, RunPolicy, TrainingPlanSpec
from plimsoll_operator.api.status import Truth
from plimsoll_operator.rules.actions import (
    Clear,
    RecordEnding,
    RecordPlan,
    StartTraining,
    StopTraining,
    WakeAt,
)
from plimsoll_operator.rules.failures import given_up, next_start_s
from plimsoll_operator.rules.observed_state import Child, ChildKind, ChildState, Ending
from plimsoll_operator.rules.step_result import Look, Said
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.solution import Infeasible


def ended_before(look: Look) -> Said:
    """Say whether the latest attempt was the last one."""
    latest = look.latest
    if latest is None:
        return Said(truth=Truth.UNKNOWN, reason=WAITING, goes_on=True)
    clear = tuple(Clear(child=c) for c in look.seen.children if is_train(c))
    if latest.ending is Ending.DONE:
        return Said(
            truth=Truth.TRUE,
            reason="Trained",
            message=look.seen.step_fault,
            actions=clear,
            is_final=True,
        )
    failure = given_up(
        look.spec,
        look.counted,
        look.fewest_unfixed,
        is_fixed_by_hand=look.is_fixed_by_hand,
    )
    if failure is not None:
        return Said(
            truth=Truth.FALSE,
            reason=failure.reason,
            message=failure.message,
            actions=clear,
            is_final=True,
        )
    return Said(truth=Truth.UNKNOWN, reason=WAITING, actions=clear, goes_on=True)


def next_attempt(look: Look) -> Said:
    """Say why no gang runs yet, and write down the plan of the next one."""
    found = look.seen.answer
    if look.spec.launch.policy is LaunchPolicy.PLAN_ONLY:
        return Said(truth=Truth.FALSE, reason=DRY_RUN, is_final=True, is_success=True)
    if look.spec.suspend:
        return Said(truth=Truth.FALSE, reason="Suspended")
    at_s = next_start_s(look.counted, look.now_s)
    if at_s > look.now_s:
        wake = (WakeAt(at_s=at_s),)
        return Said(truth=Truth.FALSE, reason="BackingOff", actions=wake)
    if found is None or isinstance(found.answer, Infeasible):
        return Said(truth=Truth.FALSE, reason=WAITING)
    record = RecordPlan(
        attempt=look.latest.number + 1 if look.latest is not None else 1,
        plan=found.answer.plan,
        problem_digest=found.problem_digest,
        asked_digest=asked_digest_of(look.spec),
    )
    return Said(truth=Truth.FALSE, reason="Starting", actions=(record,))


def launched(look: Look) -> Said:
    """Say whether the gang of the open attempt was started; nothing else is kept."""
    number = str(look.seen.attempts[-1].number)
    rest = tuple(
        Clear(child=child)
        for child in look.seen.children
        if not (is_train(child) and child.subject == number)
    )
    said = gang_said(look)
    return replace(said, actions=(*rest, *said.actions))


def gang_said(look: Look) -> Said:
    """Say whether the gang of the open attempt was started, and start it."""
    attempt = look.seen.attempts[-1]
    child = look.seen.child(ChildKind.TRAIN, str(attempt.number))
    if child is None:
        return starting(look)
    if child.ending is Ending.NEVER_STARTED:
        return Said(
            truth=Truth.FALSE,
            reason="PendingTimeout",
            message=child.message,
            goes_on=True,
        )
    if child.state is not ChildState.PENDING:
        return Said(truth=Truth.TRUE, reason="Started", message=child.note)
    stop, asked = StopTraining(attempt=attempt.number), asked_to_leave(look)
    if child.stopping or asked:
        return Said(
            truth=Truth.FALSE,
            reason=child.stopping or asked,
            message=child.message if child.stopping else "",
            actions=(stop,),
        )
    is_late = look.is_late(child)
    return Said(
        truth=Truth.FALSE,
        reason="PendingTimeout" if is_late else "Pending",
        message="; ".join(filter(None, (child.message, child.note))),
        actions=(stop if is_late else WakeAt(at_s=look.late_s(child)),),
    )


def starting(look: Look) -> Said:
    """Say why the gang of the open attempt is not made yet, and make it."""
    number = look.seen.attempts[-1].number
    if look.spec.suspend:
        return Said(truth=Truth.FALSE, reason="Suspended")
    if is_outdated(look):
        return left_unstarted(look)
    start = StartTraining(attempt=number, memory_factor=memory_factor_of(look))
    return Said(truth=Truth.FALSE, reason="Starting", actions=(start,))


def memory_factor_of(look: Look) -> int:
    """Return how many times the stated memory of the host the open attempt asks for.

    It is doubled each time it was too little, as often as the spec allows. That counts
    after a pause as well, until the spec asks for something else.
    """
    asked = asked_digest_of(look.spec)
    num_full = sum(
        one.ending is Ending.HOST_OUT_OF_MEMORY and one.asked_digest == asked
        for one in look.seen.attempts
    )
    return 1 << min(num_full, look.spec.run_policy.host_memory_doublings)


def succeeded(look: Look) -> Said:
    """Say how the open attempt goes, once it was started; stop it where asked."""
    attempt = look.seen.attempts[-1]
    child = look.seen.child(ChildKind.TRAIN, str(attempt.number))
    if child is None or child.state is ChildState.PENDING:
        return Said(truth=Truth.UNKNOWN, reason=WAITING)
    limit_s = look.spec.run_policy.running_seconds
    until_s = look.now_s if child.state is ChildState.RUNNING else child.since_s
    has_begun = child.started_s > 0
    is_late = limit_s is not None and has_begun and until_s - child.started_s > limit_s
    if child.state is ChildState.RUNNING or child.ending is None:
        stop = StopTraining(attempt=attempt.number)
        asked = asked_to_leave(look) or ("DeadlineExceeded" if is_late else "")
        if reason := child.stopping or asked:
            return Said(truth=Truth.UNKNOWN, reason=reason, actions=(stop,))
        wake = () if limit_s is None else (WakeAt(at_s=child.started_s + limit_s + 1),)
        return Said(
            truth=Truth.UNKNOWN,
            reason="Running",
            message=look.seen.step_fault,
            actions=wake,
        )
    was_late = is_late and child.ending in (Ending.CHECKPOINTED, Ending.DISRUPTED)
    ending = Ending.TIMED_OUT if was_late else child.ending
    record = RecordEnding(attempt=attempt.number, child=child, ending=ending)
    return Said(truth=Truth.UNKNOWN, reason="Ended", actions=(record,))


def asked_to_leave(look: Look) -> str:
    """Return why a person wants the ranks to leave; empty where nobody does."""
    if look.spec.suspend:
        return "Suspending"
    return "Replanning" if is_outdated(look) else ""


def is_outdated(look: Look) -> bool:
    """Tell whether the spec was edited after the plan of record, and before ranks ran.

    An edit that only asks for a pause, or sets other limits of time, changes no plan.
    """
    attempt = look.seen.attempts[-1]
    if look.was_launched or not attempt.asked_digest:
        return False
    return attempt.asked_digest != asked_digest_of(look.spec)


def asked_digest_of(spec: TrainingPlanSpec) -> str:
    """Return the digest of all that a plan and its gang are made from."""
    return digest_of(replace(spec, suspend=False, run_policy=RunPolicy()))


def left_unstarted(look: Look) -> Said:
    """End an attempt whose gang was never made, for the spec asks for another one."""
    number = look.seen.attempts[-1].number
    nothing = Child(
        kind=ChildKind.TRAIN,
        subject=str(number),
        state=ChildState.ENDED,
        since_s=look.now_s,
        message="the spec was edited before the ranks were started",
    )
    record = RecordEnding(attempt=number, child=nothing, ending=Ending.CHECKPOINTED)
    return Said(truth=Truth.FALSE, reason="Replanning", actions=(record,))


def is_train(child: Child) -> bool:
    """Tell whether a child is a gang of ranks."""
    return child.kind is ChildKind.TRAIN
