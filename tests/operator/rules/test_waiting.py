"""What is waited for, and what is said and done meanwhile: one look, one decision."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from plimsoll_operator.api.status import (
    Condition,
    ConditionType,
    ObservedStatus,
    RevisionStatus,
    Status,
    Truth,
    WorkloadRef,
)
from plimsoll_operator.rules.actions import (
    Action,
    Clear,
    RecordEnding,
    StopTraining,
    WakeAt,
)
from plimsoll_operator.rules.decide import Decision, decide
from plimsoll_operator.rules.observed_state import (
    Attempt,
    Ending,
    ObservedAnswer,
    ObservedProfile,
    ObservedState,
    ObservedTask,
    TaskKind,
    TaskState,
)
from plimsoll_operator.rules.preparing import STORE_AGAIN_S
from plimsoll_planner.records.document import digest_of
from tests.support.builders import a_plan, a_solution
from tests.support.specs import a_spec

NOW_S = 10_000.0
LIMIT_S = 600
"""For which a task may be pending."""
FAULT = "no connection to the database"
NO_ROOM = "0/3 nodes are available"
READY = ObservedState(
    profile=ObservedProfile(source="measured", made_s=9000.0, was_cached=False),
    profile_key="request",
    answer=ObservedAnswer(answer=a_solution(), is_certified=True),
)
BEGUN = Attempt(number=1, plan_digest=digest_of(a_solution().plan), recorded_s=9900.0)
FAILED = replace(
    BEGUN,
    ending=Ending.APPLICATION_ERROR,
    ended_s=NOW_S - 1,
    generation=1,
    message="rank 0: no such file",
)
UNREHEARSED = replace(
    READY,
    has_device=True,
    answer=ObservedAnswer(answer=a_solution(), is_certified=True, plan_digest="plan"),
)
UNREPLAYED = replace(
    READY, answer=ObservedAnswer(answer=a_solution(), unreplayed="plan")
)


def a_task(
    kind: TaskKind, subject: str, waited_s: float, **fields: Any
) -> ObservedTask:
    """Build a task that waits for machines."""
    defaults: dict[str, Any] = {
        "kind": kind,
        "subject": subject,
        "state": TaskState.PENDING,
        "since_s": NOW_S - waited_s,
        "message": NO_ROOM,
    }
    return ObservedTask(**(defaults | fields))


def decided(
    seen: ObservedState, status: Status | None = None, **parts: Any
) -> Decision:
    """Decide on a look."""
    told = status or Status()
    is_rehearsed = seen.answer is not None and seen.answer.plan_digest
    launch = {"rehearse": "Always"} if is_rehearsed else {}
    given = {"runPolicy": {"pendingSeconds": LIMIT_S}, "launch": launch}
    spec = a_spec(**(given | parts))
    return decide(spec, told, seen, generation=1, now_s=NOW_S)


def said(decision: Decision, kind: ConditionType) -> Condition:
    """The condition of a type, as decided."""
    found = decision.status.condition(kind)
    assert found is not None
    return found


def summary(decision: Decision) -> tuple[Truth, str, str]:
    """Truth, reason and message of the summary."""
    found = said(decision, ConditionType.SUCCEEDED)
    return found.status, found.reason, found.message


def waiting_task(kind: TaskKind, subject: str) -> tuple[ObservedTask, ...]:
    """One task that has waited for a second."""
    return (a_task(kind, subject, 1.0),)


@pytest.mark.parametrize(
    ("seen", "spec", "reason", "message"),
    [
        (replace(READY, complaint="no ConfigMap"), {}, "InvalidSpec", "no ConfigMap"),
        (replace(READY, store_fault=FAULT), {}, "StoreUnavailable", FAULT),
        (replace(READY, profile=None), {}, "Profiling", ""),
        (replace(READY, answer=None), {}, "Solving", ""),
        (UNREPLAYED, {}, "Replaying", ""),
        (UNREHEARSED, {}, "Rehearsing", ""),
        (READY, {"suspend": True}, "Suspended", ""),
        (READY, {}, "Starting", ""),
        (replace(READY, attempts=(BEGUN,)), {}, "Starting", ""),
        (
            replace(
                READY,
                attempts=(BEGUN,),
                tasks=waiting_task(TaskKind.TRAIN, "1"),
            ),
            {},
            "Pending",
            NO_ROOM,
        ),
        (
            replace(READY, attempts=(FAILED,)),
            {},
            "BackingOff",
            "attempt 1 ended: rank 0: no such file",
        ),
    ],
)
def test_the_summary_says_what_is_waited_for(
    seen: ObservedState, spec: dict[str, Any], reason: str, message: str
) -> None:
    """With its message, else with what ended the attempt before."""
    assert summary(decided(seen, **spec)) == (Truth.UNKNOWN, reason, message)


def test_a_step_that_was_left_out_is_not_waited_for() -> None:
    """Nobody asked for the replay that has failed."""
    replay = a_task(TaskKind.REPLAY, "plan", LIMIT_S, state=TaskState.ENDED)
    replay = replace(replay, ending=Ending.APPLICATION_ERROR)
    found = decided(
        replace(UNREPLAYED, tasks=(replay,)), launch={"requireCertified": False}
    )
    assert said(found, ConditionType.CERTIFIED).reason == "Skipped"
    assert summary(found)[:2] == (Truth.UNKNOWN, "Starting")


def test_a_store_that_is_down_is_asked_again_and_nothing_else_is_done() -> None:
    """Not even where the policy is Never: nobody knows whether there is a profile."""
    for policy in ("IfMissing", "Never"):
        bare = ObservedState(profile_key="request", store_fault=FAULT)
        found = decided(bare, profile={"policy": policy})
        assert found.actions == (WakeAt(at_s=NOW_S + STORE_AGAIN_S),)
        assert not found.status.is_over


def test_what_runs_goes_on_while_the_store_is_down() -> None:
    """The end of an attempt is written down, and what it used stays told."""
    told = ObservedStatus(peak_bytes=2**20, error_percent=Decimal(1))
    runs = a_task(
        TaskKind.TRAIN, "1", 10.0, state=TaskState.RUNNING, started_s=NOW_S - 10
    )
    looked = replace(READY, attempts=(BEGUN,), tasks=(runs,), observed=told)
    before = decided(looked).status
    down = replace(looked, profile=None, answer=None, observed=None, store_fault=FAULT)
    assert decided(down, before).status == before
    ended = replace(runs, state=TaskState.ENDED, ending=Ending.DONE)
    found = decided(replace(down, tasks=(ended,)), before)
    record = RecordEnding(attempt=1, task=ended, ending=Ending.DONE)
    assert found.actions == (record,)
    assert found.status.observed == told


def test_steps_that_do_not_take_what_was_predicted_are_told_of_their_attempt() -> None:
    """While the ranks train and when they are done; it stood on the plan page alone."""
    fault = "a step takes 3 s, outside of what was predicted, 1 to 2 s"
    runs = a_task(
        TaskKind.TRAIN, "1", 10.0, state=TaskState.RUNNING, started_s=NOW_S - 10
    )
    running = replace(READY, attempts=(BEGUN,), tasks=(runs,), step_fault=fault)
    done = replace(BEGUN, ending=Ending.DONE, ended_s=NOW_S - 1, generation=1)
    for seen, reason in (
        (running, "Running"),
        (replace(READY, attempts=(done,), step_fault=fault), "Trained"),
    ):
        told = said(decided(seen), ConditionType.SUCCEEDED)
        assert (told.reason, told.message) == (reason, fault)
        as_predicted = decided(replace(seen, step_fault=""))
        assert said(as_predicted, ConditionType.SUCCEEDED).message == ""


def test_what_was_used_is_not_told_of_another_plan() -> None:
    """Whether or not the store can be asked."""
    told = ObservedStatus(peak_bytes=2**20, error_percent=Decimal(1))
    before = replace(decided(READY).status, observed=told)
    another = replace(BEGUN, plan_digest=digest_of(a_plan(revision=7)))
    found = decided(replace(READY, attempts=(another,), store_fault=FAULT), before)
    assert found.status.observed is None


def test_the_peak_of_a_revised_plan_stands_while_the_store_is_down() -> None:
    """Its attempt began with another plan, and which one runs now cannot be asked."""
    observed = ObservedStatus(peak_bytes=2**20, error_percent=Decimal(1))
    revised = replace(BEGUN, plan_digest=digest_of(a_plan(revision=7)))
    seen = replace(READY, attempts=(revised,), store_fault=FAULT)
    revisions = (
        RevisionStatus(
            revision=2, state="followed", cause="Pace", step_percent=Decimal(80)
        ),
    )
    before = replace(decided(READY).status, observed=observed, revisions=revisions)
    assert decided(seen, before).status.observed == observed


def pending(kind: TaskKind, waited_s: float) -> tuple[ObservedState, ObservedTask]:
    """Look at a task that waits, and the task."""
    subject = {TaskKind.PROFILE: "request", TaskKind.TRAIN: "1"}.get(kind, "plan")
    task = a_task(kind, subject, waited_s)
    looks = {
        TaskKind.PROFILE: replace(READY, profile=None),
        TaskKind.REPLAY: UNREPLAYED,
        TaskKind.REHEARSAL: UNREHEARSED,
        TaskKind.TRAIN: replace(READY, attempts=(BEGUN,)),
    }
    return replace(looks[kind], tasks=(task,)), task


@pytest.mark.parametrize("kind", TaskKind)
def test_a_task_may_wait_for_machines(kind: TaskKind) -> None:
    """Until its time is up, when it is looked at again."""
    seen, task = pending(kind, LIMIT_S - 1)
    found = decided(seen)
    assert found.actions == (WakeAt(at_s=task.since_s + LIMIT_S),)
    assert summary(found)[2] == NO_ROOM


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (TaskKind.PROFILE, "ProfilePendingTimeout"),
        (TaskKind.REPLAY, "ReplayPendingTimeout"),
        (TaskKind.REHEARSAL, "RehearsalPendingTimeout"),
    ],
)
def test_what_waits_too_long_before_an_attempt_ends_the_plan(
    kind: TaskKind, reason: str
) -> None:
    """It is cleared away; the message says what it waited for."""
    seen, task = pending(kind, LIMIT_S)
    found = decided(seen)
    assert summary(found) == (Truth.FALSE, reason, NO_ROOM)
    assert found.actions == (Clear(task=task),)


def test_a_replay_that_nobody_asks_for_may_not_hold_up_a_plan_for_ever() -> None:
    """Without a need for it the plan goes on."""
    seen, _ = pending(TaskKind.REPLAY, LIMIT_S)
    found = decided(seen, launch={"requireCertified": False})
    assert said(found, ConditionType.CERTIFIED).reason == "Skipped"
    assert not found.status.is_over


def test_ranks_that_wait_too_long_are_stopped() -> None:
    """The status says so first: that tells it from a deletion by a person."""
    seen, _ = pending(TaskKind.TRAIN, LIMIT_S)
    found = decided(seen)
    assert found.actions == (StopTraining(attempt=1),)
    launched = said(found, ConditionType.LAUNCHED)
    assert (launched.status, launched.reason) == (Truth.FALSE, "PendingTimeout")
    assert summary(found) == (Truth.UNKNOWN, "PendingTimeout", NO_ROOM)


def test_ranks_that_never_found_a_place_were_not_launched() -> None:
    """What they waited for stays said once their Job has gone; that is written down."""
    seen, task = pending(TaskKind.TRAIN, LIMIT_S)
    gone = replace(task, state=TaskState.ENDED, ending=Ending.NEVER_STARTED)
    found = decided(replace(seen, tasks=(gone,)))
    assert found.actions == (
        RecordEnding(attempt=1, task=gone, ending=Ending.NEVER_STARTED),
    )
    launched = said(found, ConditionType.LAUNCHED)
    assert (launched.status, launched.reason) == (Truth.FALSE, "PendingTimeout")
    assert launched.message == NO_ROOM


def test_ranks_that_wait_leave_when_the_plan_is_suspended() -> None:
    """They hold a place in a queue that nobody wants now."""
    seen, _ = pending(TaskKind.TRAIN, 1.0)
    found = decided(seen, suspend=True)
    assert found.actions == (StopTraining(attempt=1),)
    assert summary(found)[:2] == (Truth.UNKNOWN, "Suspending")


def test_ranks_that_never_began_were_not_too_long_at_work() -> None:
    """How long an attempt may run is counted from its start."""
    seen, task = pending(TaskKind.TRAIN, 1.0)
    ended = replace(task, state=TaskState.ENDED, ending=Ending.CHECKPOINTED)
    found = decided(replace(seen, tasks=(ended,)), runPolicy={"runningSeconds": 1})
    record = RecordEnding(attempt=1, task=ended, ending=Ending.CHECKPOINTED)
    assert found.actions == (record,)


def jobs(seen: ObservedState, uid: str) -> ObservedState:
    """Look at which the tasks are Jobs."""
    named = (
        replace(one, workload_name=f"a-train-{one.subject}", workload_uid=uid)
        for one in seen.tasks
    )
    return replace(seen, tasks=tuple(named))


def test_the_job_of_the_latest_attempt_is_named() -> None:
    """Also when it is gone; at home there is none."""
    seen, _ = pending(TaskKind.TRAIN, 1.0)
    assert decided(seen).status.workload_ref is None
    first = decided(jobs(seen, "uid-1")).status
    ref = WorkloadRef(name="a-train-1", uid="uid-1", attempt=1)
    assert first.workload_ref == ref
    gone = replace(seen, tasks=(), attempts=(FAILED,))
    assert decided(gone, first).status.workload_ref == ref
    second = (FAILED, replace(BEGUN, number=2))
    assert decided(replace(gone, attempts=second), first).status.workload_ref is None
    again = replace(seen, attempts=second, tasks=waiting_task(TaskKind.TRAIN, "2"))
    named = decided(jobs(again, "uid-2"), first).status.workload_ref
    assert named == WorkloadRef(name="a-train-2", uid="uid-2", attempt=2)


def test_no_step_asks_to_be_woken_in_the_past() -> None:
    """A loop that is woken at once, again and again, does nothing else."""
    for kind in TaskKind:
        for waited_s in (0.0, LIMIT_S - 1, LIMIT_S, 10.0 * LIMIT_S):
            seen, _ = pending(kind, waited_s)
            assert all(map(is_ahead, decided(seen).actions))


def is_ahead(action: Action) -> bool:
    """Whether an action is no call to wake in the past."""
    return not isinstance(action, WakeAt) or action.at_s > NOW_S
