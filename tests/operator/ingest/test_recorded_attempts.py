"""What an attempt was planned to be, and whether it is over."""

from __future__ import annotations

import asyncio
import base64
import gzip
from typing import Any

import pytest

from plimsoll_operator.errors import RefusedReportError
from plimsoll_operator.ingest.recorded_attempts import Recorded, RecordedAttempts
from plimsoll_operator.kube.api import CONFIG_MAPS
from plimsoll_planner.records.document import digest_of
from tests.support.builders import a_plan
from tests.support.reporting_pods import (
    ClusterInMemory,
    a_config_map,
    a_plan_of_record,
    a_reporter,
    a_result,
)


def planned(cluster: ClusterInMemory) -> Recorded:
    """Plan of record of the first attempt."""
    return asyncio.run(RecordedAttempts(cluster).plan(a_reporter()))


def packed(content: bytes) -> dict[str, Any]:
    """Content as a ConfigMap has it."""
    return {"plan.json.gz": base64.b64encode(gzip.compress(content)).decode()}


def test_a_plan_of_record_says_what_may_be_reported() -> None:
    """Its digest, its pods, and the largest predicted peak of each rank."""
    found, plan = planned(ClusterInMemory()), a_plan()
    assert (found.digest, found.gpus_per_pod) == (digest_of(plan), 4)
    assert found.peaks == tuple(plan.stage_of(rank).peak() for rank in range(4))


def test_a_plan_of_record_is_read_once() -> None:
    """It never changes: a gang costs one look."""
    cluster = ClusterInMemory()

    async def work() -> None:
        attempts = RecordedAttempts(cluster, clock=lambda: 0.0)
        for _ in range(3):
            await asyncio.gather(*(attempts.plan(a_reporter()) for _ in range(9)))

    asyncio.run(work())
    assert cluster.asked[CONFIG_MAPS.plural] == 1


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"plan_uid": "another"}, "it was deleted"),
        ({}, "there is no plan.json.gz in it"),
        ({"binaryData": {}}, "there is no plan.json.gz in it"),
        ({"binaryData": {"plan.json.gz": "!"}}, "base64"),
        ({"binaryData": {"plan.json.gz": "AAAA"}}, "no gzip"),
        ({"binaryData": packed(b"{}")}, "HybridPlan.kind"),
        ({"binaryData": packed(b" " * (65 * 2**20))}, "no whole gzip of at most"),
    ],
)
def test_without_a_plan_of_record_nothing_can_be_told(
    parts: dict[str, Any], said: str
) -> None:
    """Gone, of another plan, or damaged: a conflict that says so."""
    cluster = ClusterInMemory()
    cluster.put(CONFIG_MAPS, a_config_map("plan", **parts))
    with pytest.raises(RefusedReportError, match="attempt 1 of tiny has no plan") as no:
        planned(cluster)
    assert no.value.status == 409
    assert said in str(no.value)


def test_the_plan_of_another_owner_is_none() -> None:
    """A plan that was deleted leaves its ConfigMaps for a moment."""
    cluster = ClusterInMemory()
    cluster.put(CONFIG_MAPS, a_plan_of_record(plan_uid="earlier"))
    with pytest.raises(RefusedReportError, match="it was deleted"):
        planned(cluster)


def test_an_attempt_is_over_once_its_end_is_decided() -> None:
    """A result without an end, or of another plan, decides nothing."""
    cluster = ClusterInMemory()
    now_s = 0.0
    attempts = RecordedAttempts(cluster, clock=lambda: now_s)

    async def work() -> None:
        nonlocal now_s
        earlier = a_result("disrupted", plan_uid="earlier")
        for result in (None, a_result(""), earlier):
            if result:
                cluster.put(CONFIG_MAPS, result)
            await attempts.require_open(a_reporter())
            now_s += 10
        cluster.put(CONFIG_MAPS, a_result("disrupted"))
        with pytest.raises(RefusedReportError, match="it ended as disrupted") as no:
            await attempts.require_open(a_reporter())
        assert no.value.status == 409

    asyncio.run(work())
