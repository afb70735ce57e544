"""Every metric of the operator with a value, as a scrape would find it.

Out: a registry to serve. Called by the tests of the dashboard, which ask a real
Prometheus about it. Names and labels are those of docs and dashboards; the operator's
own metrics have to be the same ones.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

GAUGES: dict[str, dict[str, str]] = {
    "watch_last_event_timestamp_seconds": {"kind": "TrainingPlan"},
    "build_info": {"version": "0.1.0"},
    "plan_condition": {"type": "Planned", "status": "True"},
    "leader": {},
    "predicted_peak_memory_bytes": {"rank": "0"},
    "observed_peak_memory_bytes": {"rank": "0"},
    "capacity_bytes": {},
    "gpus": {},
    "hourly_cost": {"currency": "USD"},
}
PLAN_GAUGES = (
    *("predicted_peak_memory_bytes", "observed_peak_memory_bytes"),
    *("capacity_bytes", "gpus", "hourly_cost"),
)
"""They carry the names of their TrainingPlan."""
COUNTERS: dict[str, dict[str, str]] = {
    "reconcile_errors": {"reason": "StoreUnavailable"},
    "plans": {"result": "Trained"},
    "oom_replans": {},
    "profile_cache_hits": {},
}
HISTOGRAMS: dict[str, dict[str, str]] = {
    "reconcile_duration_seconds": {"result": "done"},
    "phase_duration_seconds": {"stage": "profile"},
    "solver_duration_seconds": {},
    "memory_prediction_error_ratio": {},
}
A_PLAN = {"namespace": "research", "trainingplan": "tiny-gpt"}


def a_registry() -> CollectorRegistry:
    """Return a registry that holds each metric once, at 1."""
    registry = CollectorRegistry()
    for name, labels in GAUGES.items():
        said = labels | (A_PLAN if name in PLAN_GAUGES else {})
        gauge = Gauge(f"trainingplan_{name}", name, list(said), registry=registry)
        (gauge.labels(**said) if said else gauge).set(1)
    for name, labels in COUNTERS.items():
        counter = Counter(f"trainingplan_{name}", name, list(labels), registry=registry)
        (counter.labels(**labels) if labels else counter).inc()
    for name, labels in HISTOGRAMS.items():
        histogram = Histogram(
            f"trainingplan_{name}", name, list(labels), registry=registry
        )
        (histogram.labels(**labels) if labels else histogram).observe(1)
    return registry
