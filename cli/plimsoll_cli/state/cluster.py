"""A cluster as a source of plans: TrainingPlans and the ConfigMaps that belong to them.

In: a cluster and a namespace. Out: plans and their records, or an error that says what
to do next. Called by `source`. Who may read TrainingPlans and ConfigMaps of a namespace
may read all of it: there is no other API.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from http import HTTPStatus

from plimsoll_cli.errors import NoClusterError, NoSuchPlanError
from plimsoll_cli.state.cluster_maps import gathered
from plimsoll_cli.state.liveness import Liveness
from plimsoll_cli.state.run_record import Gathered, RunRecord, record_from
from plimsoll_cli.state.shown_plan import ShownPlan
from plimsoll_operator.api.status import Status
from plimsoll_operator.errors import (
    ApiDeniedError,
    ApiDownError,
    ApiRefusedError,
    ClusterError,
)
from plimsoll_operator.kube.api import CONFIG_MAPS, PLANS, Api, Object, open_api
from plimsoll_operator.kube.kubeconfig import Target, target_of
from plimsoll_operator.names import PLAN_LABEL, TASK_LABEL
from plimsoll_operator.objects.manifests import PLAN_OF_RECORD, RESULT
from plimsoll_operator.objects.page_maps import PAGES
from plimsoll_operator.objects.plans import PlanObject, plan_of
from plimsoll_operator.objects.pod_template import main_container
from plimsoll_planner.errors import InvalidInputError

MAPS = ",".join((PLAN_OF_RECORD, RESULT, *PAGES))
"""Purposes of the ConfigMaps that are read."""
NO_DEFINITION = (
    "has no TrainingPlans: Plimsoll is not installed there (`helm install plimsoll "
    "charts/plimsoll`), or another --context is meant"
)
NOBODY = (
    "where it stands: the operator has not looked at it yet; see that it serves this "
    "namespace and runs (`kubectl get deploy -A -l app.kubernetes.io/name=plimsoll`)"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterSource:
    """Plans of a namespace of a cluster, or of all."""

    target: Target
    everywhere: bool = False

    @property
    def nothing(self) -> str:
        """Line for a list without a plan."""
        if self.everywhere:
            return f"no TrainingPlans in {self.target}; `kubectl apply` makes one"
        return (
            f"no TrainingPlans in namespace {self.target.namespace} of {self.target}; "
            "--all-namespaces lists those of others"
        )

    @property
    def spans_namespaces(self) -> bool:
        """Whether plans of one name may be several."""
        return self.everywhere

    async def plans(self) -> tuple[ShownPlan, ...]:
        """All plans, the newest first.

        Raises:
            NoClusterError: the cluster does not show them.
        """
        async with self._opened() as api:
            namespace = "" if self.everywhere else self.target.namespace
            found = [shown_plan(one) for one in await api.list(PLANS, namespace)]
        newest_first = sorted(found, key=lambda one: (-one.created_s, one.name))
        return tuple(newest_first)

    async def find(self, name: str) -> tuple[ShownPlan, RunRecord]:
        """A plan and its record.

        Raises:
            NoSuchPlanError: there is none; names the nearest one.
            NoClusterError: the cluster does not show it.
        """
        async with self._opened() as api:
            found = await api.get(PLANS, self.target.namespace, name)
            if found is None:
                raise await self._no_such_plan(api, name)
            plan, shown = plan_of(found), shown_plan(found)
            record = record_from(shown, await maps_of(api, plan))
        more = (status_fault(found), "" if shown.status.conditions else NOBODY)
        unknown = (*filter(None, more), *record.unknown)
        return shown, replace(record, unknown=unknown)

    async def _no_such_plan(self, api: Api, name: str) -> NoSuchPlanError:
        """The error of a name that no plan of the namespace has.

        Raises:
            ClusterError: the API server does not answer.
        """
        try:
            plans = await api.list(PLANS, self.target.namespace, metadata_only=True)
        except ApiDeniedError:
            plans = []  # who may not list them may have read this one
        names = [one["metadata"]["name"] for one in plans]
        close = get_close_matches(name, names, n=3)
        place = f"namespace {self.target.namespace} of {self.target}"
        meant = f"did you mean {' or '.join(close)}?" if close else "`get` lists them;"
        text = f"no TrainingPlan {name} in {place}; {meant} --namespace names another"
        return NoSuchPlanError(text)

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[Api]:
        """The API server, whose errors name the cluster and the next step.

        Raises:
            NoClusterError: see its causes.
        """
        try:
            async with open_api(self.target.kubeconfig, self.target.context) as api:
                yield api
        except ClusterError as error:
            raise NoClusterError(advice(error, self.target)) from None


def cluster_source(
    *, kubeconfig: str, context: str, namespace: str, everywhere: bool
) -> ClusterSource:
    """The source that options of a command name; empty words name nothing.

    Raises:
        ClusterError: no cluster is named.
    """
    target = target_of(kubeconfig, context, namespace)
    return ClusterSource(target=target, everywhere=everywhere)


def advice(error: ClusterError, target: Target) -> str:
    """Text of an error about a cluster, with what to do next."""
    if isinstance(error, ApiDeniedError):
        return (
            f"{target} lets us read no plans: {error}; ask for the ClusterRole `view` "
            f"in namespace {target.namespace} (`kubectl create rolebinding`)"
        )
    if isinstance(error, ApiRefusedError) and error.status == HTTPStatus.NOT_FOUND:
        return f"{target} {NO_DEFINITION}"
    if isinstance(error, ApiDownError):
        return f"{target}: {error}; `kubectl cluster-info` asks the same server"
    return f"{target}: {error}"


async def maps_of(api: Api, plan: PlanObject) -> Gathered:
    """Everything that the ConfigMaps of a plan hold, if we may read them.

    Raises:
        ClusterError: the API server does not answer.
    """
    owner = plan.owner
    labels = f"{PLAN_LABEL}={owner.name},{TASK_LABEL} in ({MAPS})"
    try:
        maps = await api.list(CONFIG_MAPS, owner.namespace, labels=labels)
    except ApiDeniedError as error:
        text = (
            "everything but the status: it lies in ConfigMaps, and we may not list "
            f"those of namespace {owner.namespace}: {error}"
        )
        return Gathered(unknown=(text,))
    return await asyncio.to_thread(gathered, plan, maps)


def shown_plan(found: Object) -> ShownPlan:
    """A TrainingPlan of a cluster; it is watched until it is over."""
    plan = plan_of(found)
    return ShownPlan(
        name=plan.owner.name,
        namespace=plan.owner.namespace,
        uid=plan.owner.uid,
        generation=plan.generation,
        spec=plan.spec,
        status=plan.status,
        liveness=Liveness.GONE if plan.status.is_over else Liveness.WATCHED,
        is_suspended=plan.spec is not None and plan.spec.suspend,
        created_s=plan.created_s,
        code=code_text(plan),
    )


def code_text(plan: PlanObject) -> str:
    """Image and entry point, in a line."""
    if plan.spec is None:
        return f"its spec cannot be read by this release: {plan.fault}"
    entrypoint = plan.spec.workload.entrypoint
    try:
        container = main_container(json.loads(plan.spec.template).get("spec") or {})
    except InvalidInputError:
        return f"code in an image that spec.template does not name: {entrypoint}"
    return f"code in the image {container.get('image')}: {entrypoint}"


def status_fault(found: Object) -> str:
    """Why a status cannot be read by this release; empty if it can."""
    try:
        Status.from_json(found.get("status") or {}, "status")
    except InvalidInputError as error:
        return f"its status: this release cannot read it ({error}): install a newer one"
    return ""
