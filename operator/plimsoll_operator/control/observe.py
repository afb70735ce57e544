"""The state of one plan of a cluster: its objects, its pods, what the store knows.

In: a TrainingPlan. Out: a `ClusterState`, for a decision. Everything is looked up live;
what is absent is absent. Pods are listed only if a Job waits, ends or has ended.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from plimsoll_operator.api.spec import TrainingPlanSpec
from plimsoll_operator.backends.admission import Admission, holds_to_one_node
from plimsoll_operator.backends.launch_backend import Workload
from plimsoll_operator.backends.planning_state import (
    PlanningState,
    observed_profile,
    with_answer,
    with_running,
)
from plimsoll_operator.backends.pods import BACKENDS
from plimsoll_operator.backends.workloads import WorkloadObserver
from plimsoll_operator.errors import StoreError
from plimsoll_operator.kube.api import CONFIG_MAPS, Api
from plimsoll_operator.names import PLAN_LABEL, TASK_LABEL
from plimsoll_operator.nodes.machines import Machines
from plimsoll_operator.objects.manifests import PLAN_OF_RECORD, RESULT
from plimsoll_operator.objects.name_conflicts import NameConflicts
from plimsoll_operator.objects.page_maps import PAGES, PublishedMap, published_in
from plimsoll_operator.objects.plans import PlanObject
from plimsoll_operator.objects.record_maps import PlansOfRecord, attempts_in
from plimsoll_operator.rules.decide import is_closed, was_dry
from plimsoll_operator.rules.preparing import is_current
from plimsoll_operator.rules.profile_request import profile_request_of
from plimsoll_operator.rules.question import require_sound
from plimsoll_operator.rules.summary import observed_peak_bytes, predicted_peaks
from plimsoll_operator.solving.revise_cache import ReviseCache
from plimsoll_operator.solving.solve_cache import SolveCache, SolveRequest
from plimsoll_operator.store.store import Store
from plimsoll_operator.telemetry.plan_metrics import RankPeak
from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.records.observation import Observation, of_plan
from plimsoll_planner.records.plan import HybridPlan

MAPS = (PLAN_OF_RECORD, RESULT, *PAGES)
"""ConfigMaps that are looked at, by what they are for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterState(PlanningState):
    """State of a plan on a cluster, with the memory of its ranks."""

    ranks: tuple[RankPeak, ...] = ()
    """Device memory of each rank of the latest attempt."""
    published: tuple[PublishedMap, ...] = ()
    """ConfigMaps that are there for pages."""


