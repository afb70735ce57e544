"""The steps of attempts: what follows the latest one, the next one, the open one.

In: a look. Out: what is said of Launched and Succeeded, with the actions that start,
stop and settle a gang. Called by `decide`.
"""

from __future__ import annotations

from plimsoll_operator.api.reasons import WAITING
from plimsoll_operator.api.spec import LaunchPolicy
from plimsoll_operator.api.status import Truth
from plimsoll_operator.brain.actions import (
    Clear,
    RecordEnding,
    RecordPlan,
    StartTraining,
    StopTraining,
    WakeAt,
)
from plimsoll_operator.brain.failures import given_up, next_start_s
from plimsoll_operator.brain.said import DRY_RUN, Look, Said
from plimsoll_operator.brain.seen import Child, ChildKind, ChildState, Ending
from plimsoll_planner.records.solution import Infeasible


def ended_before(look: Look) -> Said:
    """Say whether the latest attempt was the last one."""
    latest = look.latest
    if latest is None:
        return Said(truth=Truth.UNKNOWN, reason=WAITING, goes_on=True)
    clear = tuple(Clear(child=c) for c in look.seen.children if is_train(c))
    if latest.ending is Ending.DONE:
        return Said(truth=Truth.TRUE, reason="Trained", actions=clear, is_final=True)
    failure = given_up(look.spec, look.counted, look.fewest_unfixed)
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
    )
    return Said(truth=Truth.FALSE, reason="Starting", actions=(record,))


def launched(look: Look) -> Said:
    """Say whether the gang of the open attempt was started, and start it."""
    attempt = look.seen.attempts[-1]
    child = look.seen.child(ChildKind.TRAIN, str(attempt.number))
    if child is None:
        if look.spec.suspend:
            return Said(truth=Truth.FALSE, reason="Suspended")
        start = StartTraining(attempt=attempt.number)
        return Said(truth=Truth.FALSE, reason="Starting", actions=(start,))
    if child.ending is Ending.NEVER_STARTED:
        return Said(
            truth=Truth.FALSE,
            reason="PendingTimeout",
            message=child.message,
            goes_on=True,
        )
    if child.state is not ChildState.PENDING:
        return Said(truth=Truth.TRUE, reason="Started")
    stop = StopTraining(attempt=attempt.number)
    if child.stopping or look.spec.suspend:
        return Said(
            truth=Truth.FALSE,
            reason=child.stopping or "Suspending",
            message=child.message if child.stopping else "",
            actions=(stop,),
        )
    is_late = look.is_late(child)
    return Said(
        truth=Truth.FALSE,
        reason="PendingTimeout" if is_late else "Pending",
        message=child.message,
        actions=(stop if is_late else WakeAt(at_s=look.late_s(child)),),
    )


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
        if child.stopping or look.spec.suspend or is_late:
            asked = "Suspending" if look.spec.suspend else "DeadlineExceeded"
            reason = child.stopping or asked
            return Said(truth=Truth.UNKNOWN, reason=reason, actions=(stop,))
        wake = () if limit_s is None else (WakeAt(at_s=child.started_s + limit_s + 1),)
        return Said(truth=Truth.UNKNOWN, reason="Running", actions=wake)
    was_late = is_late and child.ending in (Ending.CHECKPOINTED, Ending.DISRUPTED)
    ending = Ending.TIMED_OUT if was_late else child.ending
    record = RecordEnding(attempt=attempt.number, child=child, ending=ending)
    return Said(truth=Truth.UNKNOWN, reason="Ended", actions=(record,))


def is_train(child: Child) -> bool:
    """Tell whether a child is a gang of ranks."""
    return child.kind is ChildKind.TRAIN
