"""The workloads of a plan as tasks: their state, and how each ended.

In: objects that make pods, such as Jobs. Out: an `ObservedTask` each, and one for a
worker group that is gone. Pods are listed only if a workload waits, is ending or has
ended.

    complete or failed          ended: its pods, or what they reported, say how
    all pods have begun         running
    else                        pending: scheduler or kubelet say why
    failing, or being deleted   as it was, until nobody waits for its pods any more
    pods being deleted          the same
    gone, once it was seen      the same; then stopped by us, or deleted by a person

What we have asked to leave goes, whatever is wanted by then: the reason stays with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from plimsoll_operator.api.spec import RunPolicy
from plimsoll_operator.api.status import ConditionType, Status
from plimsoll_operator.backends.launch_backend import LaunchBackend, Workload
from plimsoll_operator.backends.pods import backend_for
from plimsoll_operator.kube.api import PODS, Api, Object
from plimsoll_operator.kube.times import time_s
from plimsoll_operator.names import (
    ATTEMPT_LABEL,
    NOTE_ANNOTATION,
    SUBJECT_ANNOTATION,
    TASK_LABEL,
)
from plimsoll_operator.nodes.machines import Machines
from plimsoll_operator.objects.plans import PlanObject, launched_s, stop_reason
from plimsoll_operator.objects.pods import (
    ending_of_pods,
    is_over,
    lost_nodes_text,
    waiting_text,
)
from plimsoll_operator.rules.advice import ON_CLUSTER, advised
from plimsoll_operator.rules.observed_state import (
    Attempt,
    Ending,
    ObservedTask,
    TaskKind,
    TaskState,
)
from plimsoll_operator.store.pod_ends import StoredEnd
from plimsoll_operator.store.store import Store
from plimsoll_planner.records.task import End


class WorkloadObserver:
    """Observes the workloads of plans."""

    def __init__(self, api: Api, store: Store, machines: Machines) -> None:
        """Ask an API server for pods, and the store for reports of pods."""
        self._api = api
        self._store = store
        self._machines = machines

    async def tasks(
        self,
        plan: PlanObject,
        workloads: Sequence[Workload],
        attempts: Sequence[Attempt],
        now_s: float,
    ) -> tuple[ObservedTask, ...]:
        """The tasks of a plan, from its workloads and attempts.

        Raises:
            ClusterError, StoreError: they cannot be read.
        """
        latest = attempts[-1] if attempts else None
        found = [
            await self._task(plan, one, now_s) for one in tasks_in(workloads, latest)
        ]
        if latest is not None and latest.ending is None:
            gone = await self._gone(plan, latest, found, now_s)
            found += [gone] if gone is not None else []
        return tuple(found)

    async def _task(
        self, plan: PlanObject, one: Workload, now_s: float
    ) -> ObservedTask:
        """A workload as a task."""
        task = begun(one, plan.status, now_s)
        if task.state is TaskState.ENDED:
            return await self._ended(plan, task, one)
        if task.state is TaskState.RUNNING and not one.is_ending:
            return task
        pods = await self._pods(plan, task, one.backend)
        text = waiting_text(pods, one.status.num_pods)
        if one.is_ending:
            return await self._leaving(plan, task, pods, text, now_s)
        return replace(task, message=text)

    async def end(
        self, plan: PlanObject, workload: Workload | None, attempt: int
    ) -> End | None:
        """End of all processes of a worker group, whose workload may be gone."""
        reported = await self._store.pod_ends.of(plan.owner.uid, attempt)
        if workload is None:
            return ending_of_pods([], reported, "")[2]
        task = begun(workload, plan.status, 0.0)
        pods = await self._pods(plan, task, workload.backend)
        return ending_of_pods(pods, reported, workload.container)[2]

    async def _ended(
        self, plan: PlanObject, task: ObservedTask, one: Workload
    ) -> ObservedTask:
        """The ended task of a workload."""
        pods = await self._pods(plan, task, one.backend)
        reported = await self._pod_ends(plan, task)
        found, line, _ = ending_of_pods(pods, reported, one.container)
        ending, line = settled(task, one, (found, line))
        message = advised(line, task.kind, ON_CLUSTER, plan.owner.name)[:1024]
        return replace(task, ending=ending, message=message)

    async def _leaving(
        self,
        plan: PlanObject,
        task: ObservedTask,
        pods: Sequence[Object],
        waits_for: str,
        now_s: float,
    ) -> ObservedTask:
        """Whether anybody still waits for the pods of a workload that is ending."""
        policy = plan.spec.run_policy if plan.spec is not None else RunPolicy()
        text = lost_nodes_text(
            pods,
            await self._machines.nodes(),
            now_s=now_s,
            node_lost_s=policy.node_lost_seconds,
        )
        if text:
            return after(
                replace(task, state=TaskState.ENDED, since_s=now_s),
                plan.status,
                lost_with_nodes(pods, await self._pod_ends(plan, task), text),
            )
        if task.state is not TaskState.PENDING:
            return replace(task, message="its pods are ending")
        known = plan.status.message(ConditionType.LAUNCHED) if task.stopping else ""
        return replace(task, message=known or waits_for)

    async def _gone(
        self,
        plan: PlanObject,
        attempt: Attempt,
        found: Sequence[ObservedTask],
        now_s: float,
    ) -> ObservedTask | None:
        """The worker group whose workload is gone; None if it was never there.

        Its pods may end later than it does if a person has deleted it.
        """
        subject, ref = str(attempt.number), plan.status.workload_ref
        is_there = any(
            (one.kind, one.subject) == (TaskKind.TRAIN, subject) for one in found
        )
        if is_there or ref is None or ref.attempt != attempt.number:
            return None
        task = ObservedTask(
            kind=TaskKind.TRAIN,
            subject=subject,
            state=TaskState.RUNNING,
            since_s=now_s,
            started_s=launched_s(plan.status) or now_s,
            stopping=stop_reason(plan.status),
            workload_uid=ref.uid,
            workload_name=ref.name,
        )
        backend = backend_for(plan.spec)
        pods = await self._pods(plan, task, backend)
        if any(not is_over(pod) for pod in pods):
            return await self._leaving(plan, task, pods, "", now_s)
        task = replace(task, state=TaskState.ENDED)
        if not task.stopping:
            text = f"{backend.name} {ref.name} was deleted by somebody"
            return replace(task, ending=Ending.DELETED, message=text)
        ending, line, _ = ending_of_pods([], await self._pod_ends(plan, task), "")
        message = advised(line, task.kind, ON_CLUSTER, plan.owner.name)[:1024]
        return after(task, plan.status, (ending, message))

    async def _pods(
        self, plan: PlanObject, task: ObservedTask, backend: LaunchBackend
    ) -> list[Object]:
        """The pods of a workload that are still there."""
        selector = backend.pod_selector(task.workload_name)
        pods = await self._api.list(PODS, plan.owner.namespace, labels=selector)
        return [pod for pod in pods if backend.owns(pod, task.workload_uid)]

    async def _pod_ends(
        self, plan: PlanObject, task: ObservedTask
    ) -> dict[str, StoredEnd]:
        """Reports of the pods of a worker group on their end."""
        if task.kind is not TaskKind.TRAIN:
            return {}
        return await self._store.pod_ends.of(plan.owner.uid, int(task.subject))


def is_kept(one: Workload, latest: Attempt | None) -> bool:
    """Whether a workload is left alone: the latest worker group, its end recorded.

    People read the logs of its pods, which hold nothing any more; it goes when the next
    one starts, or with the plan.
    """
    if latest is None or latest.ending is None:
        return False
    number = str(one.metadata["labels"].get(ATTEMPT_LABEL))
    return number == str(latest.number)


def after(
    task: ObservedTask, status: Status, found: tuple[Ending, str]
) -> ObservedTask:
    """A worker group that has ended, perhaps because the status asks for it.

    `found` is the ending and its message, as far as pods report.
    """
    ending, message = found
    if task.stopping == "PendingTimeout":
        ending, message = Ending.NEVER_STARTED, status.message(ConditionType.LAUNCHED)
    elif task.stopping and not launched_s(status):
        ending, message = Ending.CHECKPOINTED, ""  # there was nothing to save
    return replace(task, ending=ending, message=message)


def settled(
    task: ObservedTask, workload: Workload, found: tuple[Ending, str]
) -> tuple[Ending, str]:
    """Ending of a workload that is over, also if it and its pods do not agree.

    `found` is the ending and its message, as far as pods report.
    """
    if found[0] is Ending.DONE and not workload.status.is_complete:
        text = f"its {workload.backend.name} failed, though its pods did not"
        return Ending.DISRUPTED, text
    if found[0] is Ending.CHECKPOINTED and not task.stopping:
        return Ending.DISRUPTED, "somebody else asked its pods to leave; they saved"
    return found


def lost_with_nodes(
    pods: Sequence[Object], reported: Mapping[str, StoredEnd], text: str
) -> tuple[Ending, str]:
    """Ending of a worker group that nobody waits for any more.

    A node that only the cluster cannot reach may have trained to the end, and reported
    that. `reported` are the reports by uid of the pod, `text` is why nobody waits.
    """
    if all(pod["metadata"]["uid"] in reported for pod in pods):
        ending, line, _ = ending_of_pods(pods, reported, "")
        if ending is Ending.DONE:
            return ending, line
    return Ending.DISRUPTED, text


def tasks_in(workloads: Sequence[Workload], latest: Attempt | None) -> list[Workload]:
    """The workloads that count as tasks of a plan, by its latest attempt."""
    return [one for one in workloads if is_task(one) and not is_kept(one, latest)]


def is_task(one: Workload) -> bool:
    """Whether a workload says what it is for; a person may change its labels."""
    labels: Object = one.metadata.get("labels") or {}
    notes: Object = one.metadata.get("annotations") or {}
    kind, subject = labels.get(TASK_LABEL), str(notes.get(SUBJECT_ANNOTATION, ""))
    if kind == TaskKind.TRAIN:
        return subject.isdecimal()
    return kind in list(TaskKind) and bool(subject)


def begun(workload: Workload, status: Status, now_s: float) -> ObservedTask:
    """A workload as a task, as far as the object itself says it."""
    metadata, own = workload.metadata, workload.status
    kind = TaskKind(metadata["labels"][TASK_LABEL])
    created_s = time_s(metadata["creationTimestamp"])
    seen_s = launched_s(status) if kind is TaskKind.TRAIN else 0.0
    state, since_s, started_s = TaskState.PENDING, created_s, 0.0
    if own.ended_s is not None:
        state, since_s, started_s = TaskState.ENDED, own.ended_s, seen_s or created_s
    elif seen_s or own.num_begun >= own.num_pods or own.is_failing:
        started_s = seen_s or now_s
        state, since_s = TaskState.RUNNING, started_s
    return ObservedTask(
        kind=kind,
        subject=metadata["annotations"][SUBJECT_ANNOTATION],
        state=state,
        since_s=since_s,
        started_s=started_s,
        note=metadata["annotations"].get(NOTE_ANNOTATION, ""),
        stopping=stop_reason(status) if "deletionTimestamp" in metadata else "",
        workload_uid=metadata["uid"],
        workload_name=metadata["name"],
    )
