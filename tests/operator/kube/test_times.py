"""Times as the API server reads and writes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from plimsoll_operator.kube.times import stamp_of, time_s


def test_times_are_written_as_the_server_reads_them() -> None:
    """In UTC, wherever this machine is."""
    east = timezone(timedelta(hours=9))
    local = datetime(2026, 11, 21, 18, 30, 0, 5, tzinfo=east)
    assert stamp_of(local) == "2026-11-21T09:30:00.000005Z"


def test_times_are_those_of_the_server() -> None:
    """With and without parts of a second."""
    assert time_s("1970-01-01T00:01:00Z") == 60.0
    assert time_s("1970-01-01T00:01:00.250000Z") == 60.25


def test_what_is_written_is_read_as_it_was() -> None:
    """To the microsecond."""
    now = datetime(2026, 11, 21, 9, 30, 0, 5, tzinfo=UTC)
    assert time_s(stamp_of(now)) == now.timestamp()
