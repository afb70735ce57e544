"""The Jobs of a plan as children: where each stands, and how it ended.

In: Jobs as the API server has them. Out: a `Child` each, and one for a gang that is
gone. Pods are asked for alone where a Job waits, is ending or has ended.

    Complete or Failed          ended: its pods, or what they told, say how
    failing, or being deleted   running, until nobody waits for its pods any more
    all pods have begun         running
    else                        pending: scheduler or kubelet say why
    gone, once it was seen      ended: stopped by us, or deleted by a person
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from plimsoll_operator.advice import ON_CLUSTER, advised
from plimsoll_operator.api.status import Condition, ConditionType, Status
from plimsoll_operator.brain.seen import (
    Attempt,
    Child,
    ChildKind,
    ChildState,
    Ending,
)
from plimsoll_operator.cluster.api import PODS, Api, Object
from plimsoll_operator.cluster.machines import Machines
from plimsoll_operator.cluster.plans import PlanObject, time_s
from plimsoll_operator.cluster.pods import (
    condition_of,
    ending_of_pods,
    fenced_text,
    is_true,
    waiting_text,
)
from plimsoll_operator.names import ATTEMPT_LABEL, CHILD_LABEL, SUBJECT_ANNOTATION
from plimsoll_operator.store.pod_ends import StoredEnd
from plimsoll_operator.store.store import Store
from plimsoll_planner.records.task import End

JOB_NAME: Final = "batch.kubernetes.io/job-name"
STOPPED_BY_US: Final = ("Suspending", "DeadlineExceeded", "PendingTimeout")
"""Reasons that stand in the status before we delete a Job that trains."""
DEFAULT_NODE_LOST_S: Final = 300.0


class JobEyes:
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
        """Return the children of a plan.

        Args:
            plan: whose they are.
            jobs: those that belong to it.
            attempts: of it.
            now_s: seconds since 1970.

        Raises:
            ClusterError, StoreError: it cannot be told.
        """
        latest = attempts[-1] if attempts else None
        shown = [job for job in jobs if not is_kept(job, latest)]
        found = [await self._child(plan, job, now_s) for job in shown]
        if latest is not None and latest.ending is None:
            gone = await self._gone(plan, latest, found, now_s)
            found += [gone] if gone is not None else []
        return tuple(found)

    async def _child(self, plan: PlanObject, job: Object, now_s: float) -> Child:
        """Return a Job as a child."""
        child = begun(job, plan.status, now_s)
        if child.state is ChildState.PENDING:
            pods = await self._pods(job)
            message = waiting_text(pods, job["spec"]["completions"])
            return replace(child, message=message)
        if child.state is ChildState.ENDED:
            return await self._ended(plan, child, job)
        if is_ending(job):
            return await self._ending(plan, child, job, now_s)
        return child

    async def end(
        self, plan: PlanObject, job: Object | None, attempt: int
    ) -> End | None:
        """Return the end of all processes of a gang, as far as any is known.

        Args:
            plan: whose attempt it is.
            job: of the gang; None where it is gone.
            attempt: its number.
        """
        told = await self._store.pod_ends.of(plan.owner.uid, attempt)
        pods = await self._pods(job) if job is not None else []
        container = container_of(job) if job is not None else ""
        return ending_of_pods(pods, told, container)[2]

    async def _ended(self, plan: PlanObject, child: Child, job: Object) -> Child:
        """Say how a Job ended."""
        pods = await self._pods(job)
        told = await self._told(plan, child)
        ending, line, _ = ending_of_pods(pods, told, container_of(job))
        message = advised(line, child.kind, ON_CLUSTER)[:1024]
        if ending is Ending.DONE and not is_true(job, "Complete"):
            ending, message = (
                Ending.DISRUPTED,
                "its Job failed, though its pods did not",
            )
        return replace(child, ending=ending, message=message)

    async def _ending(
        self, plan: PlanObject, child: Child, job: Object, now_s: float
    ) -> Child:
        """Tell whether anybody still waits for the pods of a Job that is ending."""
        policy = plan.spec.run_policy if plan.spec is not None else None
        lost_s = policy.node_lost_seconds if policy is not None else DEFAULT_NODE_LOST_S
        text = fenced_text(
            await self._pods(job),
            await self._machines.nodes(),
            now_s=now_s,
            node_lost_s=lost_s,
        )
        if not text:
            return replace(child, message="its pods are ending")
        return replace(
            child,
            state=ChildState.ENDED,
            since_s=now_s,
            ending=Ending.DISRUPTED,
            message=text,
        )

    async def _gone(
        self, plan: PlanObject, attempt: Attempt, found: Sequence[Child], now_s: float
    ) -> Child | None:
        """Return what became of a gang whose Job is there no more.

        A Job that was never seen was never made, as far as anybody knows.
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
            state=ChildState.ENDED,
            since_s=now_s,
            started_s=launched_s(plan.status) or now_s,
            workload_uid=ref.uid,
            workload_name=ref.name,
        )
        reason = stop_reason(plan.status)
        if not reason:
            text = f"Job {ref.name} was deleted by somebody"
            return replace(child, ending=Ending.DELETED, message=text)
        if reason == "PendingTimeout":
            said = plan.status.condition(ConditionType.LAUNCHED)
            return replace(
                child,
                ending=Ending.NEVER_STARTED,
                message=said.message if said is not None else "",
            )
        ending, line, _ = ending_of_pods([], await self._told(plan, child), "")
        message = advised(line, child.kind, ON_CLUSTER)[:1024]
        return replace(child, ending=ending, message=message)

    async def _pods(self, job: Object) -> list[Object]:
        """Return the pods of a Job that are still there."""
        metadata = job["metadata"]
        pods = await self._api.list(
            PODS, metadata["namespace"], labels=f"{JOB_NAME}={metadata['name']}"
        )
        return [pod for pod in pods if belongs_to(pod, metadata["uid"])]

    async def _told(self, plan: PlanObject, child: Child) -> dict[str, StoredEnd]:
        """Return what the pods of a gang told of their end."""
        if child.kind is not ChildKind.TRAIN:
            return {}
        return await self._store.pod_ends.of(plan.owner.uid, int(child.subject))


