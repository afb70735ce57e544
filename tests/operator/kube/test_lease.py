"""What a Lease says, and who may take it; its network is tested on a real server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from plimsoll_operator.kube.lease import (
    Record,
    Seat,
    Timing,
    claimed,
    is_free,
    released,
    watched,
)

SEAT = Seat(namespace="plimsoll", name="decider", holder="us")
TIMING = Timing()
NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
THEIRS = {
    "holderIdentity": "them",
    "leaseDurationSeconds": 15,
    "acquireTime": "2026-11-21T09:00:00.000000Z",
    "renewTime": "2026-11-21T09:29:59.000000Z",
    "leaseTransitions": 3,
}


def a_lease(**spec: Any) -> dict[str, Any]:
    """Build a Lease of theirs."""
    return {"metadata": {"name": "decider", "resourceVersion": "7"}, "spec": spec}


def test_a_record_ages_from_when_it_was_seen_to_change() -> None:
    """By our own clock; the times in it, of whatever clock, count for nothing."""
    first = watched(None, a_lease(**THEIRS), 100.0)
    assert first.since_s == 100.0
    assert watched(first, a_lease(**THEIRS), 110.0) is first
    later = THEIRS | {"renewTime": "1999-01-01T00:00:00.000000Z"}
    assert watched(first, a_lease(**later), 110.0).since_s == 110.0


@pytest.mark.parametrize(
    ("spec", "age_s", "expected"),
    [
        (THEIRS, 14.9, False),
        (THEIRS, 15.0, True),
        (THEIRS | {"leaseDurationSeconds": 60}, 59.0, False),
        (THEIRS | {"leaseDurationSeconds": None}, 14.9, False),
        (THEIRS | {"leaseDurationSeconds": None}, 15.0, True),
        (THEIRS | {"holderIdentity": ""}, 0.0, True),
        (THEIRS | {"holderIdentity": None}, 0.0, True),
        (THEIRS | {"holderIdentity": "us"}, 0.0, True),
        ({}, 0.0, True),
    ],
)
def test_a_lease_is_free_once_its_promise_is_over(
    spec: dict[str, Any], age_s: float, expected: bool
) -> None:
    """That of its holder, given back, or already in our name."""
    record = Record(spec=spec, since_s=100.0)
    assert is_free(record, SEAT, TIMING, 100.0 + age_s) is expected


def test_taking_a_lease_counts_the_transition() -> None:
    """And leaves the version and what else is in it, so that only one succeeds."""
    found = claimed(a_lease(**THEIRS, strategy="x"), SEAT, TIMING, NOW)
    assert found == a_lease(
        holderIdentity="us",
        leaseDurationSeconds=15,
        acquireTime="2026-11-21T09:30:00.000000Z",
        renewTime="2026-11-21T09:30:00.000000Z",
        leaseTransitions=4,
        strategy="x",
    )


def test_renewing_a_lease_changes_its_time_alone() -> None:
    """Since when it is ours stays."""
    mine = claimed(a_lease(**THEIRS), SEAT, TIMING, NOW)
    again = claimed(mine, SEAT, TIMING, NOW + timedelta(seconds=2))
    changed = {"renewTime": "2026-11-21T09:30:02.000000Z"}
    assert again["spec"] == mine["spec"] | changed


def test_a_lease_that_is_made_has_no_transitions() -> None:
    """Nobody had it before."""
    assert claimed({}, SEAT, TIMING, NOW)["spec"]["leaseTransitions"] == 0


def test_a_lease_that_is_given_back_is_free() -> None:
    """For everybody, at once."""
    given = released(claimed(a_lease(**THEIRS), SEAT, TIMING, NOW), NOW)
    other = Seat(namespace="plimsoll", name="decider", holder="other")
    assert is_free(watched(None, given, 0.0), other, TIMING, 0.0)
    assert given["spec"]["leaseTransitions"] == 4


@pytest.mark.parametrize(
    ("duration_s", "renew_deadline_s", "retry_s"),
    [(10, 10.0, 2.0), (15, 2.0, 2.0), (15, 10.0, 0.0)],
)
def test_a_holder_ends_before_another_begins(
    duration_s: int, renew_deadline_s: float, retry_s: float
) -> None:
    """Other times are refused."""
    with pytest.raises(ValueError, match="not duration > deadline > retry > 0"):
        Timing(
            duration_s=duration_s, renew_deadline_s=renew_deadline_s, retry_s=retry_s
        )
