"""Times as the API server reads and writes them.

In: its text, or a time of day. Out: seconds since 1970, or text. Called wherever
objects are read or made.
"""

from __future__ import annotations

from datetime import UTC, datetime


def time_s(text: str) -> float:
    """A time of the API server in seconds since 1970."""
    return datetime.fromisoformat(text).astimezone(UTC).timestamp()


def stamp_of(now: datetime) -> str:
    """A time as the API has it, in microseconds."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def utc_now() -> datetime:
    """The time of day, for people."""
    return datetime.now(UTC)