class PlanObserver:
    """Observes the plans of a cluster."""

    def __init__(
        self,
        api: Api,
        store: Store,
        machines: Machines,
        admission: Admission,
        *,
        shares: bool = False,
    ) -> None:
        """Observe through an API server and the store of one scope.

        If it `shares`, a profile of another namespace serves as well.
        """
        self._shares = shares
        self._api = api
        self.store = store
        self.machines = machines
        self._admission = admission
        self.workloads = WorkloadObserver(api, store, machines)
        self.solve_cache = SolveCache(store)
        self.revise_cache = ReviseCache(store)
        self.plans_of_record = PlansOfRecord(api)
        self.name_conflicts = NameConflicts(api)

    async def observe(self, plan: PlanObject, now_s: float) -> ClusterState:
        """The state of one plan.

        Raises:
            ClusterError: the API server does not answer.
        """
        owner, labels = plan.owner, f"{PLAN_LABEL}={plan.owner.name}"
        maps = await self._api.list(
            CONFIG_MAPS,
            owner.namespace,
            labels=f"{labels},{TASK_LABEL} in ({','.join(MAPS)})",
            metadata_only=True,
        )
        attempts = attempts_in(owner.own(maps))
        published = published_in(owner.own(maps))
        workloads = [
            Workload(backend, one)
            for backend in BACKENDS.values()
            for one in owner.own(
                await self._api.list(backend.makes, owner.namespace, labels=labels)
            )
        ]
        is_open = bool(attempts) and attempts[-1].ending is None
        tasks = await self.workloads.tasks(plan, workloads, attempts, now_s)
        conflict = await self.name_conflicts.of(plan)
        if conflict is not None and conflict.task is not None:
            tasks = (*tasks, conflict.task)
        state = ClusterState(
            attempts=attempts,
            tasks=tasks,
            checkpoints=plan.checkpoints,
            published=published,
        )
        if conflict is not None and conflict.task is None and not is_open:
            return replace(state, complaint=conflict.text)
        try:
            state = await self._with_observed(plan, state)
            if is_closed(plan.status, plan.generation) or is_open:
                return state
            return await self._with_preparation(plan, state)
        except StoreError as error:
            return replace(state, store_fault=str(error))

    async def _with_offers(
        self, plan: PlanObject, spec: TrainingPlanSpec, state: ClusterState
    ) -> ClusterState:
        """Add what a plan is made from, and what the API server remarks.

        Raises:
            InvalidInputError: the spec names what is not there.
            ClusterError: the API server does not answer.
        """
        template = json.loads(spec.template)
        namespace = plan.owner.namespace
        offers = await self.machines.offers(namespace, spec, template)
        claim = await self._admission.claim(plan)
        if holds_to_one_node(claim):
            offers = tuple(replace(one, nodes_available=1) for one in offers)
        kind = offers[0].device_kind
        is_here = await self.machines.has(kind, spec, template)
        place = place_of("" if self._shares else namespace, template)
        require_sound(spec, offers)
        return replace(
            state,
            remark=await self._admission.check(plan, offers, claim),
            profile_request=profile_request_of(spec, offers, place, is_here=is_here),
            offers=offers,
            has_device=is_here,
        )

    async def _with_observed(
        self, plan: PlanObject, state: ClusterState
    ) -> ClusterState:
        """Add what the ranks of the latest attempt have used so far."""
        if not state.attempts:
            return state
        latest = state.attempts[-1]
        of_record = await self.plans_of_record.find(plan.owner, latest)
        if of_record is None:
            return state
        uid, spec = plan.owner.uid, plan.spec
        reported = await self.store.observations.of(uid, latest.number)
        running = await self.revise_cache.running(
            *(uid, latest, of_record, reported, spec.training.steps if spec else 0),
        )
        state = with_running(state, running)
        mine = of_plan(running.plan, reported)
        return replace(state, ranks=rank_peaks(running.plan, mine))

    async def _with_preparation(
        self, plan: PlanObject, state: ClusterState
    ) -> ClusterState:
        """Add what is there of profile, question and answer, or what is wrong."""
        spec = plan.spec
        if spec is None:
            return replace(state, complaint=plan.fault)
        try:
            state = await self._with_offers(plan, spec, state)
        except InvalidInputError as error:
            return replace(state, complaint=str(error))
        wanted = state.profile_request
        assert wanted is not None  # noqa: S101 - it stands beside the offers
        profile = await self.store.profiles.find(wanted.key)
        state = replace(state, profile_key=wanted.key)
        if profile is None:
            return state
        observed = observed_profile(plan.created_s, wanted, profile)
        state = replace(state, profile=observed)
        if not is_current(spec, state):
            return state
        request = SolveRequest(
            uid=plan.owner.uid,
            generation=plan.generation,
            spec=spec,
            offers=state.offers,
            attempts=state.attempts,
            keeps_question=was_dry(plan.status),
        )
        return await with_answer(state, self.solve_cache, request, profile)


def rank_peaks(
    plan: HybridPlan, reported: Sequence[Observation]
) -> tuple[RankPeak, ...]:
    """Memory of each rank, predicted and used."""
    used = {
        one.rank: observed_peak_bytes(one)
        for one in reported
        if one.peaks and one.num_steps
    }
    return tuple(
        RankPeak(rank=rank, predicted_bytes=predicted, observed_bytes=used.get(rank))
        for rank, predicted in predicted_peaks(plan).items()
    )


def place_of(namespace: str, template: Mapping[str, Any]) -> str:
    """Origin of the code: equal origins run equal code.

    All of the pods' template but what only says where they may run. The namespace is
    empty where all of them share what was measured.
    """
    pod = dict(template.get("spec") or {})
    for field in ("tolerations", "affinity", "nodeSelector", "schedulerName"):
        pod.pop(field, None)
    return json.dumps([namespace, pod], sort_keys=True, separators=(",", ":"))
