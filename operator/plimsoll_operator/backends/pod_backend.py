"""The back end of a cluster: pods of tasks, and what stands beside them.

In: what the executor wants of one plan. Out: objects. Names follow from the plan, so
what was made is found made. An object of such a name that belongs to somebody else is
left alone, and waited for. A `LaunchBackend` says what makes the pods.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from plimsoll_operator.api.spec import TrainingPlanSpec
from plimsoll_operator.backends.commands import Where
from plimsoll_operator.backends.launch_backend import LaunchBackend, Workload
from plimsoll_operator.backends.protocols import AttemptReports, TaskRequest
from plimsoll_operator.backends.workloads import WorkloadObserver
from plimsoll_operator.errors import NameConflictError
from plimsoll_operator.kube.api import CONFIG_MAPS, SERVICES, Object
from plimsoll_operator.nodes.host_memory import (
    predicted_bytes,
    raised_text,
    short_text,
    with_memory,
)
from plimsoll_operator.nodes.machines import Machines
from plimsoll_operator.nodes.placement import affinity_for, node_affinity_for
from plimsoll_operator.objects.manifests import (
    PLAN_OF_RECORD,
    config_map,
    labels_of,
    object_name,
    packed,
    service_of,
    task_metadata,
)
from plimsoll_operator.objects.name_conflicts import NameConflicts
from plimsoll_operator.objects.owned_objects import OwnedObjects
from plimsoll_operator.objects.plans import PlanObject
from plimsoll_operator.objects.pod_template import (
    CHECKPOINTS,
    PodParts,
    Release,
    pod_template,
)
from plimsoll_operator.rules.observed_state import ObservedTask, TaskKind
from plimsoll_planner.pod_names import ROOT
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.revision import Revision

WITH_INPUTS = (TaskKind.REPLAY, TaskKind.REHEARSAL)
"""Kinds of tasks with a ConfigMap of their name."""


@dataclass(frozen=True, kw_only=True)
class PodBackend:
    """Launches the tasks of one plan in pods."""

    launch: LaunchBackend
    plan: PlanObject
    objects: OwnedObjects
    workloads: WorkloadObserver
    machines: Machines
    name_conflicts: NameConflicts
    release: Release
    clock: Callable[[], float]
    """Seconds since 1970."""

    @property
    def spec(self) -> TrainingPlanSpec:
        """Of the plan; nothing is launched without one."""
        assert self.plan.spec is not None  # noqa: S101 - it was decided on
        return self.plan.spec

    def where(self, kind: TaskKind, subject: str) -> Where:
        """The place in which a task runs: the folders of a pod."""
        root, saves, owner = Path(CHECKPOINTS), self.plan.checkpoints, self.plan.owner
        resumed = self.spec.checkpoint.resume_from
        meeting: tuple[str, ...] = ()
        if kind is TaskKind.TRAIN:
            meeting = ("--meet-at", self.launch.meeting_point(owner, int(subject)))
        return Where(
            folder=Path(f"{ROOT}/work"),
            meeting=meeting,
            checkpoints=None if saves is None else root / saves.folder,
            resume_from=root / resumed if resumed else None,
        )

    async def start(self, request: TaskRequest) -> None:
        """Make a task; what is in the way of it is seen by the next look."""
        try:
            await self._start(request)
        except NameConflictError as met:
            self.name_conflicts.meet(self.plan.owner, met, self.clock(), request.task)

    async def stop(self, attempt: int) -> None:
        """Let the pods of an attempt end, and go once they have."""
        name = object_name(self.plan.owner, TaskKind.TRAIN, str(attempt))
        await self.objects.delete(
            self.launch.makes, self.plan.owner, name, foreground=True
        )

    async def offer(self, attempt: int, revision: Revision) -> None:
        """Do nothing: pods are given it in the answer to their next report."""

    async def clear(self, task: ObservedTask) -> None:
        """Remove a task, and what was put beside its pods."""
        owner, kind = self.plan.owner, task.kind
        name = object_name(owner, kind, task.subject)
        await self.objects.delete(self.launch.makes, owner, name)
        if kind in WITH_INPUTS:
            await self.objects.delete(CONFIG_MAPS, owner, name)

    async def result(self, task: ObservedTask) -> None:
        """None: pods report theirs, and the store has it."""
        del task

    async def reports(self, attempt: int) -> AttemptReports:
        """Reports of the pods of an attempt on its end; the store has the rest."""
        owner = self.plan.owner
        name = object_name(owner, TaskKind.TRAIN, str(attempt))
        found = await self.objects.find(self.launch.makes, owner, name)
        workload = None if found is None else Workload(self.launch, found)
        end = await self.workloads.end(self.plan, workload, attempt)
        return AttemptReports(full_device=None if end is None else end.full_device)

    async def _start(self, request: TaskRequest) -> None:
        """Make a task: first what its pods need, then what makes them.

        Raises:
            NameConflictError: an object of a name that is needed is not ours.
        """
        owner, task = self.plan.owner, request.task
        inputs = await self._inputs(request)
        if task.child_kind is TaskKind.TRAIN:
            await self.objects.create(SERVICES, owner, service_of(owner))
        template, note = await self._template(request, inputs)
        metadata = task_metadata(
            owner,
            task.child_kind,
            task.subject,
            note=note,
            queue=self.spec.launch.queue_name,
            after_s=request.after_s,
        )
        plan = request.devices
        num_pods = plan.pods.num_pods if isinstance(plan, HybridPlan) else 1
        made = self.launch.render(metadata, template, num_pods)
        await self.objects.create(self.launch.makes, owner, made)

    async def _inputs(self, request: TaskRequest) -> str:
        """Name of the ConfigMap with what a task reads; empty: it reads nothing.

        What an attempt trains by is there already: its plan of record.
        """
        owner, task = self.plan.owner, request.task
        if task.child_kind is TaskKind.TRAIN:
            return object_name(owner, PLAN_OF_RECORD, task.subject)
        if task.child_kind not in WITH_INPUTS:
            return ""
        data = await asyncio.to_thread(packed, **request.inputs)
        made = config_map(owner, task.child_kind, task.subject, data)
        await self.objects.create(CONFIG_MAPS, owner, made)
        return str(made["metadata"]["name"])

    async def _template(self, request: TaskRequest, inputs: str) -> tuple[Object, str]:
        """Template of a task's pods, and a note about it for people."""
        launch, trains = self.spec.launch, request.task.child_kind is TaskKind.TRAIN
        plan, per_gpu = request.devices, launch.per_gpu
        num_gpus, affinity = needs_of(plan)
        parts = PodParts(
            task=request.task,
            labels=labels_of(self.plan.owner, request.task.child_kind),
            num_gpus=num_gpus,
            per_gpu=per_gpu,
            affinity=affinity,
            inputs=inputs,
            subdomain=self.plan.owner.service if trains else "",
            claim=self.spec.checkpoint.claim_name if trains else "",
            priority_class=launch.priority_class_name,
        )
        users = json.loads(self.spec.template)
        made = pod_template(users, parts, self.release)
        if not isinstance(plan, HybridPlan):
            return made, ""
        needed, factor = predicted_bytes(plan.pods), request.memory_factor
        if factor == 1 and per_gpu.memory_bytes >= needed:
            return made, ""
        of_nodes = plan.pods, made["spec"], await self.machines.nodes()
        first = with_memory(per_gpu, needed, *of_nodes)
        more = with_memory(first, first.memory_bytes * factor, *of_nodes)
        asked = pod_template(users, replace(parts, per_gpu=more), self.release)
        if more == first:
            return asked, short_text(first, needed)
        is_users_own = asked["spec"] == made["spec"]
        return asked, "" if is_users_own else raised_text(first, more)


def needs_of(devices: Offer | HybridPlan | None) -> tuple[int, Object | None]:
    """GPUs of each pod, and the affinity to nodes that have such; None: any will do."""
    if devices is None:
        return 0, None
    if isinstance(devices, HybridPlan):
        return devices.pods.gpus_per_pod, affinity_for(devices)
    return 1, node_affinity_for(devices)
