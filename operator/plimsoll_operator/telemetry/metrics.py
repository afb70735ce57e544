"""What the operator measures of itself, for Prometheus.

In: what happened, in words of the domain. Out: a registry that `health` serves. Called
by the loop, the ingest and the Lease; none of them knows a label. All labels are of
closed sets, but for those of single plans (`plan_metrics`), which can be switched off.
The names are those that dashboard and alert rules of the chart ask for.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

from plimsoll_operator.api.status import Status
from plimsoll_operator.errors import (
    ApiConflictError,
    ApiDeniedError,
    ApiDownError,
    ClusterError,
    StoreError,
)
from plimsoll_operator.telemetry.plan_metrics import PlanMetrics, RankPeak
from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.version import __version__

PREFIX = "trainingplan_"
PASS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
"""Bounds of buckets: a pass is a few requests."""
SOLVER_S = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900)
STAGE_S = (1, 5, 15, 30, 60, 180, 600, 1800, 3600, 14400, 43200, 86400, 604800)
"""From a search of a second to a training of a week."""
ERROR_RATIOS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5)
"""Predictions are off by some hundredths; a tenth is an alert."""

REASONS: tuple[tuple[type[Exception], str], ...] = (
    (StoreError, "StoreUnavailable"),
    (ApiConflictError, "Conflict"),
    (ApiDeniedError, "Forbidden"),
    (ApiDownError, "ApiUnavailable"),
    (ClusterError, "ApiRefused"),
    (InvalidInputError, "InvalidInput"),
)
"""What an error counts as; the first that it is one of."""
UNEXPECTED = "Unexpected"
"""Any other: a defect."""


class Pass(StrEnum):
    """What came of one pass over a plan."""

    IDLE = "idle"
    """There was nothing to do."""
    ACTED = "acted"
    FAILED = "failed"


class Stage(StrEnum):
    """What a plan spends its time in."""

    PROFILE = "profile"
    SOLVE = "solve"
    QUEUE = "queue"
    """Its ranks wait for machines."""
    RUN = "run"


class Instruments:
    """Makes instruments in a registry of its own; nothing is kept in the process."""

    def __init__(self) -> None:
        """Begin with none."""
        self.registry = CollectorRegistry()

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        """Make what goes up and down."""
        return Gauge(PREFIX + name, text, labels, registry=self.registry)

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        """Make what only goes up; its name gets `_total`."""
        return Counter(PREFIX + name, text, labels, registry=self.registry)

    def histogram(
        self, name: str, text: str, bounds: tuple[float, ...], *labels: str
    ) -> Histogram:
        """Make what is spread over buckets with these upper bounds."""
        return Histogram(
            PREFIX + name, text, labels, registry=self.registry, buckets=bounds
        )


class Metrics:
    """What happened, counted."""

    def __init__(self, *, per_plan: bool) -> None:
        """Begin at zero.

        Args:
            per_plan: tell of each plan as well, with its name.
        """
        make = Instruments()
        self.registry = make.registry
        self._plans = PlanMetrics(per_plan=per_plan)
        self.registry.register(self._plans)
        build = Info(f"{PREFIX}build", "Plimsoll and Python.", registry=self.registry)
        build.info({"version": __version__, "python": platform.python_version()})
        self._leads = make.gauge("leader", "1 where this process decides.")
        self._store_up = make.gauge(
            "store_up",
            "1 where the store has answered the latest time that it was asked.",
        )
        self._heard_s = make.gauge(
            "watch_last_event_timestamp_seconds",
            "When objects of a kind were last heard of, since 1970.",
            "kind",
        )
        self._passes = make.histogram(
            "reconcile_duration_seconds", "Of one pass.", PASS_S, "result"
        )
        self._errors = make.counter(
            "reconcile_errors", "Passes that failed, by reason.", "reason"
        )
        self._stages = make.histogram(
            "phase_duration_seconds", "That a plan was in a stage.", STAGE_S, "stage"
        )
        self._solver = make.histogram(
            "solver_duration_seconds", "Of one search.", SOLVER_S
        )
        self._over = make.counter("plans", "Plans that came to their end.", "result")
        self._replans = make.counter(
            "oom_replans", "Plans made anew, for one ran out of device memory."
        )
        self._cached = make.counter(
            "profile_cache_hits", "Plans whose profile was there before."
        )
        self._off = make.histogram(
            "memory_prediction_error_ratio",
            "By how much of its predicted peak a rank's device was off.",
            ERROR_RATIOS,
        )
        self._reports = make.counter(
            "ingest_requests", "Reports of pods, answered.", "route", "status"
        )
        self._begin()

    def _begin(self) -> None:
        """Show a zero where nothing has happened: rates need one to begin from."""
        for reason in (*(reason for _, reason in REASONS), UNEXPECTED):
            self._errors.labels(reason)
        for is_trained in (True, False):
            self._over.labels(result_of(is_trained))
        for came_of_it in Pass:
            self._passes.labels(came_of_it)
        for stage in Stage:
            self._stages.labels(stage)

    def pass_made(self, came_of_it: Pass, seconds: float) -> None:
        """Count a pass over a plan."""
        self._passes.labels(came_of_it).observe(seconds)

    def pass_failed(self, error: Exception, seconds: float) -> None:
        """Count a pass that an error ended."""
        self.pass_made(Pass.FAILED, seconds)
        self._errors.labels(reason_of(error)).inc()

    def stage_ended(self, stage: Stage, seconds: float) -> None:
        """Count how long a plan was in a stage."""
        self._stages.labels(stage).observe(seconds)

    def solved(self, seconds: float) -> None:
        """Count a search."""
        self._solver.observe(seconds)

    def profile_found(self) -> None:
        """Count a plan whose profile was there before."""
        self._cached.inc()

    def planned_anew(self) -> None:
        """Count a plan that is made anew, for one ran out of device memory."""
        self._replans.inc()

    def attempt_ended(self, ranks: Iterable[RankPeak]) -> None:
        """Count how far off the predictions of an attempt's ranks were."""
        for peak in ranks:
            if peak.error_ratio is not None:
                self._off.observe(peak.error_ratio)

    def plan_over(self, *, is_trained: bool) -> None:
        """Count a plan that came to its end: all that was asked for, or a failure."""
        self._over.labels(result_of(is_trained)).inc()

    def plan_seen(self, namespace: str, name: str, status: Status) -> None:
        """Show where a plan stands."""
        self._plans.see((namespace, name), status.conditions, status.plan)

    def ranks_seen(self, namespace: str, name: str, ranks: Iterable[RankPeak]) -> None:
        """Show the ranks of a plan, in place of those that it had."""
        self._plans.see_ranks((namespace, name), ranks)

    def forget(self, namespace: str, name: str) -> None:
        """Show nothing of a plan any more."""
        self._plans.forget((namespace, name))

    def heard_of(self, kind: str, at_s: float) -> None:
        """Show when the watch of a kind last brought something; since 1970."""
        self._heard_s.labels(kind).set(at_s)

    def leads(self, is_leader: bool) -> None:
        """Show whether this process decides."""
        self._leads.set(is_leader)

    def store_answers(self, is_up: bool) -> None:
        """Show whether the store answers."""
        self._store_up.set(is_up)

    def report_answered(self, route: str, status: int) -> None:
        """Count a report of a pod; `route` is one of those of the ingest."""
        self._reports.labels(route, str(int(status))).inc()


def reason_of(error: Exception) -> str:
    """Return what an error counts as."""
    return next((word for kind, word in REASONS if isinstance(error, kind)), UNEXPECTED)


def result_of(is_trained: bool) -> str:
    """Return what the end of a plan counts as."""
    return "succeeded" if is_trained else "failed"
