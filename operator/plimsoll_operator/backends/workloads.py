"""The Jobs of a plan as children: where each stands, and how it ended.

In: Jobs as the API server has them. Out: a `Child` each, and one for a worker group
that is gone. Pods are listed only if a Job waits, is ending or has ended.

    Complete or Failed          ended: its pods, or what they told, say how
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
from typing import Final

from plimsoll_operator.api.status import ConditionType, Status
from plimsoll_operator.kube.api import PODS, Api, Object
from plimsoll_operator.kube.times import time_s
from plimsoll_operator.names import (
    ATTEMPT_LABEL,
    CHILD_LABEL,
    NOTE_ANNOTATION,
    SUBJECT_ANNOTATION,
)
from plimsoll_operator.nodes.machines import Machines
from plimsoll_operator.objects.plans import PlanObject, launched_s, stop_reason
from plimsoll_operator.objects.pods import (
    condition_of,
    ending_of_pods,
    is_over,
    is_true,
    lost_nodes_text,
    waiting_text,
)
from plimsoll_operator.rules.advice import ON_CLUSTER, advised
from plimsoll_operator.rules.observed_state import (
    Attempt,
    Child,
    ChildKind,
    ChildState,
    Ending,
)
from plimsoll_operator.store.pod_ends import StoredEnd
from plimsoll_operator.store.store import Store
from plimsoll_planner.pod_names import TASK_VARIABLE
from plimsoll_planner.records.task import End

JOB_NAME: Final = "batch.kubernetes.io/job-name"
DEFAULT_NODE_LOST_S: Final = 300.0


class JobObserver:
    """Looks at the Jobs of plans."""

    def __init__(self, api: Api, store: Store, machines: Machines) -> None:
        """Ask an API server for pods, and the store for what pods told."""
        self._api = api
        self._store = store
        self._machines = machines

    async def children(
        self,
        plan: PlanObject,
        jobs: Sequence[Object],
        attempts: Sequence[Attempt],
        now_s: float,
    ) -> tuple[Child, ...]:
        """The children of a plan.

        Args:
            plan: whose they are.
            jobs: those that belong to it.
            attempts: of it.
            now_s: seconds since 1970.

        Raises:
            ClusterError, StoreError: it cannot be told.
        """
        latest = attempts[-1] if attempts else None
        found = [
            await self._child(plan, job, now_s) for job in children_in(jobs, latest)
        ]
        if latest is not None and latest.ending is None:
            gone = await self._gone(plan, latest, found, now_s)
            found += [gone] if gone is not None else []
        return tuple(found)

    async def _child(self, plan: PlanObject, job: Object, now_s: float) -> Child:
        """A Job as a child."""
        child = begun(job, plan.status, now_s)
        if child.state is ChildState.ENDED:
            return await self._ended(plan, child, job)
        if child.state is ChildState.RUNNING and not is_ending(job):
            return child
        pods = await self._pods(plan, child)
        text = waiting_text(pods, job["spec"]["completions"])
        if is_ending(job):
            return await self._leaving(plan, child, pods, text, now_s)
        return replace(child, message=text)

    async def end(
        self, plan: PlanObject, job: Object | None, attempt: int
    ) -> End | None:
        """The end of all processes of a worker group, as far as any is known.

        Args:
            plan: whose attempt it is.
            job: of the worker group; None where it is gone.
            attempt: its number.
        """
        told = await self._store.pod_ends.of(plan.owner.uid, attempt)
        if job is None:
            return ending_of_pods([], told, "")[2]
        pods = await self._pods(plan, begun(job, plan.status, 0.0))
        return ending_of_pods(pods, told, container_of(job))[2]

    async def _ended(self, plan: PlanObject, child: Child, job: Object) -> Child:
        """How a Job ended."""
        pods, told = await self._pods(plan, child), await self._told(plan, child)
        found, line, _ = ending_of_pods(pods, told, container_of(job))
        ending, line = settled(child, job, (found, line))
        message = advised(line, child.kind, ON_CLUSTER)[:1024]
        return replace(child, ending=ending, message=message)

    async def _leaving(
        self,
        plan: PlanObject,
        child: Child,
        pods: Sequence[Object],
        waits_for: str,
        now_s: float,
    ) -> Child:
        """Whether anybody still waits for the pods of a Job that is ending."""
        policy = plan.spec.run_policy if plan.spec is not None else None
        lost_s = policy.node_lost_seconds if policy is not None else DEFAULT_NODE_LOST_S
        text = lost_nodes_text(
            pods, await self._machines.nodes(), now_s=now_s, node_lost_s=lost_s
        )
        if text:
            return after(
                replace(child, state=ChildState.ENDED, since_s=now_s),
                plan.status,
                lost_with_nodes(pods, await self._told(plan, child), text),
            )
        if child.state is not ChildState.PENDING:
            return replace(child, message="its pods are ending")
        said = plan.status.condition(ConditionType.LAUNCHED)
        known = said.message if said is not None and child.stopping else ""
        return replace(child, message=known or waits_for)

    async def _gone(
        self, plan: PlanObject, attempt: Attempt, found: Sequence[Child], now_s: float
    ) -> Child | None:
        """Return what became of a worker group whose Job is there no more.

        A Job that was never seen was never made, as far as anybody knows. Its pods may
        end later than it does, where a person has deleted it.
        """
        subject, ref = str(attempt.number), plan.status.workload_ref
        is_there = any(
            (one.kind, one.subject) == (ChildKind.TRAIN, subject) for one in found
        )
        if is_there or ref is None or ref.attempt != attempt.number:
            return None
        child = Child(
            kind=ChildKind.TRAIN,
            subject=subject,
            state=ChildState.RUNNING,
            since_s=now_s,
            started_s=launched_s(plan.status) or now_s,
            stopping=stop_reason(plan.status),
            workload_uid=ref.uid,
            workload_name=ref.name,
        )
        pods = await self._pods(plan, child)
        if any(not is_over(pod) for pod in pods):
            return await self._leaving(plan, child, pods, "", now_s)
        child = replace(child, state=ChildState.ENDED)
        if not child.stopping:
            text = f"Job {ref.name} was deleted by somebody"
            return replace(child, ending=Ending.DELETED, message=text)
        ending, line, _ = ending_of_pods([], await self._told(plan, child), "")
        message = advised(line, child.kind, ON_CLUSTER)[:1024]
        return after(child, plan.status, (ending, message))

    async def _pods(self, plan: PlanObject, child: Child) -> list[Object]:
        """The pods of a Job that are still there."""
        pods = await self._api.list(
            PODS, plan.owner.namespace, labels=f"{JOB_NAME}={child.workload_name}"
        )
        return [pod for pod in pods if belongs_to(pod, child.workload_uid)]

    async def _told(self, plan: PlanObject, child: Child) -> dict[str, StoredEnd]:
        """Return what the pods of a worker group told of their end."""
        if child.kind is not ChildKind.TRAIN:
            return {}
        return await self._store.pod_ends.of(plan.owner.uid, int(child.subject))


def is_kept(job: Object, latest: Attempt | None) -> bool:
    """Whether a Job is left alone: the latest worker group, once its end is recorded.

    People read the logs of its pods, which hold nothing any more; it goes when the next
    one starts, or with the plan.
    """
    if latest is None or latest.ending is None:
        return False
    number = str(job["metadata"]["labels"].get(ATTEMPT_LABEL))
    return number == str(latest.number)


def after(child: Child, status: Status, found: tuple[Ending, str]) -> Child:
    """A worker group that has ended, where we may have asked for it.

    Args:
        child: it has ended.
        status: of the plan, as it was said last.
        found: the ending and its message, as far as pods tell.
    """
    ending, message = found
    said = status.condition(ConditionType.LAUNCHED)
    if child.stopping == "PendingTimeout":
        ending, message = Ending.NEVER_STARTED, said.message if said is not None else ""
    elif child.stopping and not launched_s(status):
        ending, message = Ending.CHECKPOINTED, ""  # there was nothing to save
    return replace(child, ending=ending, message=message)


def settled(child: Child, job: Object, found: tuple[Ending, str]) -> tuple[Ending, str]:
    """How a Job that is over ended, where its pods and it do not agree.

    Args:
        child: the Job.
        job: as the API server has it.
        found: the ending and its message, as far as pods tell.
    """
    if found[0] is Ending.DONE and not is_true(job, "Complete"):
        return Ending.DISRUPTED, "its Job failed, though its pods did not"
    if found[0] is Ending.CHECKPOINTED and not child.stopping:
        return Ending.DISRUPTED, "somebody else asked its pods to leave; they saved"
    return found


def lost_with_nodes(
    pods: Sequence[Object], told: Mapping[str, StoredEnd], text: str
) -> tuple[Ending, str]:
    """How a worker group ended that nobody waits for any more.

    A node that only the cluster cannot reach may have trained to the end, and told so.

    Args:
        pods: of the worker group.
        told: what pods have told us, by uid.
        text: why nobody waits.
    """
    if all(pod["metadata"]["uid"] in told for pod in pods):
        ending, line, _ = ending_of_pods(pods, told, "")
        if ending is Ending.DONE:
            return ending, line
    return Ending.DISRUPTED, text


def children_in(jobs: Sequence[Object], latest: Attempt | None) -> list[Object]:
    """The Jobs that count as children of a plan, by its latest attempt."""
    return [job for job in jobs if is_child(job) and not is_kept(job, latest)]


def is_child(job: Object) -> bool:
    """Whether a Job says what it is for; a person may change its labels."""
    metadata = job["metadata"]
    labels: Object = metadata.get("labels") or {}
    notes: Object = metadata.get("annotations") or {}
    kind, subject = labels.get(CHILD_LABEL), str(notes.get(SUBJECT_ANNOTATION, ""))
    if kind == ChildKind.TRAIN:
        return subject.isdecimal()
    return kind in list(ChildKind) and bool(subject)


def begun(job: Object, status: Status, now_s: float) -> Child:
    """Where a Job stands, as far as it says so itself."""
    metadata, told = job["metadata"], job.get("status", {})
    kind = ChildKind(metadata["labels"][CHILD_LABEL])
    created_s = time_s(metadata["creationTimestamp"])
    seen_s = launched_s(status) if kind is ChildKind.TRAIN else 0.0
    num_begun = sum(told.get(name, 0) for name in ("ready", "succeeded", "failed"))
    is_failing = is_true(job, "FailureTarget")
    state, since_s, started_s = ChildState.PENDING, created_s, 0.0
    if seen_s or num_begun >= job["spec"]["completions"] or is_failing:
        state = ChildState.RUNNING
        started_s = seen_s or now_s
        since_s = started_s
    over = next((c for c in ends_in(job) if c["status"] == "True"), None)
    if over is not None:
        state, since_s = ChildState.ENDED, time_s(over["lastTransitionTime"])
        started_s = seen_s or created_s
    return Child(
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


def ends_in(job: Object) -> list[Object]:
    """The conditions that say that a Job is over."""
    found = (condition_of(job, kind) for kind in ("Complete", "Failed"))
    return [one for one in found if one is not None]


def is_ending(job: Object) -> bool:
    """Whether a Job is failing or being deleted, and its pods may still run.

    A Job of which pods alone are being deleted does not say that it fails until they
    are gone; on a node that nobody can reach they never are.
    """
    is_leaving = job.get("status", {}).get("terminating", 0) > 0
    is_deleted = "deletionTimestamp" in job["metadata"]
    return is_leaving or is_deleted or is_true(job, "FailureTarget")


def belongs_to(pod: Object, uid: str) -> bool:
    """Whether a pod is controlled by a Job."""
    references = pod["metadata"].get("ownerReferences", ())
    return any(one.get("uid") == uid for one in references)


def container_of(job: Object) -> str:
    """The name of the container that runs our process."""
    containers = job["spec"]["template"]["spec"]["containers"]
    ours = (one for one in containers if gives(one, TASK_VARIABLE))
    return str(next(ours, containers[0])["name"])


def gives(container: Object, variable: str) -> bool:
    """Whether a container has a variable in its environment."""
    return any(one.get("name") == variable for one in container.get("env") or ())
