"""Alerts fire for what they are about and for nothing else, as promtool judges."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.chart import CHART, MONITORING, of_kind, one, rendered
from tests.support.metrics_sample import a_registry

pytestmark = pytest.mark.control_plane

RULES = CHART / "files" / "rules.yaml"
FIRING = 'count by (alertname) (ALERTS{alertstate="firing"})'
LAST_MIN = 120
RATIO = "trainingplan_memory_prediction_error_ratio_bucket"
ERRORS = "trainingplan_reconcile_errors_total"
WATCH = 'trainingplan_watch_last_event_timestamp_seconds{kind="trainingplans"}'
STAGES = 'trainingplan_phase_duration_seconds_count{stage="run"}'
LEADER = 'trainingplan_leader{pod="a"}'
STORE = 'trainingplan_store_up{pod="a"}'


def growing(per_minute: float) -> str:
    """Two hours of a counter, a value a minute."""
    return f"0+{per_minute:g}x{LAST_MIN}"


def steady(value: float) -> str:
    """Two hours of a gauge."""
    return f"{value:g}+0x{LAST_MIN}"


HEALTHY = {
    'trainingplan_build_info{pod="a"}': steady(1),
    LEADER: steady(1),
    STORE: steady(1),
    'trainingplan_store_up{pod="b"}': steady(1),
    'trainingplan_leader{pod="b"}': steady(0),
    WATCH: growing(60),
    WATCH.replace("trainingplans", "jobs"): steady(0),
    STAGES: growing(0.1),
    ERRORS + '{reason="Conflict"}': growing(3),
    'trainingplan_reconcile_duration_seconds_count{result="acted"}': growing(60),
    RATIO + '{le="0.05"}': growing(1),
    RATIO + '{le="0.1"}': growing(1),
    RATIO + '{le="0.5"}': growing(1),
    RATIO + '{le="+Inf"}': growing(1),
    "trainingplan_oom_replans_total": growing(0.02),
}
"""An operator with a standby: one pass a second, of which one in twenty is in vain;
plans that are planned alone, so that nothing is heard of Jobs."""
OF_PROMETHEUS = ("pod",)
"""Labels that a scrape adds."""
FAULTS: dict[str, dict[str, str] | None] = {
    "PlimsollOperatorDown": None,
    "PlimsollNoLeader": {LEADER: steady(0)},
    "PlimsollWatchStale": {WATCH: steady(0)},
    "PlimsollReconcileErrors": {ERRORS + '{reason="ApiUnavailable"}': growing(6)},
    "PlimsollStoreDown": {STORE: steady(0)},
    "PlimsollPredictionsOff": {
        RATIO + '{le="0.05"}': growing(0.5),
        RATIO + '{le="0.1"}': growing(0.5),
    },
    "PlimsollOutOfMemoryAgain": {"trainingplan_oom_replans_total": growing(0.1)},
}


@pytest.fixture
def promtool() -> str:
    """Prometheus' own judge of rules."""
    program = shutil.which("promtool")
    if not program:
        pytest.skip("promtool is missing: run `sudo make test`, which installs it")
    return program


def judge(promtool: str, folder: Path, series: dict[str, str], firing: set[str]) -> str:
    """Differences when these series should make these alerts fire."""
    samples = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in firing]
    question = {"expr": FIRING, "eval_time": f"{LAST_MIN}m", "exp_samples": samples}
    test: dict[str, Any] = {
        "interval": "1m",
        "input_series": [{"series": n, "values": v} for n, v in series.items()],
        "promql_expr_test": [question],
    }
    file = folder / "test.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "tests": [test]}))
    done = subprocess.run(
        [promtool, "test", "rules", file], capture_output=True, text=True, check=False
    )
    return done.stderr if done.returncode else ""


def test_prometheus_takes_the_rules(promtool: str) -> None:
    """Expressions, templates and durations, all of them."""
    done = subprocess.run(
        [promtool, "check", "rules", "--lint=all", "--lint-fatal", RULES],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"{len(FAULTS)} rules found" in done.stdout


def test_nothing_fires_while_all_is_well(promtool: str, tmp_path: Path) -> None:
    """Some passes fail in every cluster, and some plan runs out of memory."""
    assert judge(promtool, tmp_path, HEALTHY, set()) == ""


def test_nothing_fires_where_nothing_happens(promtool: str, tmp_path: Path) -> None:
    """A watch that is silent all day is not deaf: nobody has changed a plan."""
    quiet = HEALTHY | {WATCH: steady(0), STAGES: steady(5)}
    assert judge(promtool, tmp_path, quiet, set()) == ""


def test_the_series_of_these_tests_are_those_of_the_operator() -> None:
    """Name, labels and values of labels: else rules would be held to other words."""
    faults = {name: "" for series in FAULTS.values() for name in series or ()}
    exported = {
        (sample.name, key, value)
        for family in a_registry().collect()
        for sample in family.samples
        for key, value in (*sample.labels.items(), ("", ""))
    }
    for series in HEALTHY | faults:
        name, _, labels = series.partition("{")
        assert (name, "", "") in exported, series
        for key, value in re.findall(r'(\w+)="([^"]*)"', labels):
            if key not in OF_PROMETHEUS:
                assert (name, key, value) in exported, series


@pytest.mark.parametrize("alert", FAULTS)
def test_an_alert_fires_for_its_fault_alone(
    alert: str, promtool: str, tmp_path: Path
) -> None:
    """No other fires beside it: the first look shows what is the matter."""
    fault = FAULTS[alert]
    series = {} if fault is None else HEALTHY | fault
    assert judge(promtool, tmp_path, series, {alert}) == ""


def test_every_alert_says_what_it_means() -> None:
    """How bad it is, what was seen, and what to do."""
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    assert {rule["alert"] for rule in group["rules"]} == set(FAULTS)
    for rule in group["rules"]:
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert set(rule["annotations"]) == {"summary", "description"}


def test_the_rules_come_where_the_cluster_knows_the_kind() -> None:
    """As they are in the file; with the labels that a Prometheus selects by."""
    settings = {
        "enabled": True,
        "namespace": "other",
        "additionalLabels": {"release": "p"},
    }
    values = {"metrics": {"prometheusRule": settings}}
    assert of_kind(rendered(values), "PrometheusRule") == {}
    assert of_kind(rendered(apis=[MONITORING]), "PrometheusRule") == {}
    rule = one(rendered(values, apis=[MONITORING]), "PrometheusRule")
    assert rule["spec"] == yaml.safe_load(RULES.read_text())
    assert rule["metadata"]["namespace"] == "other"
    assert rule["metadata"]["labels"]["release"] == "p"


def test_the_monitor_scrapes_the_service_of_metrics() -> None:
    """Labels of a metric stay: `namespace` is that of a TrainingPlan."""
    settings = {
        "enabled": True,
        "interval": "10s",
        "additionalLabels": {"release": "p"},
    }
    values = {"metrics": {"serviceMonitor": settings}}
    assert of_kind(rendered(values), "ServiceMonitor") == {}
    objects = rendered(values, apis=[MONITORING])
    monitor = one(objects, "ServiceMonitor")
    assert monitor["metadata"]["labels"]["release"] == "p"
    assert monitor["spec"]["endpoints"] == [
        {"port": "http", "path": "/metrics", "interval": "10s", "honorLabels": True}
    ]
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    services = of_kind(objects, "Service")
    selected = [
        name
        for name, service in services.items()
        if wanted <= service["metadata"]["labels"].items()
    ]
    assert selected == ["plimsoll-metrics"]
