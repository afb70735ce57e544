"""Which plans need nothing, as far as lists of objects show."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from plimsoll_operator.api.status import (
    Condition,
    ConditionType,
    ObservedStatus,
    Status,
    Truth,
)
from plimsoll_operator.backends.launch_backend import Workload
from plimsoll_operator.backends.pods.job import BACKEND
from plimsoll_operator.control.initial_sync import state_from_lists, trimmed
from plimsoll_operator.kube.api import Object
from plimsoll_operator.rules.observed_state import Attempt, Ending, TaskKind
from tests.support.cluster_objects import LATER_S, a_job, a_plan_object, over

OPEN = Attempt(number=1, plan_digest="sha256:1", problem_digest="", recorded_s=0.0)
DONE = replace(OPEN, ending=Ending.DONE)
TRAINS = {"ready": 2}
OVER = Status(
    conditions=(
        Condition(type=ConditionType.SUCCEEDED, status=Truth.TRUE, reason="Trained"),
    ),
    observed_generation=1,
)


def a_gang(status: Object, **metadata: Any) -> Object:
    """Build the Job of the first attempt."""
    return a_job(TaskKind.TRAIN, "1", status=status, **metadata)


REPLAYED = a_job(TaskKind.REPLAY, "a", status=over("Complete"))


@pytest.mark.parametrize(
    ("status", "jobs", "attempts", "suffices"),
    [
        (Status(), [a_gang(TRAINS)], [OPEN], True),
        (Status(), [a_gang({"ready": 1})], [OPEN], False),  # a pod waits
        (Status(), [a_gang(over("Complete"))], [OPEN], False),
        (Status(), [a_gang(TRAINS | {"terminating": 1})], [OPEN], False),
        (Status(), [a_gang(TRAINS, deletionTimestamp="now")], [OPEN], False),
        (Status(), [], [OPEN], False),  # somebody has deleted it, or nobody made it
        (Status(), [a_gang(TRAINS)], [OPEN, replace(OPEN, number=2)], False),
        (Status(), [a_gang(TRAINS), a_job(TaskKind.REPLAY, "a")], [OPEN], False),
        (Status(), [a_gang(TRAINS), REPLAYED], [OPEN], True),
        (Status(), [], [], False),  # not launched
        (Status(), [a_gang(over("Complete"))], [DONE], False),  # to be said
        (OVER, [], [DONE], True),
        (OVER, [a_gang(over("Complete"))], [DONE], True),  # it stays, for its logs
        (OVER, [a_job(TaskKind.REPLAY, "a")], [DONE], False),  # to be cleared away
        (OVER, [], [], True),
    ],
)
def test_a_glance_suffices_where_nobody_else_need_be_asked(
    status: Status, jobs: list[Object], attempts: list[Attempt], suffices: bool
) -> None:
    """Neither pods nor nodes nor the store: all ranks train, or all is over."""
    plan = a_plan_object(status)
    workloads = [Workload(BACKEND, trimmed(job, BACKEND)) for job in jobs]
    found = state_from_lists(plan, workloads, attempts, LATER_S)
    assert (found is not None) is suffices


def test_what_ranks_have_used_stays_told() -> None:
    """The store is not asked, so that nothing new is known of it."""
    told = ObservedStatus(peak_bytes=2**20, error_percent=Decimal(1))
    plan = a_plan_object(replace(OVER, observed=told))
    found = state_from_lists(plan, [], [DONE], LATER_S)
    assert found is not None
    assert found.observed == told


def test_a_plan_that_is_being_deleted_is_no_business_of_a_glance() -> None:
    """A pass forgets it."""
    plan = replace(a_plan_object(OVER), is_deleting=True)
    assert state_from_lists(plan, [], [DONE], LATER_S) is None
