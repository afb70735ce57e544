"""Plans, Jobs and pods as an API server lists them; tests override what they are about.

Jobs are those that `plimsoll_operator.backends.pods.job` makes, with what the server
and its controllers add: uids, times, and a status.
"""

from __future__ import annotations

from typing import Any

from plimsoll_operator.api.status import Status
from plimsoll_operator.backends.launch_backend import Workload
from plimsoll_operator.backends.pods.job import BACKEND, JobBackend
from plimsoll_operator.kube.api import Object
from plimsoll_operator.names import API_VERSION, COMPLETION_INDEX, KIND
from plimsoll_operator.objects.manifests import Owner, task_metadata
from plimsoll_operator.objects.plans import PlanObject, plan_of
from plimsoll_planner.records.document import to_text
from plimsoll_planner.records.task import Command, End, Exit, Task, TaskKind
from tests.support.specs import LEAST

OWNER = Owner(namespace="team", name="tiny", uid="uid-of-plan")
CREATED, CREATED_S = "2026-11-21T09:00:00Z", 1795251600.0
LATER, LATER_S = "2026-11-21T09:10:00Z", 1795252200.0
JOB_UID = "uid-of-job"
A_SPEC: Object = LEAST | {
    "template": {
        "spec": {"containers": [{"name": "trainer", "image": "torch.example/torch"}]}
    },
}
TASK = Task(
    child_kind=TaskKind.TRAIN,
    subject="1",
    commands=(Command(words=("-m", "plimsoll_trainer")),),
    folder="",
)


def a_plan_manifest(spec: Object | None = None, **metadata: Any) -> Object:
    """Build a TrainingPlan.

    Args:
        spec: fields beside those of the smallest one.
        metadata: beside that of `OWNER`.
    """
    meta = {
        "namespace": OWNER.namespace,
        "name": OWNER.name,
        "uid": OWNER.uid,
        "generation": 1,
        "resourceVersion": "7",
        "creationTimestamp": CREATED,
    }
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": meta | metadata,
        "spec": A_SPEC | (spec or {}),
    }


def a_plan_object(status: Status | None = None, **spec: Any) -> PlanObject:
    """Build a TrainingPlan as observers read it."""
    said = {"status": (status or Status()).to_json()}
    return plan_of(a_plan_manifest(spec) | said)


def a_job(
    kind: TaskKind = TaskKind.TRAIN,
    subject: str = "1",
    *,
    num_pods: int = 2,
    status: Object | None = None,
    **metadata: Any,
) -> Object:
    """Build a Job with what the server adds to it."""
    containers: list[Object] = [
        {"name": "proxy", "args": ["--fast"]},
        {"name": "trainer", "env": [{"name": "PLIMSOLL_TASK", "value": "{}"}]},
    ]
    template = {"spec": {"containers": containers}}
    made = JobBackend.render(task_metadata(OWNER, kind, subject), template, num_pods)
    made["metadata"] |= {"uid": JOB_UID, "creationTimestamp": CREATED} | metadata
    return made | {"status": status or {}}


def a_workload(*args: Any, **fields: Any) -> Workload:
    """Build a Job as `a_job` does, beside the back end that reads it."""
    return Workload(BACKEND, a_job(*args, **fields))


def over(kind: str, at: str = LATER, **fields: Any) -> Object:
    """Build the status of a Job of which one condition holds."""
    held = {"type": kind, "status": "True", "lastTransitionTime": at}
    return {"conditions": [held], **fields}


def a_pod(
    index: int = 0,
    *containers: Object,
    phase: str = "Running",
    conditions: tuple[Object, ...] = (),
    status: Object | None = None,
    **metadata: Any,
) -> Object:
    """Build a pod of a Job.

    Args:
        index: in its Job.
        containers: their statuses.
        phase: of the pod.
        conditions: of its status.
        status: beside all that.
        metadata: beside name, uid, index and owner.
    """
    meta = {
        "name": f"tiny-train-1-{index}",
        "namespace": OWNER.namespace,
        "uid": f"uid-of-pod-{index}",
        "annotations": {COMPLETION_INDEX: str(index)},
        "ownerReferences": [{"kind": "Job", "uid": JOB_UID, "controller": True}],
    }
    found: Object = {"phase": phase, "conditions": list(conditions)}
    if containers:
        found["containerStatuses"] = list(containers)
    return {
        "metadata": meta | metadata,
        "spec": {"nodeName": "a"},
        "status": found | (status or {}),
    }


def terminated(exit_code: int, name: str = "trainer", **state: Any) -> Object:
    """Build the status of a container that has ended."""
    ended = {"exitCode": int(exit_code), "finishedAt": LATER} | state
    return {"name": name, "state": {"terminated": ended}}


def waits(reason: str, message: str = "", name: str = "trainer") -> Object:
    """Build the status of a container that waits."""
    return {"name": name, "state": {"waiting": {"reason": reason, "message": message}}}


def condition(kind: str, status: str = "True", **fields: Any) -> Object:
    """Build a condition of a pod, a Job or a node."""
    return {"type": kind, "status": status, **fields}


def an_end(*statuses: int, at_s: float = LATER_S, **fields: Any) -> End:
    """Build the end of processes with these exit codes."""
    exits = tuple(Exit(status=int(status)) for status in statuses)
    given: dict[str, Any] = {"at_s": at_s, "exits": exits} | fields
    return End(**given)


def termination_message(end: End) -> str:
    """Termination message with an end."""
    return to_text(end)
