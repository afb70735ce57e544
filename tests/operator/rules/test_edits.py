"""A spec that changes, or cannot be read any more, while an attempt is open."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from plimsoll_operator.api.spec import TrainingPlanSpec
from plimsoll_operator.api.status import Condition, ConditionType, Status, Truth
from plimsoll_operator.rules.actions import (
    Clear,
    RecordEnding,
    RecordPlan,
    StartTraining,
    StopTraining,
    WakeAt,
)
from plimsoll_operator.rules.attempting import asked_digest_of
from plimsoll_operator.rules.decide import Decision, decide, unreadable
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
from plimsoll_planner.records.document import digest_of
from tests.support.builders import a_solution
from tests.support.specs import a_spec

NOW_S = 10_000.0
OPEN = Attempt(
    number=1,
    plan_digest=digest_of(a_solution().plan),
    asked_digest=asked_digest_of(a_spec()),
    recorded_s=9900.0,
)
PENDING = ObservedTask(
    kind=TaskKind.TRAIN, subject="1", state=TaskState.PENDING, since_s=9990.0
)
RUNNING = replace(PENDING, state=TaskState.RUNNING, started_s=9995.0)
LEFT = replace(PENDING, state=TaskState.ENDED, stopping="Replanning")
OLD = ObservedTask(
    kind=TaskKind.TRAIN,
    subject="0",
    state=TaskState.ENDED,
    since_s=9800.0,
    ending=Ending.DISRUPTED,
)
REPLAY = replace(PENDING, kind=TaskKind.REPLAY, subject="sha256:old")
LAUNCHED = Status(
    conditions=(
        Condition(type=ConditionType.LAUNCHED, status=Truth.TRUE, reason="Started"),
    )
)
TRAINED = Status(
    conditions=(
        Condition(type=ConditionType.SUCCEEDED, status=Truth.TRUE, reason="Trained"),
    ),
    completion_time="2026-11-22T00:00:00Z",
)
EDITS: tuple[dict[str, Any], ...] = (
    {"workload": {"entrypoint": "other:workload"}},
    {"training": {"globalBatchSize": 8, "steps": 61}},
    {"search": {"maxGPUs": 3}},
    {"launch": {"policy": "PlanOnly"}},
)
SAME: tuple[dict[str, Any], ...] = (
    {},
    {"runPolicy": {"pendingSeconds": 77}},
    {"suspend": False},
)
"""The last one says what goes without saying."""


def decided(
    spec: TrainingPlanSpec, *tasks: ObservedTask, status: Status | None = None
) -> Decision:
    """Decide with an open attempt."""
    seen = ObservedState(attempts=(OPEN,), tasks=tasks)
    return decide(spec, status or Status(), seen, generation=2, now_s=NOW_S)


def said(decision: Decision, kind: ConditionType) -> tuple[Truth, str]:
    """Status and reason of a condition."""
    found = decision.status.condition(kind)
    assert found is not None
    return found.status, found.reason


@pytest.mark.parametrize("edit", EDITS, ids=str)
def test_a_gang_that_waits_leaves_for_another_spec(edit: dict[str, Any]) -> None:
    """It is asked to, until it is gone; that counts as no failure."""
    decision = decided(a_spec(**edit), PENDING)
    assert decision.actions == (StopTraining(attempt=1),)
    assert said(decision, ConditionType.LAUNCHED) == (Truth.FALSE, "Replanning")
    left = replace(LEFT, ending=Ending.CHECKPOINTED)
    [record] = decided(a_spec(**edit), left).actions
    assert isinstance(record, RecordEnding)
    assert record.ending is Ending.CHECKPOINTED


@pytest.mark.parametrize("edit", EDITS, ids=str)
def test_a_gang_that_was_never_made_is_not_made_any_more(edit: dict[str, Any]) -> None:
    """The attempt ends at once, without a failure."""
    decision = decided(a_spec(**edit))
    [record] = decision.actions
    assert isinstance(record, RecordEnding)
    assert record.ending is Ending.CHECKPOINTED
    assert "edited before" in record.task.message
    assert said(decision, ConditionType.LAUNCHED) == (Truth.FALSE, "Replanning")


def test_the_next_attempt_is_of_the_spec_as_it_is_now() -> None:
    """Its plan of record says what was asked."""
    spec = a_spec(training={"globalBatchSize": 8, "steps": 61})
    ready = ObservedState(
        profile=ObservedProfile(source="measured", made_s=9000.0, was_cached=False),
        profile_key="request",
        answer=ObservedAnswer(answer=a_solution(), is_certified=True),
        attempts=(replace(OPEN, ending=Ending.CHECKPOINTED, ended_s=NOW_S),),
    )
    [record] = decide(spec, Status(), ready, generation=2, now_s=NOW_S).actions
    assert isinstance(record, RecordPlan)
    assert (record.attempt, record.asked_digest) == (2, asked_digest_of(spec))


@pytest.mark.parametrize("edit", SAME, ids=str)
def test_an_edit_that_changes_no_plan_keeps_the_gang(edit: dict[str, Any]) -> None:
    """Limits of time are those of the spec as it is now."""
    assert decided(a_spec(**edit)).actions == (StartTraining(attempt=1),)
    [wake] = decided(a_spec(**edit), PENDING).actions
    assert isinstance(wake, WakeAt)


def test_ranks_that_began_as_the_spec_was_edited_leave() -> None:
    """Only until they are said to run: from then on the server takes no such edit."""
    spec = a_spec(**EDITS[0])
    decision = decided(spec, RUNNING)
    assert decision.actions == (StopTraining(attempt=1),)
    assert said(decision, ConditionType.SUCCEEDED) == (Truth.UNKNOWN, "Replanning")
    assert decided(spec, RUNNING, status=LAUNCHED).actions == ()


def test_a_new_attempt_has_the_place_to_itself() -> None:
    """Gangs of the attempts before, and replays that nobody asks for, are removed."""
    decision = decided(a_spec(), OLD, REPLAY, RUNNING)
    assert decision.actions == (Clear(task=OLD), Clear(task=REPLAY))


def test_replays_of_plans_that_nobody_asks_for_are_removed() -> None:
    """One that waits for its machine would wait on, and take it in the end."""
    wanted = replace(REPLAY, subject="sha256:new")
    seen = ObservedState(
        profile=ObservedProfile(source="measured", made_s=9000.0, was_cached=False),
        answer=ObservedAnswer(answer=a_solution(), unreplayed="sha256:new"),
        tasks=(REPLAY, wanted),
    )
    decision = decide(a_spec(), Status(), seen, generation=2, now_s=NOW_S)
    assert [one for one in decision.actions if isinstance(one, Clear)] == [
        Clear(task=REPLAY)
    ]


def test_a_plan_that_is_over_stays_so_whatever_its_spec_is() -> None:
    """A newer release may refuse what an older one trained."""
    told = unreadable(TRAINED, "no such field", generation=2, now_s=NOW_S)
    assert (told.actions, told.status) == ((), TRAINED)


def test_ranks_that_run_are_not_denied_for_a_spec_that_cannot_be_read() -> None:
    """Else the server would take edits of what they train."""
    told = unreadable(LAUNCHED, "no such field", generation=2, now_s=NOW_S)
    assert told.status.holds(ConditionType.LAUNCHED)
    assert said(told, ConditionType.ACCEPTED) == (Truth.FALSE, "InvalidSpec")
