"""Metrics of the operator, for Prometheus.

In: what happened, in words of the domain. Out: a registry that `health` serves. Called
by the loop, the ingest and the Lease; none of them knows a label. All labels are of
closed sets, but for those of single plans (`plan_metrics`), which can be switched off.
The names are those that dashboard and alert rules of the chart ask for.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable
from enum import StrEnum
from functools import partial

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

PREFIX = "trainingplan"
"""Opens the name of each metric; the client puts `_` behind it."""
PASS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
"""Bounds of buckets: a pass is a few requests."""
SOLVER_S = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900)
STAGE_S = (1, 5, 15, 30, 60, 180, 600, 1800, 3600, 14400, 43200, 86400, 604800)
"""From a search of a second to a training of a week."""
FOLLOWED, REFUSED = "followed", "refused"
"""Answers of ranks to a revision."""
MOVE_S = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60)
"""From one small layer to many large ones."""
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
"""Cause that an error counts as; the first that it is one of."""
UNEXPECTED = "Unexpected"
"""Any other: a defect."""
END_RESULTS = {True: "succeeded", False: "failed"}
"""Result that the end of a plan counts as, by whether it trained."""


class Pass(StrEnum):
    """Outcome of one pass over a plan."""

    IDLE = "idle"
    """There was nothing to do."""
    ACTED = "acted"
    FAILED = "failed"


class Stage(StrEnum):
    """Stage in which a plan spends its time."""

    PROFILE = "profile"
    SOLVE = "solve"
    QUEUE = "queue"
    """Its ranks wait for machines."""
    RUN = "run"


class Metrics:
    """Counters of what happened."""

    def __init__(self, *, per_plan: bool) -> None:
        """Begin at zero; `per_plan` reports each plan as well, by its name."""
        self.registry = CollectorRegistry()
        self._plans = PlanMetrics(per_plan=per_plan)
        self.registry.register(self._plans)
        gauge = partial(Gauge, namespace=PREFIX, registry=self.registry)
        counter = partial(Counter, namespace=PREFIX, registry=self.registry)
        histogram = partial(Histogram, namespace=PREFIX, registry=self.registry)
        self._leads = gauge("leader", "1 where this process decides.")
        self._store_up = gauge(
            "store_up",
            "1 where the store has answered the latest time that it was asked.",
        )
        self._heard_s = gauge(
            "watch_last_event_timestamp_seconds",
            "When objects of a kind were last heard of, since 1970.",
            ["kind"],
        )
        self._passes = histogram(
            "reconcile_duration_seconds", "Of one pass.", ["result"], buckets=PASS_S
        )
        self._errors = counter(
            "reconcile_errors", "Passes that failed, by reason.", ["reason"]
        )
        self._stages = histogram(
            "phase_duration_seconds",
            "That a plan was in a stage.",
            ["stage"],
            buckets=STAGE_S,
        )
        self._solver = histogram(
            "solver_duration_seconds", "Of one search.", buckets=SOLVER_S
        )
        self._over = counter("plans", "Plans that came to their end.", ["result"])
        self._replans = counter(
            "oom_replans", "Plans made anew, for one ran out of device memory."
        )
        self._revisions = counter(
            "revisions",
            "Plans that took the place of one that ran, by what ranks made of them.",
            ["state"],
        )
        self._moved_s = histogram(
            "revision_move_duration_seconds",
            "That training waited while layers moved.",
            buckets=MOVE_S,
        )
        self._cached = counter(
            "profile_cache_hits", "Plans whose profile was there before."
        )
        self._off = histogram(
            "memory_prediction_error_ratio",
            "By how much of its predicted peak a rank's device was off.",
            buckets=ERROR_RATIOS,
        )
        self._reports = counter(
            "ingest_requests", "Reports of pods, answered.", ["route", "status"]
        )
        self._begin()

    def _begin(self) -> None:
        """Show versions, and a zero where nothing has happened, for rates need one."""
        build = Info(
            "build", "Plimsoll and Python.", namespace=PREFIX, registry=self.registry
        )
        build.info({"version": __version__, "python": platform.python_version()})
        for reason in (*(reason for _, reason in REASONS), UNEXPECTED):
            self._errors.labels(reason)
        for result in END_RESULTS.values():
            self._over.labels(result)
        for came_of_it in Pass:
            self._passes.labels(came_of_it)
        for stage in Stage:
            self._stages.labels(stage)
        for state in (FOLLOWED, REFUSED):
            self._revisions.labels(state)

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

    def revision_settled(self, moved_s: float | None) -> None:
        """Count a revision that the ranks of a plan have answered; None: refused."""
        if moved_s is None:
            self._revisions.labels(REFUSED).inc()
        else:
            self._revisions.labels(FOLLOWED).inc()
            self._moved_s.observe(moved_s)

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
        self._over.labels(END_RESULTS[is_trained]).inc()

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
    """Reason that an error counts as."""
    return next((word for kind, word in REASONS if isinstance(error, kind)), UNEXPECTED)
