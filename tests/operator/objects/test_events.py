"""Which turns of a plan become Events, and what these say."""

from __future__ import annotations

import pytest

from plimsoll_operator.api.status import Condition, ConditionType, Status, Truth
from plimsoll_operator.objects.events import BAD, LONGEST_NOTE, QUIET, event_of, turns
from tests.support.cluster_objects import OWNER

ACCEPTED, LAUNCHED = ConditionType.ACCEPTED, ConditionType.LAUNCHED
SUMMARY = ConditionType.SUCCEEDED


def status_with(
    kind: ConditionType, truth: Truth, reason: str, message: str = ""
) -> Status:
    """Build a status with one condition."""
    one = Condition(type=kind, status=truth, reason=reason, message=message)
    return Status(conditions=(one,))


NOTHING = Status()


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (NOTHING, status_with(ACCEPTED, Truth.TRUE, "Valid"), ["Valid"]),
        (NOTHING, status_with(ACCEPTED, Truth.UNKNOWN, "Profiling"), []),
        (
            status_with(ACCEPTED, Truth.TRUE, "Valid"),
            status_with(ACCEPTED, Truth.TRUE, "Else"),
            [],
        ),
        (
            status_with(ACCEPTED, Truth.UNKNOWN, "Valid"),
            status_with(ACCEPTED, Truth.FALSE, "InvalidSpec"),
            ["InvalidSpec"],
        ),
        (NOTHING, status_with(SUMMARY, Truth.UNKNOWN, "Profiling"), ["Profiling"]),
        (
            status_with(SUMMARY, Truth.UNKNOWN, "Profiling"),
            status_with(SUMMARY, Truth.UNKNOWN, "Solving"),
            ["Solving"],
        ),
        (
            status_with(SUMMARY, Truth.UNKNOWN, "Pending", "0/3 nodes"),
            status_with(SUMMARY, Truth.UNKNOWN, "Pending", "1/3 nodes"),
            [],
        ),
        *((NOTHING, status_with(SUMMARY, Truth.UNKNOWN, quiet), []) for quiet in QUIET),
    ],
)
def test_a_turn_is_told_once(
    before: Status, after: Status, expected: list[str]
) -> None:
    """True and False of each condition, every reason of the summary, and no more."""
    assert [one.reason for one in turns(before, after)] == expected
    assert list(turns(after, after)) == []


def test_the_summary_repeats_nothing_on_the_way() -> None:
    """Its wait was reported by the condition of that; its end is its own."""
    paused = status_with(LAUNCHED, Truth.FALSE, "Suspended").conditions
    after = Status(
        conditions=(
            *paused,
            *status_with(SUMMARY, Truth.UNKNOWN, "Suspended").conditions,
        )
    )
    assert [one.type for one in turns(NOTHING, after)] == [LAUNCHED]
    ended = Status(
        conditions=(*paused, *status_with(SUMMARY, Truth.FALSE, "Suspended").conditions)
    )
    assert [one.type for one in turns(NOTHING, ended)] == [LAUNCHED, SUMMARY]


def test_the_error_that_is_waited_out_is_told() -> None:
    """The summary has it, and its turn is that of the condition before."""
    error = "attempt 1 ended: no room"
    after = Status(
        conditions=(
            *status_with(LAUNCHED, Truth.FALSE, "BackingOff").conditions,
            *status_with(SUMMARY, Truth.UNKNOWN, "BackingOff", error).conditions,
        )
    )
    [told] = turns(NOTHING, after)
    assert (told.type, told.message) == (LAUNCHED, error)


@pytest.mark.parametrize(
    ("kind", "truth", "reason", "expected"),
    [
        (ACCEPTED, Truth.FALSE, "Said", "Warning"),
        (ACCEPTED, Truth.TRUE, "Said", "Normal"),
        (SUMMARY, Truth.FALSE, "Said", "Warning"),
        (LAUNCHED, Truth.FALSE, "Said", "Normal"),
        *((LAUNCHED, Truth.FALSE, reason, "Warning") for reason in BAD),
        (SUMMARY, Truth.UNKNOWN, "DeadlineExceeded", "Warning"),
    ],
)
def test_what_went_wrong_is_a_warning(
    kind: ConditionType, truth: Truth, reason: str, expected: str
) -> None:
    """A gang that is not launched yet has not gone wrong, unless one before it has."""
    [one] = status_with(kind, truth, reason).conditions
    assert event_of(OWNER, one, "a")["type"] == expected


def test_an_event_says_what_and_of_whom() -> None:
    """Its note is never empty, and never longer than the API server takes."""
    [long] = status_with(ACCEPTED, Truth.FALSE, "InvalidSpec", "x" * 1024).conditions
    [bare] = status_with(ACCEPTED, Truth.TRUE, "Valid").conditions
    assert len(event_of(OWNER, long, "a")["note"]) == LONGEST_NOTE
    made = event_of(OWNER, bare, "a")
    assert made["note"] == "What the spec names is there."
    assert made["regarding"]["uid"] == OWNER.uid
    assert (made["reason"], made["action"]) == ("Valid", "Accepted")
