"""Identity of a reporter: from a bearer token to the TrainingPlan of its pod.

In: a token. Out: a `Reporter`, or why there is none. Called by `server` for every
report. Each step is the API server's word, none is the pod's:

    token      TokenReview: for us, not expired     -> service account, pod, its uid
    pod        read live: that uid, not over long   -> the Job that controls it, its uid
    Job        that uid                             -> kind, subject, attempt
    plan       controls the Job, has that uid       -> what the report counts for

A token outlives its pod for about a second (measured on 1.36), hence the look at the
pod. The plan is looked at because owner references are believed from whoever may make
a Job: one that names the plan of another namespace must not count for it.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Protocol

from plimsoll_operator import names
from plimsoll_operator.errors import RefusedReportError
from plimsoll_operator.ingest.assignments import (
    Assignment,
    Bearer,
    assignment_in,
    bearer_in,
    controller_of,
    index_of,
    may_tell_until_s,
    refuse,
)
from plimsoll_operator.kube.api import (
    JOBS,
    PLANS,
    PODS,
    TOKEN_REVIEWS,
    Kind,
    Object,
    Written,
)
from plimsoll_operator.kube.ttl_cache import TtlCache
from plimsoll_operator.objects.manifests import Owner

TOKEN_KNOWN_S, REFUSAL_KNOWN_S = 60.0, 10.0
"""A refusal is kept as well, or pods that ask again would ask the API server."""
POD_KNOWN_S, JOB_KNOWN_S = 2.0, 60.0
"""The ranks of a pod report in a burst: it is read once. What is read of a Job never
changes, but it may be deleted."""
MOST_TOKENS, MOST_PODS, MOST_JOBS = 40_000, 4_000, 10_000
"""Kept: two tokens of each of 20,000 pods, and the Jobs of twice 5,000 plans."""
LONGEST_TOKEN = 16_384
REVIEWS_AT_ONCE = 8
"""Whoever sends tokens that are none keeps the API server busy with no more."""


class Asks(Protocol):
    """The part of `kube.api.Api` that is needed."""

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """An object, None where there is none."""

    async def create(self, kind: Kind, namespace: str, made: Object) -> Written:
        """Make an object."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Reporter(Assignment):
    """A pod of ours, with what its Job is for."""

    namespace: str
    job_name: str
    pod_index: int
    pod_uid: str

    @property
    def owner(self) -> Owner:
        """The plan, as what belongs to it names it."""
        return Owner(namespace=self.namespace, name=self.plan_name, uid=self.plan_uid)


class Identities:
    """Reporters by their tokens."""

    def __init__(
        self,
        api: Asks,
        *,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Ask an API server; `now` is since 1970, `clock` never goes back; seconds."""
        self._api = api
        self._now = now
        self._reviews = asyncio.Semaphore(REVIEWS_AT_ONCE)
        self._bearers = TtlCache[bytes, Bearer | None](
            most=MOST_TOKENS,
            keep_s=lambda found: TOKEN_KNOWN_S if found else REFUSAL_KNOWN_S,
            clock=clock,
        )
        self._pods = TtlCache[Bearer, Reporter](
            most=MOST_PODS, keep_s=lambda _: POD_KNOWN_S, clock=clock
        )
        self._jobs = TtlCache[tuple[str, str, str], Assignment](
            most=MOST_JOBS, keep_s=lambda _: JOB_KNOWN_S, clock=clock
        )

    async def bearer(self, token: str) -> Bearer:
        """The pod that a token was made for.

        Raises:
            RefusedReportError: 401 where it is no token for us, 403 where it is not
                one of a pod.
            ClusterError: the API server cannot say.
        """
        if not token or len(token) > LONGEST_TOKEN:
            raise unknown_token()
        digest = hashlib.sha256(token.encode(errors="replace")).digest()
        bearer = await self._bearers.get(digest, lambda: self._review(token))
        if bearer is None:
            raise unknown_token()
        if not bearer.pod_uid:
            account = f"{bearer.namespace}/{bearer.service_account}"
            refuse(f"the token of {account} is not bound to a pod")
        return bearer

    async def reporter(self, bearer: Bearer) -> Reporter:
        """The reporter whose pod a token was made for.

        Raises:
            RefusedReportError: 403: it is none of ours, or may not report any more.
            ClusterError: the API server cannot say.
        """
        return await self._pods.get(bearer, lambda: self._reporter(bearer))

    async def _review(self, token: str) -> Bearer | None:
        """The pod that a token was made for, None if it is none for us."""
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [names.TOKEN_AUDIENCE]},
        }
        async with self._reviews:
            made = await self._api.create(TOKEN_REVIEWS, "", review)
        return bearer_in(made.object)

    async def _reporter(self, bearer: Bearer) -> Reporter:
        """The reporter that a pod is.

        Raises:
            RefusedReportError: nothing, or nothing any more.
        """
        pod = await self._api.get(PODS, bearer.namespace, bearer.pod_name)
        if pod is None or pod["metadata"]["uid"] != bearer.pod_uid:
            refuse(f"the pod {bearer.pod_name} is gone")
        if self._now() > may_tell_until_s(pod):
            refuse(f"the pod {bearer.pod_name} has ended")
        owner = controller_of(pod, "batch/v1", "Job")
        if owner is None:
            refuse(f"no Job controls the pod {bearer.pod_name}")
        name, uid = owner
        job = await self._jobs.get(
            (bearer.namespace, name, uid),
            lambda: self._assignment(bearer.namespace, name, uid),
        )
        return Reporter(
            **asdict(job),
            namespace=bearer.namespace,
            job_name=name,
            pod_index=index_of(pod),
            pod_uid=bearer.pod_uid,
        )

    async def _assignment(self, namespace: str, name: str, uid: str) -> Assignment:
        """Purpose of a Job.

        Raises:
            RefusedReportError: it is gone, or none of ours.
        """
        job = await self._api.get(JOBS, namespace, name)
        if job is None or job["metadata"]["uid"] != uid:
            refuse(f"the Job {name} is gone")
        found = assignment_in(job)
        plan = await self._api.get(PLANS, namespace, found.plan_name)
        if plan is None or plan["metadata"]["uid"] != found.plan_uid:
            refuse(f"the TrainingPlan {found.plan_name} is gone")
        return found


def unknown_token() -> RefusedReportError:
    """The answer to what is no token for us."""
    return RefusedReportError(
        HTTPStatus.UNAUTHORIZED,
        f"no valid token of the audience {names.TOKEN_AUDIENCE} was sent",
    )
