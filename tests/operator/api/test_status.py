"""Conditions, and when they are said to have changed."""

from __future__ import annotations

import pytest

from plimsoll_operator.api.status import Condition, ConditionType, Status, Truth
from plimsoll_planner.errors import InvalidFieldError

EARLY, LATE = "2026-11-21T09:30:00Z", "2026-11-21T09:31:00Z"


def profiled(status: Truth, reason: str) -> Condition:
    """Say something of the profile."""
    return Condition(type=ConditionType.PROFILED, status=status, reason=reason)


def test_a_transition_is_a_change_of_truth() -> None:
    """Another reason is no transition; another truth is."""
    status = Status().with_condition(profiled(Truth.UNKNOWN, "Profiling"), EARLY)
    status = status.with_condition(profiled(Truth.UNKNOWN, "ProfilePending"), LATE)
    [found] = status.conditions
    assert (found.reason, found.last_transition_time) == ("ProfilePending", EARLY)
    status = status.with_condition(profiled(Truth.TRUE, "Measured"), LATE)
    assert status.conditions[0].last_transition_time == LATE
    assert status.holds(ConditionType.PROFILED)


def test_conditions_stand_in_the_order_in_which_they_come_true() -> None:
    """Whatever was said first."""
    said = Condition(type=ConditionType.ACCEPTED, status=Truth.TRUE, reason="Valid")
    status = (
        Status()
        .with_condition(profiled(Truth.TRUE, "Cached"), EARLY)
        .with_condition(said, LATE)
    )
    assert [c.type for c in status.conditions] == ["Accepted", "Profiled"]


def test_a_plan_is_over_when_it_succeeded_or_did_not() -> None:
    """Unknown is still running, and nothing said is not begun."""
    assert not Status().is_over
    for truth in Truth:
        said = Condition(type=ConditionType.SUCCEEDED, status=truth, reason="Any")
        status = Status().with_condition(said, EARLY)
        assert status.is_over is (truth is not Truth.UNKNOWN)


def test_a_status_is_read_as_it_is_written() -> None:
    """In camel case, as the API server keeps it."""
    status = Status(attempt=2).with_condition(profiled(Truth.TRUE, "Cached"), EARLY)
    written = status.to_json()
    assert Status.from_json(written, "status") == status
    assert written["conditions"] == [
        {
            "type": "Profiled",
            "status": "True",
            "reason": "Cached",
            "message": "",
            "observedGeneration": 1,
            "lastTransitionTime": EARLY,
        }
    ]


def test_a_condition_stands_once() -> None:
    """Two of a type would contradict each other."""
    said = profiled(Truth.TRUE, "Cached")
    with pytest.raises(InvalidFieldError, match="entries that occur once"):
        Status(conditions=(said, said))
