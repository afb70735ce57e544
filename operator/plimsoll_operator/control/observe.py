"""A look at one plan of a cluster: its objects, its pods, what the store knows.

In: a TrainingPlan. Out: `ObservedState`, for a decision. Everything is looked up live; what is
absent is absent. Pods are asked for alone where a Job waits, ends or has ended.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from plimsoll_operator.api.spec import TrainingPlanSpec
from plimsoll_operator.backends.planning_state import PlanningState, with_answer
from plimsoll_operator.backends.pods.admission import Admission, holds_to_one_node
from plimsoll_operator.errors import StoreError
from plimsoll_operator.kube.api import CONFIG_MAPS, JOBS, Api
from plimsoll_operator.names import ATTEMPT_LABEL, PLAN_LABEL
from plimsoll_operator.nodes.machines import Machines
from plimsoll_operator.objects.jobs import JobObserver
from plimsoll_operator.objects.name_conflicts import NameConflicts
from plimsoll_operator.objects.plans import PlanObject
from plimsoll_operator.objects.record_maps import PlansOfRecord, attempts_in
from plimsoll_operator.rules.decide import is_closed, was_dry
from plimsoll_operator.rules.observed_state import ObservedProfile
from plimsoll_operator.rules.preparing import is_current
from plimsoll_operator.rules.profile_request import ProfileRequest, profile_request_of
from plimsoll_operator.rules.question import require_sound
from plimsoll_operator.rules.step_result import Look
from plimsoll_operator.rules.summary import (
    observed_peak_bytes,
    observed_status,
    predicted_peaks,
    step_fault,
)
from plimsoll_operator.solving.solve_cache import SolveCache, SolveRequest
from plimsoll_operator.store.profiles import StoredProfile
from plimsoll_operator.store.store import Store
from plimsoll_operator.telemetry.plan_metrics import RankPeak
from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.observation import Observation
from plimsoll_planner.records.plan import HybridPlan


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterState(PlanningState):
    """What is seen on a cluster: also the memory of ranks."""

    ranks: tuple[RankPeak, ...] = ()
    """Device memory of each rank of the latest attempt."""


class Eyes:
    """Looks at the plans of a cluster."""

    def __init__(
        self,
        api: Api,
        store: Store,
        machines: Machines,
        admission: Admission,
        *,
        shares: bool = False,
    ) -> None:
        """Look at an API server, and into the store of one scope.

        Args:
            api: of the cluster.
            store: of the scope.
            machines: that plans may use.
            admission: asks whether plans can be launched.
            shares: a profile of another namespace serves as well.
        """
        self._shares = shares
        self._api = api
        self._store = store
        self.machines = machines
        self._admission = admission
        self.jobs = JobObserver(api, store, machines)
        self.asking = SolveCache(store)
        self.plans_of_record = PlansOfRecord(api)
        self.obstacles = NameConflicts(api)

    async def look(self, plan: PlanObject, now_s: float) -> ClusterState:
        """Look at one plan.

        Raises:
            ClusterError: the API server does not tell.
        """
        owner, labels = plan.owner, f"{PLAN_LABEL}={plan.owner.name}"
        maps = await self._api.list(
            CONFIG_MAPS,
            owner.namespace,
            labels=f"{labels},{ATTEMPT_LABEL}",
            metadata_only=True,
        )
        attempts = attempts_in(owner.own(maps))
        jobs = owner.own(await self._api.list(JOBS, owner.namespace, labels=labels))
        is_open = bool(attempts) and attempts[-1].ending is None
        children = await self.jobs.children(plan, jobs, attempts, now_s)
        obstacle = await self.obstacles.of(plan)
        if obstacle is not None and obstacle.child is not None:
            children = (*children, obstacle.child)
        seen = ClusterState(attempts=attempts, children=children)
        if obstacle is not None and obstacle.child is None and not is_open:
            return replace(seen, complaint=obstacle.text)
        try:
            seen = await self._with_observed(plan, seen)
            if is_closed(plan.status, plan.generation) or is_open:
                return seen
            return await self._with_preparation(plan, seen, now_s)
        except StoreError as error:
            return replace(seen, store_fault=str(error))

    async def _with_offers(
        self, plan: PlanObject, spec: TrainingPlanSpec, seen: ClusterState
    ) -> ClusterState:
        """Add what a plan is made from, and what the API server remarks.

        Raises:
            InvalidInputError: the spec names what is not there.
            ClusterError: the API server does not tell.
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
            seen,
            remark=await self._admission.check(plan, offers, claim),
            wish=profile_request_of(spec, kind, place, is_here=is_here),
            offers=offers,
            has_device=is_here,
        )

    async def _with_observed(
        self, plan: PlanObject, seen: ClusterState
    ) -> ClusterState:
        """Add what the ranks of the latest attempt have used so far."""
        if not seen.attempts:
            return seen
        latest = seen.attempts[-1]
        of_record = await self.plans_of_record.find(plan.owner, latest)
        if of_record is None:
            return seen
        told = await self._store.observations.of(plan.owner.uid, latest.number)
        observed = observed_status(of_record, told)
        return replace(
            seen,
            observed=observed,
            step_fault=step_fault(of_record, observed),
            ranks=rank_peaks(of_record, told),
        )

    async def _with_preparation(
        self, plan: PlanObject, seen: ClusterState, now_s: float
    ) -> ClusterState:
        """Add what is there of profile, question and answer, or what is wrong."""
        if plan.spec is None:
            return replace(seen, complaint=plan.fault)
        try:
            seen = await self._with_offers(plan, plan.spec, seen)
        except InvalidInputError as error:
            return replace(seen, complaint=str(error))
        return await self._with_answer(plan, plan.spec, seen, now_s)

    async def _with_answer(
        self, plan: PlanObject, spec: TrainingPlanSpec, seen: ClusterState, now_s: float
    ) -> ClusterState:
        """Add the profile, and what the search said to the question made from it."""
        wish = seen.wish
        assert wish is not None  # noqa: S101 - it stands beside the offers
        profile = await self._store.profiles.find(wish.key)
        seen = replace(
            seen,
            profile_key=wish.key,
            profile=None if profile is None else observed_profile(plan, wish, profile),
        )
        look = Look(spec=spec, seen=seen, generation=plan.generation, now_s=now_s)
        if profile is None or not is_current(look):
            return seen
        asker = SolveRequest(
            uid=plan.owner.uid,
            generation=plan.generation,
            spec=spec,
            offers=seen.offers,
            attempts=seen.attempts,
            keeps_question=was_dry(plan.status),
        )
        return await with_answer(seen, self.asking, asker, profile)


