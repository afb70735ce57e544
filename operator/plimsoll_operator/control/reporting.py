"""Reports of a pass: metrics, Events on the plan, lines of the log.

In: a plan before and after a pass, and what was seen. Out: counters that have moved. A
stage lasts from one condition to the next; the times stand in the conditions, so that
nothing is kept between two passes. Called by `reconcile`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from plimsoll_operator.api.status import Condition, ConditionType, Status, Truth
from plimsoll_operator.kube.times import time_s
from plimsoll_operator.objects.events import EventWriter, meaning_of, revised, turns
from plimsoll_operator.objects.manifests import Owner
from plimsoll_operator.objects.plans import PlanObject
from plimsoll_operator.rules.actions import Action, RecordEnding, SettleRevision
from plimsoll_operator.rules.observed_state import RevisionState
from plimsoll_operator.rules.summary import revision_text
from plimsoll_operator.telemetry.logs import about
from plimsoll_operator.telemetry.metrics import Metrics, Stage
from plimsoll_operator.telemetry.plan_metrics import RankPeak

logger = logging.getLogger(__name__)
STAGES: Final = {
    ConditionType.PROFILED: (ConditionType.ACCEPTED, Stage.PROFILE),
    ConditionType.PLANNED: (ConditionType.PROFILED, Stage.SOLVE),
    ConditionType.LAUNCHED: (ConditionType.CERTIFIED, Stage.QUEUE),
    ConditionType.SUCCEEDED: (ConditionType.LAUNCHED, Stage.RUN),
}
"""By the condition that ends a stage: the one that began it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PassReporter:
    """Reports on plans."""

    metrics: Metrics
    events: EventWriter

    def observed(self, plan: PlanObject, ranks: Sequence[RankPeak]) -> None:
        """Report the status of a plan that was looked at."""
        place = plan.owner.namespace, plan.owner.name
        self.metrics.plan_seen(*place, plan.status)
        self.metrics.ranks_seen(*place, ranks)

    def reported(self, owner: Owner, before: Status, after: Status) -> None:
        """Report what has changed, once it is written."""
        self.metrics.plan_seen(owner.namespace, owner.name, after)
        self.events.emit(owner, before, after)
        with about(owner.namespace, owner.name, after.attempt):
            for condition in turns(before, after):
                text = condition.message or meaning_of(condition)
                logger.info(
                    "%s %s, %s: %s",
                    condition.type,
                    condition.status,
                    condition.reason,
                    text,
                )
            for one in revised(before, after):
                logger.info("%s", revision_text(one))
        for condition in after.conditions:
            if condition.status is Truth.TRUE and not before.holds(condition.type):
                self._came_true(condition, after)
        if after.failures.out_of_memory > before.failures.out_of_memory:
            self.metrics.planned_anew()
        if after.is_over and not before.is_over:
            self.metrics.plan_over(is_trained=after.holds(ConditionType.SUCCEEDED))

    def acted(self, actions: Sequence[Action], ranks: Sequence[RankPeak]) -> None:
        """Report what was written down."""
        if any(isinstance(action, RecordEnding) for action in actions):
            self.metrics.attempt_ended(ranks)
        for action in actions:
            if isinstance(action, SettleRevision):
                settled = action.settled
                is_followed = settled.state is RevisionState.FOLLOWED
                self.metrics.revision_settled(settled.moved_s if is_followed else None)

    def _came_true(self, condition: Condition, after: Status) -> None:
        """Report a condition that holds now and did not, and the stage that it ends."""
        if condition.type is ConditionType.PROFILED and condition.reason == "Cached":
            self.metrics.profile_found()
        if condition.type not in STAGES:
            return
        opening, stage = STAGES[condition.type]
        began = after.condition(opening)
        if began is not None and began.status is Truth.TRUE:
            began_s = time_s(began.last_transition_time)
            ended_s = time_s(condition.last_transition_time)
            self.metrics.stage_ended(stage, max(ended_s - began_s, 0.0))
