"""What a pass tells to those who watch."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import cast

import pytest

from plimsoll_operator.api.status import Condition, ConditionType, Status, Truth
from plimsoll_operator.control import reporting
from plimsoll_operator.control.reporting import PassReporter
from plimsoll_operator.kube.api import Api
from plimsoll_operator.objects.events import EventWriter
from plimsoll_operator.telemetry.logs import CONTEXT
from plimsoll_operator.telemetry.metrics import Metrics
from tests.support.cluster_objects import OWNER

TYPE = ConditionType.LAUNCHED


def a_status(truth: Truth, reason: str, message: str = "") -> Status:
    """Build the status of a second attempt, with one condition."""
    said = Condition(type=TYPE, status=truth, reason=reason, message=message)
    return Status(conditions=(said,), attempt=2)


PENDING = a_status(Truth.FALSE, "Pending", "no room")


class Lines(logging.Handler):
    """Keeps what is logged, and what it is about."""

    def __init__(self) -> None:
        """Keep nothing yet."""
        super().__init__()
        self.kept: list[tuple[str, object]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        self.kept.append((record.getMessage(), CONTEXT.get()))


@pytest.fixture
def lines() -> Iterator[Lines]:
    """Lines that are logged meanwhile."""
    kept, logger = Lines(), reporting.logger
    before = logger.level
    logger.addHandler(kept)
    logger.setLevel(logging.INFO)
    yield kept
    logger.removeHandler(kept)
    logger.setLevel(before)


@pytest.mark.parametrize(
    ("before", "after", "reported"),
    [
        (Status(), PENDING, ["Launched False, Pending: no room"]),
        (PENDING, a_status(Truth.TRUE, "Started"), ["Launched True, Started: "]),
        (Status(), a_status(Truth.FALSE, "Starting"), []),
        (PENDING, a_status(Truth.FALSE, "Pending", "no memory"), []),
    ],
)
def test_the_log_tells_the_course_of_a_plan(
    before: Status, after: Status, reported: list[str], lines: Lines
) -> None:
    """A line for each turn that is an Event as well, with its plan and attempt.

    A reason without a message is reported by its meaning.
    """
    events = EventWriter(cast("Api", None), "a")
    PassReporter(metrics=Metrics(per_plan=False), events=events).reported(
        OWNER, before, after
    )
    place = {"namespace": OWNER.namespace, "plan": OWNER.name, "attempt": 2}
    assert [about for _, about in lines.kept] == [place] * len(reported)
    for (line, _), begins in zip(lines.kept, reported, strict=True):
        assert line.startswith(begins)
        assert not line.endswith(": ")