def rank_peaks(plan: HybridPlan, told: Sequence[Observation]) -> tuple[RankPeak, ...]:
    """Return what each rank was predicted to use, and has used."""
    used = {
        one.rank: observed_peak_bytes(one)
        for one in told
        if one.peaks and one.num_steps
    }
    return tuple(
        RankPeak(rank=rank, predicted_bytes=predicted, observed_bytes=used.get(rank))
        for rank, predicted in predicted_peaks(plan).items()
    )


def observed_profile(
    plan: PlanObject, wish: ProfileRequest, profile: StoredProfile
) -> ObservedProfile:
    """Return a profile as a decision looks at it.

    Whether it is of the code that runs is told by whatever is started with it.
    """
    return ObservedProfile(
        source=Source(wish.source),
        made_s=profile.made_s,
        was_cached=profile.made_s < plan.created_s,
        has_batch_statistics=bool(profile.profile.batch_statistics),
    )


def place_of(namespace: str, template: Mapping[str, Any]) -> str:
    """Return where code comes from: equal places run equal code.

    The namespace is empty where all of them share what was measured.

    All of the pods' template but what only says where they may run.
    """
    pod = dict(template.get("spec") or {})
    for field in ("tolerations", "affinity", "nodeSelector", "schedulerName"):
        pod.pop(field, None)
    return json.dumps([namespace, pod], sort_keys=True, separators=(",", ":"))
