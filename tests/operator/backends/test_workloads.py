"""Jobs as tasks: where each stands, as far as the Job itself says so.

With pods and their reports, on a real API server: tests/lab/test_loop_on_a_server.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from plimsoll_operator.api.status import Condition, ConditionType, Status, Truth
from plimsoll_operator.backends.pods.job import JobBackend
from plimsoll_operator.backends.workloads import (
    after,
    begun,
    is_task,
    lost_with_nodes,
    settled,
)
from plimsoll_operator.names import SUBJECT_ANNOTATION, TASK_LABEL
from plimsoll_operator.objects.plans import STOPPED_BY_US, stop_reason
from plimsoll_operator.rules.observed_state import (
    Ending,
    ObservedTask,
    TaskKind,
    TaskState,
)
from plimsoll_operator.store.pod_ends import StoredEnd
from plimsoll_planner.records.task import End, Exit
from tests.support.cluster_objects import (
    CREATED_S,
    JOB_UID,
    LATER,
    LATER_S,
    a_pod,
    a_workload,
    condition,
    over,
)

NOW_S = LATER_S + 100.0
ENDED = ObservedTask(
    kind=TaskKind.TRAIN, subject="1", state=TaskState.ENDED, since_s=NOW_S
)


def saying(kind: ConditionType, truth: Truth, reason: str, message: str = "") -> Status:
    """Build a status with one condition."""
    said = Condition(type=kind, status=truth, reason=reason, message=message)
    return Status(conditions=(replace(said, last_transition_time=LATER),))


LAUNCHED = saying(ConditionType.LAUNCHED, Truth.TRUE, "Started")


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({}, TaskState.PENDING),
        ({"active": 2, "ready": 1}, TaskState.PENDING),
        ({"active": 2, "ready": 2}, TaskState.RUNNING),
        ({"ready": 1, "succeeded": 1}, TaskState.RUNNING),
        ({"ready": 1, "failed": 1}, TaskState.RUNNING),
        ({"conditions": [condition("FailureTarget")]}, TaskState.RUNNING),
        ({"conditions": [condition("FailureTarget", "False")]}, TaskState.PENDING),
        ({"conditions": [condition("Suspended")]}, TaskState.PENDING),
        (over("Complete"), TaskState.ENDED),
        (over("Failed"), TaskState.ENDED),
        ({"conditions": [condition("Failed", "False")]}, TaskState.PENDING),
    ],
)
def test_a_job_stands_where_its_status_says(
    status: dict[str, Any], state: TaskState
) -> None:
    """All of its pods must have begun; some that wait hold up the others."""
    task = begun(a_workload(status=status), Status(), NOW_S)
    assert task.state is state
    assert (task.workload_uid, task.workload_name) == (JOB_UID, "tiny-train-1")
    assert (task.kind, task.subject) == (TaskKind.TRAIN, "1")
    assert (
        task.since_s
        == {
            TaskState.PENDING: CREATED_S,
            TaskState.RUNNING: NOW_S,
            TaskState.ENDED: LATER_S,
        }[state]
    )


def test_a_gang_that_ran_still_runs_when_a_pod_is_not_ready() -> None:
    """The status says since when; profiling and replaying have no such word."""
    task = begun(a_workload(), LAUNCHED, NOW_S)
    assert (task.state, task.started_s) == (TaskState.RUNNING, LATER_S)
    other = a_workload(TaskKind.PROFILE, "sha256:0123", num_pods=1)
    assert begun(other, LAUNCHED, NOW_S).state is TaskState.PENDING


def test_a_gang_that_is_deleted_before_it_ran_waits_until_it_is_gone() -> None:
    """It would else count as started, and its end as somebody's deletion."""
    leaving = a_workload(deletionTimestamp=LATER)
    late = saying(ConditionType.LAUNCHED, Truth.FALSE, "PendingTimeout")
    task = begun(leaving, late, NOW_S)
    assert leaving.is_ending
    assert (task.state, task.stopping) == (TaskState.PENDING, "PendingTimeout")


def test_a_gang_whose_pods_are_being_deleted_is_ending() -> None:
    """On a lost node they never go, and the Job never says that it fails."""
    leaving = {"active": 1, "ready": 1, "terminating": 1}
    assert a_workload(status=leaving).is_ending
    assert begun(a_workload(status=leaving), LAUNCHED, NOW_S).state is TaskState.RUNNING
    assert not a_workload(status=leaving | {"terminating": 0}).is_ending


