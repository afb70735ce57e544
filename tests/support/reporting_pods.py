"""Pods that report: their objects as an API server has them, and one in memory.

The objects here are those that tests/lab/test_ingest_on_a_server.py makes for real.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
from collections import Counter
from typing import Any

from plimsoll_operator import names
from plimsoll_operator.errors import ApiDownError
from plimsoll_operator.ingest.assignments import POD_NAME, POD_UID
from plimsoll_operator.ingest.identity import Reporter
from plimsoll_operator.kube.api import (
    CONFIG_MAPS,
    JOBS,
    PLANS,
    PODS,
    TOKEN_REVIEWS,
    Kind,
    Object,
    Written,
)
from plimsoll_operator.rules.observed_state import TaskKind
from plimsoll_planner.records.document import canonical_text
from plimsoll_planner.records.plan import HybridPlan
from tests.support.builders import DIGEST, a_plan

PLAN, NAMESPACE = "tiny", "team"
PLAN_UID, JOB_UID, POD_UID_0 = "uid-of-plan", "uid-of-job", "uid-of-pod"


def a_reporter(**fields: Any) -> Reporter:
    """Build the only pod of a training Job."""
    defaults: dict[str, Any] = {
        "namespace": NAMESPACE,
        "plan_name": PLAN,
        "plan_uid": PLAN_UID,
        "job_name": "tiny-train-1",
        "kind": TaskKind.TRAIN,
        "subject": "1",
        "attempt": 1,
        "after_s": 0.0,
        "pod_index": 0,
        "pod_uid": POD_UID_0,
    }
    return Reporter(**(defaults | fields))


def owned_by(version: str, kind: str, name: str, uid: str) -> list[Object]:
    """Build the reference to a controller."""
    owner = {"apiVersion": version, "kind": kind, "name": name, "uid": uid}
    return [owner | {"controller": True, "blockOwnerDeletion": True}]


def a_job(
    kind: TaskKind, subject: str, *, plan_uid: str = PLAN_UID, attempt: int = 0
) -> Object:
    """Build a Job of ours, as metadata alone.

    Args:
        kind: of the task.
        subject: of the task.
        plan_uid: of the plan that owns it.
        attempt: 0 where it belongs to none.
    """
    labels = {names.PLAN_LABEL: PLAN, names.TASK_LABEL: str(kind)}
    if attempt:
        labels[names.ATTEMPT_LABEL] = str(attempt)
    meta = {
        "name": f"{PLAN}-{kind}-{attempt}",
        "labels": labels,
        "annotations": {names.SUBJECT_ANNOTATION: subject},
        "ownerReferences": owned_by(names.API_VERSION, names.KIND, PLAN, plan_uid),
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta}


def a_pod(job_name: str, job_uid: str) -> Object:
    """Build the metadata of a pod of a Job."""
    meta = {
        "name": f"{job_name}-0",
        "ownerReferences": owned_by("batch/v1", "Job", job_name, job_uid),
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta}


def a_config_map(what: str, *, plan_uid: str = PLAN_UID, **parts: Any) -> Object:
    """Build a ConfigMap of the first attempt."""
    meta = {
        "name": f"{PLAN}-{what}-1",
        "ownerReferences": owned_by(names.API_VERSION, names.KIND, PLAN, plan_uid),
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, **parts}


def a_result(ending: str, *, plan_uid: str = PLAN_UID) -> Object:
    """Build the result of the first attempt; without an ending it is none yet."""
    made = a_config_map("result", plan_uid=plan_uid)
    if ending:
        made["metadata"]["annotations"] = {f"{names.GROUP}/ending": ending}
    return made


def a_plan_of_record(
    plan: HybridPlan | None = None, *, plan_uid: str = PLAN_UID
) -> Object:
    """Build the plan of record of the first attempt."""
    packed = gzip.compress(canonical_text(plan or a_plan()).encode())
    data = {"plan.json.gz": base64.b64encode(packed).decode()}
    return a_config_map("plan", plan_uid=plan_uid, immutable=True, binaryData=data)


class ClusterInMemory:
    """An API server that knows one pod of ours and its token, `good`."""

    def __init__(self, kind: TaskKind = TaskKind.TRAIN, subject: str = "") -> None:
        """Put a plan there, a Job of a kind, its pod, and the plan of record."""
        self.objects: dict[tuple[str, str], Object] = {}
        self.tokens: dict[str, Object] = {}
        self.asked: Counter[str] = Counter()
        """By kind of object: how often it was asked for."""
        self.is_down = False
        attempt = 1 if kind is TaskKind.TRAIN else 0
        self.job = a_job(kind, subject or DIGEST, attempt=attempt)
        self.job["metadata"]["uid"] = JOB_UID
        self.pod = a_pod(self.job["metadata"]["name"], JOB_UID)
        self.pod["metadata"]["uid"] = POD_UID_0
        self.plan = {"metadata": {"name": PLAN, "uid": PLAN_UID}}
        for of, made in ((PLANS, self.plan), (JOBS, self.job), (PODS, self.pod)):
            self.put(of, made)
        self.put(CONFIG_MAPS, a_plan_of_record())
        self.tokens["good"] = a_review(self.pod["metadata"]["name"], POD_UID_0)

    def put(self, kind: Kind, made: Object) -> None:
        """Add or replace an object."""
        self.objects[kind.plural, made["metadata"]["name"]] = made

    def drop(self, kind: Kind, made: Object) -> None:
        """Take an object away."""
        del self.objects[kind.plural, made["metadata"]["name"]]

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Object of the only namespace."""
        await self._answer(kind)
        found = self.objects.get((kind.plural, name))
        return found if namespace == NAMESPACE else None

    async def create(self, kind: Kind, namespace: str, made: Object) -> Written:
        """Review a token; nothing else is ever made."""
        assert (kind, namespace) == (TOKEN_REVIEWS, "")
        await self._answer(kind)
        token = made["spec"]["token"]
        return Written(object={"status": self.tokens.get(token, {})})

    async def _answer(self, kind: Kind) -> None:
        """Count a request, and take a moment."""
        self.asked[kind.plural] += 1
        await asyncio.sleep(0)
        if self.is_down:
            raise ApiDownError("the API server does not answer: it was stopped")


def a_review(pod_name: str, pod_uid: str, **parts: Any) -> Object:
    """Build the status of a TokenReview that a proper token gets."""
    extra = {POD_NAME: [pod_name], POD_UID: [pod_uid]} if pod_uid else {}
    username = f"system:serviceaccount:{NAMESPACE}:default"
    defaults: Object = {
        "authenticated": True,
        "audiences": [names.TOKEN_AUDIENCE],
        "user": {"username": username, "extra": extra},
    }
    return defaults | parts
