"""Assignments of reporting pods, read from objects of the API server.

In: objects as they were read. Out: a bearer, an assignment, an index, or why there is
none. Called by `identity`, which fetches them. Labels and annotations are read, not
believed: whoever may make a Job or a pod may write them.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, NoReturn

from plimsoll_operator import names
from plimsoll_operator.errors import RefusedReportError
from plimsoll_operator.kube.api import Object
from plimsoll_operator.kube.times import time_s
from plimsoll_operator.objects.pods import is_over
from plimsoll_operator.rules.observed_state import TaskKind

FINISHED_S = 60.0
"""Such a time after the end of its containers, a pod has reported everything."""
LATEST_S = 1e10
"""Of a time, in seconds since 1970: as `records.bounds.Seconds`."""
ACCOUNT = "system:serviceaccount:"
POD_NAME: Final = "authentication.kubernetes.io/pod-name"
POD_UID: Final = "authentication.kubernetes.io/pod-uid"


@dataclass(frozen=True, kw_only=True, slots=True)
class Bearer:
    """The pod that a token was made for."""

    namespace: str
    service_account: str
    pod_name: str
    pod_uid: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Assignment:
    """The purpose of a Job of ours."""

    plan_name: str
    plan_uid: str
    kind: TaskKind
    subject: str
    attempt: int
    """0 where it belongs to none."""
    after_s: float
    """Time of its cause; seconds since 1970."""


def bearer_in(review: Object) -> Bearer | None:
    """The pod that a reviewed token was made for, None if it is none for us.

    An API server that knows no audiences names none, and its yes is for itself.
    """
    status: Any = review.get("status") or {}
    if not status.get("authenticated"):
        return None
    if names.TOKEN_AUDIENCE not in (status.get("audiences") or ()):
        return None
    user: Any = status.get("user") or {}
    name = str(user.get("username", ""))
    if not name.startswith(ACCOUNT):
        return None
    namespace, _, account = name.removeprefix(ACCOUNT).partition(":")
    extra: Any = user.get("extra") or {}
    return Bearer(
        namespace=namespace,
        service_account=account,
        pod_name="".join(extra.get(POD_NAME, ())),
        pod_uid="".join(extra.get(POD_UID, ())),
    )


def controller_of(owned: Object, version: str, kind: str) -> tuple[str, str] | None:
    """Name and uid of the controller of an object, None if it is of another kind.

    `version` is that of the controller, with its group.
    """
    for owner in owned["metadata"].get("ownerReferences") or ():
        is_it = (owner["apiVersion"], owner["kind"]) == (version, kind)
        if owner.get("controller") and is_it:
            return str(owner["name"]), str(owner["uid"])
    return None


def assignment_in(job: Object) -> Assignment:
    """Purpose of a Job.

    Raises:
        RefusedReportError: it is none of ours.
    """
    meta: Any = job["metadata"]
    labels: Any = meta.get("labels") or {}
    annotations: Any = meta.get("annotations") or {}
    owner = controller_of(job, names.API_VERSION, names.KIND)
    if owner is None or labels.get(names.PLAN_LABEL) != owner[0]:
        refuse(f"no TrainingPlan controls the Job {meta['name']}")
    try:
        kind = TaskKind(labels.get(names.TASK_LABEL, ""))
        attempt = int(labels.get(names.ATTEMPT_LABEL, "0"))
        after_s = float(annotations.get(names.AFTER_ANNOTATION, "0"))
    except ValueError as error:
        refuse(f"the Job {meta['name']} is none of ours: {error}")
    if kind is TaskKind.TRAIN and attempt < 1:
        refuse(f"the Job {meta['name']} trains and belongs to no attempt")
    if not 0 <= after_s <= LATEST_S:
        refuse(f"the Job {meta['name']} has no cause: {names.AFTER_ANNOTATION}")
    return Assignment(
        plan_name=owner[0],
        plan_uid=owner[1],
        kind=kind,
        subject=annotations.get(names.SUBJECT_ANNOTATION, ""),
        attempt=attempt,
        after_s=after_s,
    )


def may_tell_until_s(pod: Object) -> float:
    """Until when a pod may report; infinite as long as it has not ended.

    One that was declared over while nobody heard of its containers, as on a lost node,
    may not: its attempt is over.
    """
    status: Any = pod.get("status") or {}
    if not is_over(pod):
        return float("inf")
    containers: list[Any] = status.get("containerStatuses") or []
    ends: list[str] = [
        container.get("state", {}).get("terminated", {}).get("finishedAt", "")
        for container in containers
    ]
    if not ends or not all(ends):
        return 0.0
    return max(map(time_s, ends)) + FINISHED_S


def index_of(pod: Object) -> int:
    """Which of its Job's pods one is; 0 where the Job does not count them.

    Raises:
        RefusedReportError: it is not known.
    """
    annotations: Any = pod["metadata"].get("annotations") or {}
    found = str(annotations.get(names.COMPLETION_INDEX, "0"))
    if not (found.isascii() and found.isdecimal()):
        refuse(f"the pod {pod['metadata']['name']} has no index")
    return int(found)


def refuse(text: str) -> NoReturn:
    """Refuse a bearer, or a report that is not its business.

    Raises:
        RefusedReportError: always.
    """
    raise RefusedReportError(HTTPStatus.FORBIDDEN, text)
