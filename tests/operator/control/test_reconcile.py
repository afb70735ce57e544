"""When a plan is looked at again, of which nothing may be heard."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plimsoll_operator.api.status import Condition, ConditionType, Status, Truth
from plimsoll_operator.control.reconcile import (
    ENDING_S,
    LATEST_S,
    REFUSED_S,
    SEARCH_S,
    SOONEST_S,
    decision_on,
    next_look_s,
)
from plimsoll_operator.rules.actions import Action, Solve, StopTraining, WakeAt
from plimsoll_operator.rules.observed_state import (
    ObservedState,
    ObservedTask,
    TaskKind,
    TaskState,
)
from tests.support.cluster_objects import LATER_S, a_plan_object

NOW_S = LATER_S
PENDING = ObservedTask(
    kind=TaskKind.TRAIN, subject="1", state=TaskState.PENDING, since_s=NOW_S
)
RUNNING = replace(PENDING, state=TaskState.RUNNING)
REFUSED = Condition(
    type=ConditionType.ACCEPTED, status=Truth.FALSE, reason="InvalidSpec"
)


@pytest.mark.parametrize(
    ("actions", "tasks", "ahead_s"),
    [
        ((), (), None),
        ((Solve(),), (), SEARCH_S),
        ((WakeAt(at_s=NOW_S + 7),), (), 7.0),
        ((WakeAt(at_s=NOW_S + 7), WakeAt(at_s=NOW_S + 3)), (), 3.0),
        ((), (PENDING,), SOONEST_S),
        ((), (replace(PENDING, since_s=NOW_S - 40),), 10.0),
        ((), (replace(PENDING, since_s=NOW_S - 4000),), LATEST_S),
        ((), (replace(PENDING, since_s=NOW_S + 4000),), SOONEST_S),
        ((), (RUNNING,), None),
        ((StopTraining(attempt=1),), (replace(RUNNING, message="ending"),), ENDING_S),
        ((WakeAt(at_s=NOW_S + 1),), (PENDING,), 1.0),
        ((), (replace(RUNNING, state=TaskState.ENDED, message="died"),), None),
    ],
)
def test_the_next_look_is_the_first_one_that_anybody_wants(
    actions: tuple[Action, ...], tasks: tuple[ObservedTask, ...], ahead_s: float | None
) -> None:
    """Pods that wait tell nobody when they go on: less and less often, but always."""
    found = next_look_s(actions, Status(), ObservedState(tasks=tasks), NOW_S)
    assert found == (None if ahead_s is None else NOW_S + ahead_s)


def test_what_a_spec_names_may_come_later() -> None:
    """No watch tells of claims and tables; a plan that is over is not looked at."""
    refused = Status(conditions=(REFUSED,))
    assert next_look_s((), refused, ObservedState(), NOW_S) == NOW_S + REFUSED_S
    over = Condition(
        type=ConditionType.SUCCEEDED, status=Truth.FALSE, reason="AppError"
    )
    ended = Status(conditions=(REFUSED, over))
    assert next_look_s((), ended, ObservedState(), NOW_S) is None


def test_a_spec_that_cannot_be_read_is_said_and_nothing_is_done() -> None:
    """The schema lets more through than the types do."""
    plan = a_plan_object(training={"globalBatchSize": 0, "steps": 1})
    assert plan.spec is None
    decision = decision_on(plan, ObservedState(), NOW_S)
    said = decision.status.condition(ConditionType.ACCEPTED)
    assert said is not None
    assert (said.status, said.message) == (Truth.FALSE, plan.fault)
    assert "globalBatchSize" in said.message
    assert decision.actions == ()


def test_a_message_of_several_lines_becomes_one() -> None:
    """Webhooks and databases write such; a status holds none."""
    seen = ObservedState(complaint='admission webhook "a" denied:\n\tno\x07 such team')
    decision = decision_on(a_plan_object(), seen, NOW_S)
    said = decision.status.condition(ConditionType.ACCEPTED)
    assert said is not None
    assert said.message == 'admission webhook "a" denied:\\n\\tno\\x07 such team'