@pytest.mark.parametrize(
    ("found", "stopping", "status", "expected"),
    [
        (Ending.DONE, "", over("Complete"), Ending.DONE),
        (Ending.DONE, "", over("Failed"), Ending.DISRUPTED),
        (Ending.CHECKPOINTED, "", over("Failed"), Ending.DISRUPTED),
        (Ending.CHECKPOINTED, "Suspending", over("Failed"), Ending.CHECKPOINTED),
        (Ending.APPLICATION_ERROR, "", over("Failed"), Ending.APPLICATION_ERROR),
    ],
)
def test_what_a_job_that_is_over_says_beside_its_pods(
    found: Ending, stopping: str, status: dict[str, Any], expected: Ending
) -> None:
    """Ranks that saved because somebody else evicted them were disrupted."""
    task = replace(ENDED, stopping=stopping)
    ending, line = settled(task, a_workload(status=status), (found, "reported"))
    assert ending is expected
    assert (line == "reported") == (ending is found)


def test_a_fenced_gang_that_has_told_of_its_end_is_done() -> None:
    """Its node may have lost the cluster, and not us; unless all is done it is lost."""
    pods = [a_pod(0, deletionTimestamp=LATER), a_pod(1, deletionTimestamp=LATER)]
    uids = [pod["metadata"]["uid"] for pod in pods]

    def reported(*statuses: int) -> dict[str, StoredEnd]:
        ends = (End(at_s=NOW_S, exits=(Exit(status=one),)) for one in statuses)
        return {
            uid: StoredEnd(place=place, end=end)
            for place, (uid, end) in enumerate(zip(uids, ends, strict=False))
        }

    lost = (Ending.DISRUPTED, "out of reach")
    assert lost_with_nodes(pods, reported(0, 0), "out of reach") == (Ending.DONE, "")
    assert lost_with_nodes(pods, reported(0), "out of reach") == lost
    assert lost_with_nodes(pods, reported(0, 1), "out of reach") == lost


def test_only_what_is_deleted_is_stopping() -> None:
    """The reason stands in the status before the Job is asked to go."""
    said = saying(ConditionType.SUCCEEDED, Truth.UNKNOWN, "Suspending")
    assert begun(a_workload(), said, NOW_S).stopping == ""
    assert (
        begun(a_workload(deletionTimestamp=LATER), said, NOW_S).stopping == "Suspending"
    )


def test_the_reasons_of_our_own_deletions_are_known() -> None:
    """Any other one is that of a Job which somebody else has deleted."""
    for reason in STOPPED_BY_US:
        for kind in (ConditionType.LAUNCHED, ConditionType.SUCCEEDED):
            assert stop_reason(saying(kind, Truth.UNKNOWN, reason)) == reason
    assert stop_reason(LAUNCHED) == ""
    assert stop_reason(Status()) == ""


@pytest.mark.parametrize(
    ("stopping", "status", "expected"),
    [
        ("", LAUNCHED, (Ending.DISRUPTED, "reported")),
        ("Suspending", LAUNCHED, (Ending.DISRUPTED, "reported")),
        ("DeadlineExceeded", LAUNCHED, (Ending.DISRUPTED, "reported")),
        ("Suspending", Status(), (Ending.CHECKPOINTED, "")),
        (
            "PendingTimeout",
            saying(ConditionType.LAUNCHED, Truth.FALSE, "PendingTimeout", "0/3 nodes"),
            (Ending.NEVER_STARTED, "0/3 nodes"),
        ),
        ("PendingTimeout", Status(), (Ending.NEVER_STARTED, "")),
    ],
)
def test_why_a_gang_was_stopped_says_how_it_ended(
    stopping: str, status: Status, expected: tuple[Ending, str]
) -> None:
    """One that never began had nothing to save, and was not disrupted."""
    task = after(
        replace(ENDED, stopping=stopping), status, (Ending.DISRUPTED, "reported")
    )
    assert (task.ending, task.message) == expected


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({}, True),
        ({"labels": {}}, False),
        ({"labels": None, "annotations": None}, False),
        ({"labels": {TASK_LABEL: "plan"}}, False),
        ({"annotations": {}}, False),
        ({"annotations": {SUBJECT_ANNOTATION: "one"}}, False),
        ({"labels": {TASK_LABEL: "replay"}, "annotations": {}}, False),
        ({"labels": {TASK_LABEL: "replay"}}, True),
    ],
)
def test_a_job_whose_labels_were_changed_is_no_task(
    metadata: dict[str, Any], expected: bool
) -> None:
    """A look must not end over it."""
    assert is_task(a_workload(**metadata)) is expected


def test_pods_belong_to_the_job_of_that_uid() -> None:
    """One of the same name that was deleted has left others behind."""
    assert JobBackend.owns(a_pod(), JOB_UID)
    assert not JobBackend.owns(a_pod(), "another")
    assert not JobBackend.owns(a_pod(ownerReferences=[]), JOB_UID)


def test_our_container_is_the_one_that_has_a_task() -> None:
    """Others of a person may stand before it, with arguments of their own."""
    assert a_workload().container == "trainer"
