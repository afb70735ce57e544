"""Attempts, written into ConfigMaps and read from their metadata."""

from __future__ import annotations

import base64
import gzip
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_operator.errors import ClusterError, TooLargeError
from plimsoll_operator.names import TASK_LABEL
from plimsoll_operator.objects.bounded import MOST_PARTS
from plimsoll_operator.objects.manifests import MOST_BYTES, packed
from plimsoll_operator.objects.rank_reports import RankReports
from plimsoll_operator.objects.record_maps import (
    ENDING,
    MOST_PLAN_BYTES,
    attempts_in,
    note,
    plan_in,
    plan_map,
    result_map,
)
from plimsoll_operator.rules.actions import RecordPlan
from plimsoll_operator.rules.observed_state import Attempt, Ending
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.plan import Phase
from plimsoll_planner.records.task import Command, Task, TaskKind
from tests.support.builders import DIGEST, a_plan
from tests.support.cluster_objects import CREATED_S, LATER_S, OWNER

PLAN = a_plan()
ASKED = f"sha256:{1:064}"


def recorded(number: int = 1) -> dict[str, Any]:
    """Build the plan of record of an attempt."""
    action = RecordPlan(
        attempt=number, plan=PLAN, problem_digest=DIGEST, asked_digest=ASKED
    )
    return plan_map(OWNER, action, CREATED_S)


def ended(number: int = 1, **fields: Any) -> dict[str, Any]:
    """Build what became of an attempt."""
    defaults: dict[str, Any] = {
        "ending": Ending.DONE,
        "ended_s": LATER_S + 0.1,
        "generation": 3,
    }
    reports = RankReports(observations=())
    return result_map(OWNER, Attempt(number=number, **(defaults | fields)), reports)


def test_an_attempt_is_read_as_it_was_written() -> None:
    """Open until its result is there; times are exact."""
    begun = Attempt(
        number=1,
        plan_digest=digest_of(PLAN),
        problem_digest=DIGEST,
        asked_digest=ASKED,
        recorded_s=CREATED_S,
    )
    assert attempts_in([recorded()]) == (begun,)
    full = ended(
        ending=Ending.OUT_OF_MEMORY,
        message="rank 1: full",
        rank=1,
        phase=Phase.BACKWARD,
    )
    [found] = attempts_in([full, recorded()])
    assert (found.ending, found.ended_s) == (Ending.OUT_OF_MEMORY, LATER_S + 0.1)
    assert (found.generation, found.message) == (3, "rank 1: full")
    assert (found.rank, found.phase) == (1, Phase.BACKWARD)


def test_attempts_are_in_order_whatever_the_list_is() -> None:
    """The tenth comes after the ninth; other maps and lone results do not count."""
    others: list[dict[str, Any]] = [
        {"metadata": {}},
        {"metadata": {"labels": {TASK_LABEL: "replay"}}},
        ended(77),
    ]
    maps = [recorded(10), *others, ended(9), recorded(9)]
    assert [one.number for one in attempts_in(maps)] == [9, 10]


def test_a_plan_comes_out_of_its_map() -> None:
    """Packed, and equal plans make equal maps."""
    assert plan_in(recorded()) == PLAN
    assert recorded()["binaryData"] == recorded()["binaryData"]
    assert recorded()["immutable"] is True


def with_data(data: bytes) -> dict[str, Any]:
    """Build a plan of record of other content."""
    text = base64.b64encode(data).decode()
    return recorded() | {"binaryData": {"plan.json.gz": text}}


@pytest.mark.parametrize(
    "found",
    [
        recorded() | {"binaryData": {}},
        {"metadata": {"name": "tiny-plan-1"}},
        recorded() | {"binaryData": {"plan.json.gz": "!"}},
        with_data(b"no gzip"),
        with_data(gzip.compress(b"{}")),
        with_data(gzip.compress(b"no json")),
        with_data(gzip.compress(b"x" * 100)[:-9]),
        with_data(gzip.compress(b" " * (MOST_PLAN_BYTES + 1) + b"{}")),
    ],
    ids=str,
)
def test_a_map_that_holds_no_plan_is_named(found: dict[str, Any]) -> None:
    """Somebody has made it anew; a bomb is not unpacked."""
    with pytest.raises(ClusterError, match="ConfigMap tiny-plan-1 holds no plan"):
        plan_in(found)


@given(st.binary(max_size=200))
def test_no_content_ends_the_loop(data: bytes) -> None:
    """Whatever the bytes are, the error is one that a pass is tried again for."""
    with pytest.raises(ClusterError):
        plan_in(with_data(data))


def test_what_does_not_go_into_a_map_is_refused_with_its_size() -> None:
    """Before it is sent; what hardly goes in does."""
    noise = Random(0).randbytes(50_000).hex()  # noqa: S311 - bytes that do not compress
    huge = Task(
        child_kind=TaskKind.TRAIN,
        subject="1",
        commands=(Command(words=(noise,)),),
        folder="",
    )
    size = len(packed(plan=huge)["plan.json.gz"])
    fitting = MOST_BYTES // size
    packed(**{f"plan-{number}": huge for number in range(fitting)})
    with pytest.raises(TooLargeError, match="in a ConfigMap, which holds"):
        packed(**{f"plan-{number}": huge for number in range(fitting + 1)})


@pytest.mark.parametrize(
    ("recorded_s", "ending"), [("soon", "done"), ("1.0", "well"), ("1.0", None)]
)
def test_annotations_that_somebody_has_changed_are_named(
    recorded_s: str, ending: str | None
) -> None:
    """They are no fault of ours; the plan waits until they are mended."""
    begun, over = recorded(), ended()
    begun["metadata"]["annotations"][note("recorded")] = recorded_s
    if ending is None:
        del over["metadata"]["annotations"][ENDING]
    else:
        over["metadata"]["annotations"][ENDING] = ending
    with pytest.raises(ClusterError, match="attempt 1: the annotations of its Config"):
        attempts_in([begun, over])


def test_a_map_that_would_fill_the_memory_is_not_read() -> None:
    """A few kilobytes of gzip may hold millions of lists."""
    bomb = b'{"stages": [' + b"[]," * (MOST_PARTS + 1) + b"[]]}"
    with pytest.raises(ClusterError, match=f"more than {MOST_PARTS} lists"):
        plan_in(with_data(gzip.compress(bomb)))
