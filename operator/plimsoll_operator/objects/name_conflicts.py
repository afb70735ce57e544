"""Objects that stand where one of ours has to go: waited for, never touched.

In: what was met when something was to be made. Out: a task that waits, or a complaint
about the plan, until a look finds that the place is free. Nothing is written down: who
starts anew meets it again. Called by `backends` and `record_maps`, which meet, and by
observers.

    <plan>-profile-.., <plan>-replay-..    it waits: ProfilePending, ReplayPending
    <plan>-rehearsal-..                    it waits: RehearsalPending
    <plan>-train-<attempt>, <plan>-ranks   the worker group waits: Pending
    <plan>-plan-<attempt>                  the plan is not accepted as it is named
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from plimsoll_operator.api.status import Status
from plimsoll_operator.errors import NameConflictError
from plimsoll_operator.kube.api import Api, Kind, Object
from plimsoll_operator.names import PLAN_LABEL, TASK_LABEL
from plimsoll_operator.objects.manifests import Owner
from plimsoll_operator.objects.plans import PlanObject, stop_reason
from plimsoll_operator.rules.observed_state import (
    Ending,
    ObservedTask,
    TaskKind,
    TaskState,
)
from plimsoll_planner.records.task import Task


@dataclass(frozen=True, kw_only=True, slots=True)
class NameConflict:
    """An object in the place of one of ours."""

    kind: Kind
    name: str
    text: str
    task: ObservedTask | None
    """That cannot begin; None where it is an attempt."""


class NameConflicts:
    """Those that were met, by the plan's uid."""

    def __init__(self, api: Api) -> None:
        """Look at an API server."""
        self._api = api
        self._met: dict[str, NameConflict] = {}

    def meet(
        self,
        owner: Owner,
        met: NameConflictError,
        now_s: float,
        task: Task | None = None,
    ) -> None:
        """Remember what stands in the way of a task, or of an attempt."""
        waits = None
        if task is not None:
            waits = ObservedTask(
                kind=task.child_kind,
                subject=task.subject,
                state=TaskState.PENDING,
                since_s=now_s,
                message=str(met),
            )
        before = self._met.get(owner.uid)
        if before is None or (before.kind, before.name) != (met.kind, met.name):
            self._met[owner.uid] = NameConflict(
                kind=met.kind, name=met.name, text=str(met), task=waits
            )

    async def of(self, plan: PlanObject) -> NameConflict | None:
        """The conflict that is still in the way of a plan; None: none.

        Raises:
            ClusterError: it cannot be read.
        """
        found = self._met.get(plan.owner.uid)
        if found is None:
            return None
        there = await self._api.get(found.kind, plan.owner.namespace, found.name)
        if plan.status.is_over or there is None or not fault_of(plan.owner, there):
            del self._met[plan.owner.uid]
            return None
        if found.task is None:
            return found
        return replace(found, task=waiting(found.task, plan.status))


def waiting(task: ObservedTask, status: Status) -> ObservedTask:
    """A task that waits, or has waited for too long."""
    is_late = stop_reason(status) == "PendingTimeout"
    if task.kind is not TaskKind.TRAIN or not is_late:
        return task
    return replace(task, state=TaskState.ENDED, ending=Ending.NEVER_STARTED)


def fault_of(owner: Owner, found: Mapping[str, Any]) -> str:
    """Why an object is not found as one of a plan; empty where it is."""
    labels: Object = found["metadata"].get("labels") or {}
    if not owner.owns(found):
        return "belongs to somebody else: delete it, or give the plan another name"
    if labels.get(PLAN_LABEL) != owner.name or TASK_LABEL not in labels:
        return "has lost the labels that Plimsoll finds it by: delete it"
    return ""
