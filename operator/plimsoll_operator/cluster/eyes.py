"""A look at one plan of a cluster: its objects, its pods, what the store knows.

In: a TrainingPlan. Out: `Seen`, for a decision. Everything is looked up live; what is
absent is absent. Pods are asked for alone where a Job waits, ends or has ended.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from plimsoll_operator.api.spec import TrainingPlanSpec
from plimsoll_operator.asking import Asker, Asking
from plimsoll_operator.brain.decide import is_closed, was_dry
from plimsoll_operator.brain.preparing import is_current
from plimsoll_operator.brain.question import require_sound
from plimsoll_operator.brain.request import ProfileWish, profile_wish
from plimsoll_operator.brain.said import Look
from plimsoll_operator.brain.seen import (
    Attempt,
    Seen,
    SeenProfile,
)
from plimsoll_operator.brain.summary import (
    observed_peak_bytes,
    observed_status,
    predicted_peaks,
    step_fault,
)
from plimsoll_operator.cluster.admission import Admission, holds_to_one_node
from plimsoll_operator.cluster.api import CONFIG_MAPS, JOBS, Api, Object
from plimsoll_operator.cluster.jobs import JobEyes
from plimsoll_operator.cluster.machines import Machines
from plimsoll_operator.cluster.obstacles import Obstacles
from plimsoll_operator.cluster.plans import PlanObject
from plimsoll_operator.cluster.record_maps import PlansOfRecord, attempts_in
from plimsoll_operator.errors import StoreError
from plimsoll_operator.names import ATTEMPT_LABEL, PLAN_LABEL
from plimsoll_operator.plan_metrics import RankPeak
from plimsoll_operator.store.profiles import StoredProfile
from plimsoll_operator.store.questions import StoredQuestion
from plimsoll_operator.store.store import Store
from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.observation import Observation
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.records.plan import HybridPlan


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """What was looked up for a plan that is not launched."""

    spec: TrainingPlanSpec
    offers: tuple[Offer, ...]
    wish: ProfileWish
    claim: Object | None
    """For checkpoints; None where none is named or there."""
    has_device: bool
    """A node has a device of the kind, or needs none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterSeen(Seen):
    """What is seen on a cluster: also what hands need to act on it."""

    ranks: tuple[RankPeak, ...] = ()
    """Device memory of each rank of the latest attempt."""
    known: Known | None = None
    """None where nothing is prepared: an attempt is open, or something is wrong."""
    asked: StoredQuestion | None = None
    """None where there is no profile to ask with."""


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
        self.jobs = JobEyes(api, store, machines)
        self.asking = Asking(store)
        self.plans_of_record = PlansOfRecord(api)
        self.obstacles = Obstacles(api)

    async def look(self, plan: PlanObject, now_s: float) -> ClusterSeen:
        """Look at one plan.

        Raises:
            ClusterError: the API server does not tell.
        """
        attempts = await self.attempts(plan)
        jobs = plan.owner.own(await self._list(plan))
        is_open = bool(attempts) and attempts[-1].ending is None
        children = await self.jobs.children(plan, jobs, attempts, now_s)
        obstacle = await self.obstacles.of(plan)
        if obstacle is not None and obstacle.child is not None:
            children = (*children, obstacle.child)
        seen = ClusterSeen(attempts=attempts, children=children)
        if obstacle is not None and obstacle.child is None and not is_open:
            return replace(seen, complaint=obstacle.text)
        try:
            seen = await self._with_observed(plan, seen)
            if is_closed(plan.status, plan.generation) or is_open:
                return seen
            return await self._with_preparation(plan, seen, now_s)
        except StoreError as error:
            return replace(seen, store_fault=str(error))

    async def attempts(self, plan: PlanObject) -> tuple[Attempt, ...]:
        """Return what ConfigMaps tell of attempts."""
        maps = await self._api.list(
            CONFIG_MAPS,
            plan.owner.namespace,
            labels=f"{PLAN_LABEL}={plan.owner.name},{ATTEMPT_LABEL}",
            metadata_only=True,
        )
        return attempts_in(plan.owner.own(maps))

    async def _known(self, plan: PlanObject) -> Known:
        """Look up what a plan is made from.

        Raises:
            InvalidInputError: the spec names what is not there.
            ClusterError: the API server does not tell.
        """
        assert plan.spec is not None  # noqa: S101 - whoever looks has asked
        template = json.loads(plan.spec.template)
        namespace = plan.owner.namespace
        offers = await self.machines.offers(namespace, plan.spec, template)
        claim = await self._admission.claim(plan)
        if holds_to_one_node(claim):
            offers = tuple(replace(one, nodes_available=1) for one in offers)
        kind = offers[0].device_kind
        is_here = await self.machines.has(kind, plan.spec, template)
        place = place_of("" if self._shares else namespace, template)
        wish = profile_wish(plan.spec, kind, place, is_here=is_here)
        return Known(
            spec=plan.spec, offers=offers, wish=wish, claim=claim, has_device=is_here
        )

    def _asker(
        self, plan: PlanObject, known: Known, attempts: Sequence[Attempt]
    ) -> Asker:
        """Return a plan as one that asks the search."""
        return Asker(
            uid=plan.owner.uid,
            generation=plan.generation,
            spec=known.spec,
            offers=known.offers,
            attempts=attempts,
            keeps_question=was_dry(plan.status),
        )

    async def _list(self, plan: PlanObject) -> list[Object]:
        """Return all Jobs with the label of a plan."""
        labels = f"{PLAN_LABEL}={plan.owner.name}"
        return await self._api.list(JOBS, plan.owner.namespace, labels=labels)

    async def _with_observed(self, plan: PlanObject, seen: ClusterSeen) -> ClusterSeen:
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
        self, plan: PlanObject, seen: ClusterSeen, now_s: float
    ) -> ClusterSeen:
        """Add what is there of profile, question and answer, or what is wrong."""
        if plan.spec is None:
            return replace(seen, complaint=plan.fault)
        try:
            known = await self._known(plan)
            require_sound(plan.spec, known.offers)
            remark = await self._admission.check(plan, known.offers, known.claim)
            seen = replace(seen, remark=remark, known=known)
            return await self._with_answer(plan, known, seen, now_s)
        except InvalidInputError as error:
            return replace(seen, complaint=str(error))

    async def _with_answer(
        self, plan: PlanObject, known: Known, seen: ClusterSeen, now_s: float
    ) -> ClusterSeen:
        """Add the profile, and what the search said to the question made from it."""
        profile = await self._store.profiles.find(known.wish.key)
        seen = replace(
            seen,
            profile_key=known.wish.key,
            has_device=known.has_device,
            profile=None if profile is None else seen_profile(plan, known, profile),
        )
        look = Look(spec=known.spec, seen=seen, generation=plan.generation, now_s=now_s)
        if profile is None or not is_current(look):
            return seen
        asker = self._asker(plan, known, seen.attempts)
        found = await self.asking.look(asker, profile)
        seen = replace(seen, asked=found.question)
        if found.refusal:
            return replace(seen, complaint=found.refusal)
        return replace(seen, answer=found.answer, refuted=found.refuted)


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


def seen_profile(plan: PlanObject, known: Known, profile: StoredProfile) -> SeenProfile:
    """Return a profile as a decision looks at it.

    Whether it is of the code that runs is told by whatever is started with it.
    """
    return SeenProfile(
        source=Source(known.wish.source),
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


def later_than_all(plan: PlanObject, seen: ClusterSeen, now_s: float) -> float:
    """Return the time: later than all that is known to have happened.

    Clocks of machines differ, and what follows from what is told by their order.
    """
    before_s = max(
        plan.created_s,
        *(one.ended_s for one in seen.attempts),
        *(one.since_s for one in seen.children),
        0.0,
    )
    return max(now_s, math.nextafter(before_s, math.inf))
