"""What the operator measures of itself, as Prometheus reads it."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from plimsoll_operator.api.status import Condition, ConditionType, Truth
from plimsoll_operator.errors import (
    ApiConflictError,
    ApiDeniedError,
    ApiDownError,
    ApiRefusedError,
    StoreDamagedError,
)
from plimsoll_operator.kube.api import PLANS
from plimsoll_operator.telemetry.metrics import Metrics, reason_of
from plimsoll_operator.telemetry.plan_metrics import MOST_RANKS, RankPeak
from plimsoll_planner.errors import UnreadableError
from plimsoll_planner.version import __version__
from tests.support.metrics_sample import A_PLAN, ALL_OF_IT, a_status, busy


def text_of(metrics: Metrics) -> str:
    """Text that Prometheus would scrape."""
    return generate_latest(metrics.registry).decode()


def samples(metrics: Metrics, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    """All samples of a name by their labels, as Prometheus reads them."""
    return {
        tuple(sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text_of(metrics))
        for sample in family.samples
        if sample.name == f"trainingplan_{name}"
    }


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    """One sample, None where there is none."""
    return samples(metrics, name).get(tuple(sorted(labels.items())))


@pytest.mark.parametrize(
    ("name", "labels", "expected"),
    [
        ("reconcile_duration_seconds_count", {"result": "idle"}, 1),
        ("reconcile_duration_seconds_count", {"result": "failed"}, 1),
        ("reconcile_duration_seconds_sum", {"result": "failed"}, 0.02),
        ("reconcile_errors_total", {"reason": "ApiUnavailable"}, 1),
        ("reconcile_errors_total", {"reason": "StoreUnavailable"}, 0),
        ("phase_duration_seconds_sum", {"stage": "run"}, 5.0),
        ("phase_duration_seconds_count", {"stage": "queue"}, 0),
        ("solver_duration_seconds_sum", {}, 0.3),
        ("profile_cache_hits_total", {}, 1),
        ("oom_replans_total", {}, 1),
        ("memory_prediction_error_ratio_bucket", {"le": "0.02"}, 0),
        ("memory_prediction_error_ratio_bucket", {"le": "0.03"}, 1),
        ("plans_total", {"result": "succeeded"}, 1),
        ("plans_total", {"result": "failed"}, 0),
        ("plan_condition", {"type": "Planned", "status": "True"}, 1),
        ("plan_condition", {"type": "Launched", "status": "True"}, 0),
        ("watch_last_event_timestamp_seconds", {"kind": "jobs"}, 1234.5),
        ("leader", {}, 1),
        ("store_up", {}, 1),
        ("ingest_requests_total", {"route": "/v1/end", "status": "204"}, 1),
        ("gpus", ALL_OF_IT, 4),
        ("capacity_bytes", ALL_OF_IT, 100),
        ("hourly_cost", ALL_OF_IT | {"currency": "USD"}, 12.5),
        ("predicted_peak_memory_bytes", ALL_OF_IT | {"rank": "0"}, 90),
        ("observed_peak_memory_bytes", ALL_OF_IT | {"rank": "0"}, 88),
    ],
)
def test_what_happened_is_told(
    name: str, labels: dict[str, str], expected: float
) -> None:
    """Under the name, the labels and the unit that dashboards ask for."""
    assert value(busy(), name, **labels) == pytest.approx(expected)


def test_the_release_is_told() -> None:
    """With the version as a label."""
    ((labels, number),) = samples(Metrics(per_plan=False), "build_info").items()
    assert (dict(labels)["version"], number) == (__version__, 1.0)


def test_prometheus_finds_nothing_to_say() -> None:
    """About names, units, help texts and types."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("needs promtool: apt-get install prometheus")
    done = subprocess.run(
        [promtool, "check", "metrics"],
        input=text_of(busy()),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (StoreDamagedError("x"), "StoreUnavailable"),
        (ApiConflictError("x"), "Conflict"),
        (ApiDeniedError("x"), "Forbidden"),
        (ApiDownError("x"), "ApiUnavailable"),
        (ApiRefusedError("x", 400), "ApiRefused"),
        (UnreadableError("x"), "InvalidInput"),
        (KeyError("x"), "Unexpected"),
    ],
)
def test_errors_count_by_what_they_mean(error: Exception, reason: str) -> None:
    """And not by their texts, of which there is no end."""
    assert reason_of(error) == reason


def test_a_plan_that_goes_takes_its_series_along() -> None:
    """Of another plan nothing is lost."""
    metrics = busy()
    metrics.plan_seen("team", "other", a_status())
    metrics.ranks_seen("team", "other", [RankPeak(rank=0, predicted_bytes=1)])
    metrics.forget("team", "tiny")
    metrics.forget("team", "never-seen")
    text = text_of(metrics)
    assert 'trainingplan="tiny"' not in text
    assert 'trainingplan="other"' in text
    assert value(metrics, "plan_condition", type="Planned", status="True") == 1


