"""How many times the memory of the host an attempt asks for."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll_operator.api.status import ConditionType, Status
from plimsoll_operator.rules.actions import StartTraining
from plimsoll_operator.rules.attempting import asked_digest_of
from plimsoll_operator.rules.decide import Decision, decide
from plimsoll_operator.rules.observed_state import (
    Attempt,
    Ending,
    ObservedState,
    ObservedTask,
    TaskKind,
    TaskState,
)
from tests.support.specs import a_spec

FULL = Ending.HOST_OUT_OF_MEMORY
NOTE = "with 16384Mi of memory for each GPU"


def decided(
    endings: list[Ending],
    *tasks: ObservedTask,
    before: dict[str, Any] | None = None,
    **spec: Any,
) -> Decision:
    """Decide in an attempt that follows others.

    Args:
        endings: of the attempts before.
        tasks: that are there.
        before: parts of the spec that those were started for.
        spec: parts of the spec now.
    """
    now = a_spec(**spec)
    old = asked_digest_of(a_spec(**(before or {})))
    attempts = [
        Attempt(number=number, asked_digest=old, ending=ending, ended_s=9000.0)
        for number, ending in enumerate(endings, 1)
    ]
    number = len(attempts) + 1
    latest = Attempt(number=number, asked_digest=asked_digest_of(now))
    seen = ObservedState(attempts=(*attempts, latest), tasks=tasks)
    return decide(now, Status(), seen, generation=9, now_s=10_000.0)


@pytest.mark.parametrize(
    ("endings", "spec", "factor"),
    [
        ([], {}, 1),
        ([Ending.DISRUPTED, Ending.APPLICATION_ERROR], {}, 1),
        ([FULL], {}, 2),
        ([FULL, Ending.DISRUPTED, FULL], {}, 4),
        ([FULL] * 3, {}, 4),
        ([FULL] * 3, {"runPolicy": {"hostMemoryDoublings": 3}}, 8),
        ([FULL] * 3, {"runPolicy": {"hostMemoryDoublings": 0}}, 1),
    ],
)
def test_each_time_it_was_too_little_it_is_doubled(
    endings: list[Ending], spec: dict[str, Any], factor: int
) -> None:
    """As often as the spec allows; also where a pause or another end came between."""
    [start] = decided(endings, **spec).actions
    number = len(endings) + 1
    assert start == StartTraining(attempt=number, memory_factor=factor)


def test_what_a_person_asks_for_now_is_tried_first() -> None:
    """An edit that states another memory begins again with that."""
    more: dict[str, Any] = {"launch": {"perGPU": {"memory": "64Gi"}}}
    [start] = decided([FULL], **more).actions
    assert start == StartTraining(attempt=2, memory_factor=1)
    [start] = decided([FULL], before=more, **more).actions
    assert start == StartTraining(attempt=2, memory_factor=2)


@pytest.mark.parametrize(
    ("state", "message", "said"),
    [
        (TaskState.PENDING, "no node has room", f"no node has room; {NOTE}"),
        (TaskState.RUNNING, "", NOTE),
    ],
)
def test_what_its_pods_ask_for_is_said_of_a_gang(
    state: TaskState, message: str, said: str
) -> None:
    """As it was written down when they were made; also while they wait."""
    gang = ObservedTask(
        kind=TaskKind.TRAIN,
        subject="2",
        state=state,
        since_s=9990.0,
        message=message,
        note=NOTE,
    )
    launched = decided([FULL], gang).status.condition(ConditionType.LAUNCHED)
    assert launched is not None
    assert launched.message == said