def is_kept(job: Object, latest: Attempt | None) -> bool:
    """Tell whether a Job is left alone: the latest gang, once its end is written down.

    People read the logs of its pods, which hold nothing any more; it goes when the next
    one starts, or with the plan.
    """
    if latest is None or latest.ending is None:
        return False
    number = str(job["metadata"]["labels"].get(ATTEMPT_LABEL))
    return number == str(latest.number)


def begun(job: Object, status: Status, now_s: float) -> Child:
    """Return where a Job stands, as far as it says so itself."""
    metadata, told = job["metadata"], job.get("status", {})
    kind = ChildKind(metadata["labels"][CHILD_LABEL])
    created_s = time_s(metadata["creationTimestamp"])
    seen_s = launched_s(status) if kind is ChildKind.TRAIN else 0.0
    num_begun = sum(told.get(name, 0) for name in ("ready", "succeeded", "failed"))
    state, since_s, started_s = ChildState.PENDING, created_s, 0.0
    if seen_s or num_begun >= job["spec"]["completions"] or is_ending(job):
        state = ChildState.RUNNING
        started_s = seen_s or now_s
        since_s = started_s
    over = next((c for c in map_conditions(job) if c["status"] == "True"), None)
    if over is not None:
        state, since_s = ChildState.ENDED, time_s(over["lastTransitionTime"])
        started_s = seen_s or created_s
    return Child(
        kind=kind,
        subject=metadata["annotations"][SUBJECT_ANNOTATION],
        state=state,
        since_s=since_s,
        started_s=started_s,
        workload_uid=metadata["uid"],
        workload_name=metadata["name"],
    )


def map_conditions(job: Object) -> list[Object]:
    """Return the conditions that say that a Job is over."""
    found = (condition_of(job, kind) for kind in ("Complete", "Failed"))
    return [one for one in found if one is not None]


def is_ending(job: Object) -> bool:
    """Tell whether a Job is failing or being deleted, and its pods may still run."""
    return "deletionTimestamp" in job["metadata"] or is_true(job, "FailureTarget")


def launched_s(status: Status) -> float:
    """Return since when the ranks run, 0 where they do not."""
    said: Condition | None = status.condition(ConditionType.LAUNCHED)
    if said is None or not status.holds(ConditionType.LAUNCHED):
        return 0.0
    return time_s(said.last_transition_time)


def stop_reason(status: Status) -> str:
    """Return why we have asked for the end of a gang, empty where we have not."""
    for kind in (ConditionType.SUCCEEDED, ConditionType.LAUNCHED):
        said = status.condition(kind)
        if said is not None and said.reason in STOPPED_BY_US:
            return said.reason
    return ""


def belongs_to(pod: Object, uid: str) -> bool:
    """Tell whether a pod is controlled by a Job."""
    references = pod["metadata"].get("ownerReferences", ())
    return any(one.get("uid") == uid for one in references)


def container_of(job: Object) -> str:
    """Return the name of the container that runs our process."""
    containers = job["spec"]["template"]["spec"]["containers"]
    names = [one["name"] for one in containers if one.get("args")]
    return str(names[0]) if names else str(containers[0]["name"])
