"""Metrics of each TrainingPlan, made anew at every scrape of Prometheus.

In: the plans that were seen last. Out: how many stand where, and, where it is switched
on, a few numbers of each. Held by `metrics`. Nothing has to be taken back when a plan
goes: what is not here any more is not reported any more.

A plan has at most so many series: of a large worker group the fullest ranks only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from heapq import nlargest

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from plimsoll_operator.api.status import Condition, ConditionType, PlanStatus, Truth
from plimsoll_operator.names import PlanKey

MOST_RANKS = 64
"""Of a plan; those that are the fullest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankPeak:
    """A rank's device memory, predicted and found."""

    rank: int
    predicted_bytes: int
    """Expected."""
    observed_bytes: int | None = None
    """None before its first step."""

    @property
    def error_ratio(self) -> float | None:
        """By how much of the prediction it was off; None where that is not known."""
        if self.observed_bytes is None or not self.predicted_bytes:
            return None
        return abs(self.observed_bytes - self.predicted_bytes) / self.predicted_bytes


def fullness(peak: RankPeak) -> tuple[int, int]:
    """Order ranks by how full they are; of equal ones the first is the fuller."""
    return max(peak.predicted_bytes, peak.observed_bytes or 0), -peak.rank


def runs(conditions: Iterable[tuple[ConditionType, Truth]]) -> bool:
    """Whether the ranks of a plan run, by its conditions."""
    truths = dict(conditions)
    has_begun = truths.get(ConditionType.LAUNCHED) is Truth.TRUE
    return has_begun and truths.get(ConditionType.SUCCEEDED) is Truth.UNKNOWN


class PlanMetrics(Collector):
    """The plans that were seen last."""

    def __init__(self, *, per_plan: bool) -> None:
        """Begin without plans; `per_plan` reports each, not only how many."""
        self._per_plan = per_plan
        self._conditions: dict[PlanKey, tuple[tuple[ConditionType, Truth], ...]] = {}
        self._plans: dict[PlanKey, PlanStatus] = {}
        self._ranks: dict[PlanKey, tuple[RankPeak, ...]] = {}

    def see(
        self, key: PlanKey, conditions: Iterable[Condition], plan: PlanStatus | None
    ) -> None:
        """Take in where a plan stands."""
        self._conditions[key] = tuple((one.type, one.status) for one in conditions)
        if plan is None:
            self._plans.pop(key, None)
        elif self._per_plan:
            self._plans[key] = plan

    def see_ranks(self, key: PlanKey, ranks: Iterable[RankPeak]) -> None:
        """Take in all ranks of a plan, in place of those that it had."""
        if self._per_plan:
            self._ranks[key] = tuple(nlargest(MOST_RANKS, ranks, key=fullness))

    def forget(self, key: PlanKey) -> None:
        """Let go of a plan."""
        for known in (self._conditions, self._plans, self._ranks):
            known.pop(key, None)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield all families; called in a thread, while plans come and go."""
        yield self._standing()
        if self._per_plan:
            yield from self._of_plans()
            yield from self._of_ranks()

    def _standing(self) -> GaugeMetricFamily:
        """Number of plans in each state; also where there is none."""
        family = GaugeMetricFamily(
            "trainingplan_plan_condition",
            "Plans whose condition of this type has this status.",
            labels=("type", "status"),
        )
        counts = Counter(
            one for held in list(self._conditions.values()) for one in held
        )
        for kind in ConditionType:
            for truth in Truth:
                family.add_metric((kind, truth), counts[kind, truth])
        return family

    def _of_plans(self) -> Iterator[GaugeMetricFamily]:
        """Yield the numbers that a plan has one of."""
        labels = ("namespace", "trainingplan")
        gauge = partial(GaugeMetricFamily, labels=labels)
        gpus = gauge("trainingplan_gpus", "GPUs that the plan takes.")
        capacity = gauge(
            "trainingplan_capacity_bytes",
            "Memory of each of its devices, less the headroom.",
        )
        bound = gauge(
            "trainingplan_peak_memory_upper_bound_bytes",
            "Most that a rank may use by the plan, which was chosen by it.",
        )
        running = gauge("trainingplan_running", "1 while its ranks run, else 0.")
        revision = gauge("trainingplan_revision", "That its ranks run by, from 1 on.")
        cost = GaugeMetricFamily(
            "trainingplan_hourly_cost",
            "Price of its nodes for an hour, in the currency of the label.",
            labels=(*labels, "currency"),
        )
        for key, plan in list(self._plans.items()):
            gpus.add_metric(key, plan.gpus)
            revision.add_metric(key, plan.revision)
            capacity.add_metric(key, plan.capacity_bytes)
            bound.add_metric(key, plan.predicted_peak_bytes)
            running.add_metric(key, float(runs(self._conditions.get(key, ()))))
            if plan.hourly_cost is not None:
                cost.add_metric((*key, plan.currency), float(plan.hourly_cost))
        yield from (gpus, capacity, bound, running, revision, cost)

    def _of_ranks(self) -> Iterator[GaugeMetricFamily]:
        """Yield the numbers that each rank has one of."""
        labels = ("namespace", "trainingplan", "rank")
        predicted = GaugeMetricFamily(
            "trainingplan_predicted_peak_memory_bytes",
            "Expected peak of the rank's device memory.",
            labels=labels,
        )
        observed = GaugeMetricFamily(
            "trainingplan_observed_peak_memory_bytes",
            "Peak of the rank's device memory so far.",
            labels=labels,
        )
        for key, ranks in list(self._ranks.items()):
            for peak in ranks:
                predicted.add_metric((*key, str(peak.rank)), peak.predicted_bytes)
                if peak.observed_bytes is not None:
                    observed.add_metric((*key, str(peak.rank)), peak.observed_bytes)
        yield from (predicted, observed)
