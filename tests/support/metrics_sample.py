"""The operator's metrics, of which each has seen something.

Out: metrics as a scrape would find them. Called by the tests of the metrics themselves,
of the dashboard, which ask a real Prometheus about them, and of the alert rules.
"""

from __future__ import annotations

from decimal import Decimal

from prometheus_client import CollectorRegistry

from plimsoll_operator.api.status import (
    Condition,
    ConditionType,
    PlanStatus,
    Status,
    Truth,
)
from plimsoll_operator.errors import ApiDownError
from plimsoll_operator.kube.api import JOBS, PLANS
from plimsoll_operator.telemetry.metrics import Metrics, Pass, Stage
from plimsoll_operator.telemetry.plan_metrics import RankPeak

A_PLAN = PlanStatus(
    digest="sha256:1",
    product="H200",
    gpus=4,
    nodes=1,
    pipeline=2,
    data=2,
    micro_batch=1,
    schedule="1F1B",
    predicted_peak_bytes=90,
    capacity_bytes=100,
    hourly_cost=Decimal("12.50"),
    currency="USD",
)
ALL_OF_IT = {"namespace": "team", "trainingplan": "tiny"}


def a_status(planned: Truth = Truth.TRUE, plan: PlanStatus | None = A_PLAN) -> Status:
    """Build the status of a plan that was accepted."""
    pairs = ((ConditionType.ACCEPTED, Truth.TRUE), (ConditionType.PLANNED, planned))
    conditions = tuple(
        Condition(type=kind, status=status, reason="Because") for kind, status in pairs
    )
    return Status(conditions=conditions, plan=plan)


def busy() -> Metrics:
    """Metrics of which each has seen something."""
    metrics = Metrics(per_plan=True)
    metrics.pass_made(Pass.IDLE, 0.01)
    metrics.pass_failed(ApiDownError("away"), 0.02)
    metrics.stage_ended(Stage.RUN, 5.0)
    metrics.solved(0.3)
    metrics.profile_found()
    metrics.planned_anew()
    metrics.attempt_ended([RankPeak(rank=0, predicted_bytes=100, observed_bytes=97)])
    metrics.plan_over(is_trained=True)
    metrics.plan_seen("team", "tiny", a_status())
    ranks = [RankPeak(rank=0, predicted_bytes=90, observed_bytes=88)]
    metrics.ranks_seen("team", "tiny", ranks)
    metrics.heard_of(PLANS.plural, 1233.5)
    metrics.heard_of(JOBS.plural, 1234.5)
    metrics.leads(is_leader=True)
    metrics.store_answers(is_up=True)
    metrics.report_answered("/v1/end", 204)
    return metrics


def a_registry() -> CollectorRegistry:
    """All of them, to serve."""
    return busy().registry