def test_a_plan_counts_once_however_often_it_is_seen() -> None:
    """Where it stands now, and not where it stood."""
    metrics = Metrics(per_plan=True)
    for planned in (Truth.UNKNOWN, Truth.FALSE, Truth.TRUE):
        metrics.plan_seen("team", "tiny", a_status(planned))
    for planned, number in ((Truth.TRUE, 1), (Truth.FALSE, 0), (Truth.UNKNOWN, 0)):
        of = {"type": "Planned", "status": str(planned)}
        assert value(metrics, "plan_condition", **of) == number


def test_a_plan_that_is_not_planned_any_more_takes_no_gpus() -> None:
    """Nor does one without a price cost nothing: it tells no cost."""
    metrics = busy()
    unpriced = replace(A_PLAN, hourly_cost=None, currency="")
    metrics.plan_seen("team", "tiny", a_status(plan=unpriced))
    assert samples(metrics, "hourly_cost") == {}
    assert value(metrics, "gpus", **ALL_OF_IT) == 4
    metrics.plan_seen("team", "tiny", a_status(plan=None))
    assert samples(metrics, "gpus") == {}


def test_of_a_large_gang_the_fullest_ranks_are_told() -> None:
    """By what was predicted or found, whichever is more; others fall away."""
    metrics = Metrics(per_plan=True)
    ranks = [RankPeak(rank=rank, predicted_bytes=10 + rank) for rank in range(1000)]
    ranks[3] = RankPeak(rank=3, predicted_bytes=13, observed_bytes=5000)
    metrics.ranks_seen("team", "tiny", ranks)
    told = samples(metrics, "predicted_peak_memory_bytes")
    found = sorted(int(dict(labels)["rank"]) for labels in told)
    assert found == [3, *range(1000 - MOST_RANKS + 1, 1000)]
    assert len(samples(metrics, "observed_peak_memory_bytes")) == 1
    metrics.ranks_seen("team", "tiny", ranks[:2])
    assert len(samples(metrics, "predicted_peak_memory_bytes")) == 2


def test_single_plans_are_told_only_where_that_is_wanted() -> None:
    """Names of plans are of no closed set; the counts are there anyway."""
    metrics = Metrics(per_plan=False)
    metrics.plan_seen("team", "tiny", a_status())
    metrics.ranks_seen("team", "tiny", [RankPeak(rank=0, predicted_bytes=1)])
    assert "tiny" not in text_of(metrics)
    assert value(metrics, "plan_condition", type="Planned", status="True") == 1


def test_names_that_would_break_the_format_do_not() -> None:
    """They are somebody else's words."""
    metrics = Metrics(per_plan=True)
    name = 'a"} 1\n# HELP \\ x'
    metrics.plan_seen("team", name, a_status())
    assert value(metrics, "gpus", namespace="team", trainingplan=name) == 4


@pytest.mark.parametrize(
    ("fields", "ratio"),
    [
        ({"observed_bytes": 97}, 0.03),
        ({"observed_bytes": 110}, 0.1),
        ({"observed_bytes": None}, None),
        ({"observed_bytes": 5, "predicted_bytes": 0}, None),
    ],
)
def test_an_error_is_a_part_of_the_prediction(
    fields: dict[str, Any], ratio: float | None
) -> None:
    """Too much and too little alike; what nobody predicted is off by nothing."""
    peak = RankPeak(**({"rank": 0, "predicted_bytes": 100} | fields))
    expected = None if ratio is None else pytest.approx(ratio)
    assert peak.error_ratio == expected


def test_two_of_them_share_nothing() -> None:
    """Each counts in a registry of its own."""
    first, second = Metrics(per_plan=True), Metrics(per_plan=True)
    first.heard_of(PLANS.plural, 5.0)
    first.planned_anew()
    assert samples(second, "watch_last_event_timestamp_seconds") == {}
    assert value(second, "oom_replans_total") == 0


@pytest.mark.parametrize(
    ("launched", "succeeded", "expected"),
    [
        (Truth.TRUE, Truth.UNKNOWN, 1),
        (Truth.TRUE, Truth.TRUE, 0),
        (Truth.TRUE, Truth.FALSE, 0),
        (Truth.FALSE, Truth.UNKNOWN, 0),
    ],
)
def test_only_ranks_that_run_take_gpus_and_cost_money(
    launched: Truth, succeeded: Truth, expected: int
) -> None:
    """A dry run has a plan as well, and so has what has trained to its end."""
    metrics = Metrics(per_plan=True)
    said = {ConditionType.LAUNCHED: launched, ConditionType.SUCCEEDED: succeeded}
    conditions = tuple(
        Condition(type=kind, status=truth, reason="Because")
        for kind, truth in said.items()
    )
    metrics.plan_seen("team", "tiny", replace(a_status(), conditions=conditions))
    assert value(metrics, "running", **ALL_OF_IT) == expected
