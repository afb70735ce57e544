"""Does what a decision asks for: objects are made, and things are written down.

In: an action for one plan. Out: its effect. Each may be asked for again, also after a
crash in the middle of it: names follow from the plan, so what was made is found made.
An object of such a name that belongs to somebody else is left alone, and waited for.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from plimsoll_operator.api.spec import TrainingPlanSpec
from plimsoll_operator.brain.actions import (
    Action,
    Clear,
    RecordEnding,
    RecordPlan,
    Solve,
    StartProfile,
    StartRehearsal,
    StartReplay,
    StartTraining,
    StopTraining,
    StoreProfile,
    StoreRehearsal,
    StoreReplay,
    WakeAt,
)
from plimsoll_operator.brain.question import limits_of
from plimsoll_operator.brain.seen import ChildKind
from plimsoll_operator.cluster.api import (
    CONFIG_MAPS,
    JOBS,
    SERVICES,
    Api,
    Object,
)
from plimsoll_operator.cluster.children import (
    PLAN_OF_RECORD,
    child_name,
    config_map,
    job_of,
    labels_of,
    meeting_point,
    packed,
    service_of,
)
from plimsoll_operator.cluster.eyes import (
    ClusterSeen,
    Eyes,
    Known,
    later_than_all,
)
from plimsoll_operator.cluster.host_memory import raised, raised_text
from plimsoll_operator.cluster.owned_objects import OwnedObjects
from plimsoll_operator.cluster.placement import affinity_for, node_affinity_for
from plimsoll_operator.cluster.plans import PlanObject
from plimsoll_operator.cluster.pod_template import (
    CHECKPOINTS,
    PodParts,
    Release,
    pod_template,
)
from plimsoll_operator.cluster.record_maps import Outcome, plan_map, result_map
from plimsoll_operator.cluster.solver import Solver
from plimsoll_operator.commands import (
    Gang,
    Where,
    profile_task,
    rehearsal_task,
    replay_task,
    train_task,
)
from plimsoll_operator.errors import ClusterError, ObstacleError, TooLargeError
from plimsoll_operator.learning import Lesson, learn
from plimsoll_operator.store.questions import StoredQuestion
from plimsoll_operator.store.store import Store
from plimsoll_planner.pod_names import ROOT
from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.task import Task

IN_POD: Final = Where(folder=Path(f"{ROOT}/work"))
"""Where a child runs: its files in the pod's folder of work."""


@dataclass(kw_only=True)
class Hands:
    """Acts for the plans of one scope."""

    api: Api
    store: Store
    eyes: Eyes
    solver: Solver
    release: Release
    clock: Callable[[], float]
    """Seconds since 1970."""

    @property
    def _objects(self) -> OwnedObjects:
        """Objects of plans on the API server."""
        return OwnedObjects(self.api)

    async def act(self, plan: PlanObject, seen: ClusterSeen, action: Action) -> None:
        """Do one thing; what is in the way of it is seen by the next look.

        Raises:
            OperatorError: it could not be done; asked again, it may work.
        """
        try:
            await self._act(plan, seen, action)
        except ObstacleError as met:
            if isinstance(action, RecordEnding):
                raise  # the attempt stays open until there is room for its end
            self.eyes.obstacles.meet(plan.owner, action, met, self.clock())
        except TooLargeError as error:
            if seen.answer is None:
                raise
            self.eyes.asking.refused[seen.answer.problem_digest] = str(error)

    async def _act(self, plan: PlanObject, seen: ClusterSeen, action: Action) -> None:
        """Do one thing."""
        match action:
            case StartProfile():
                await self._start_profile(plan, seen)
            case StartReplay():
                await self._start_replay(plan, seen)
            case StartRehearsal(digest=digest):
                await self._start_rehearsal(plan, seen, digest)
            case StartTraining(attempt=number, memory_factor=factor):
                await self._start_training(plan, seen, number, factor)
            case StopTraining(attempt=number):
                name = child_name(plan.owner, ChildKind.TRAIN, str(number))
                await self._objects.delete_job(plan.owner, name, foreground=True)
            case (
                Clear(child=child)
                | StoreProfile(child=child)
                | StoreReplay(child=child)
                | StoreRehearsal(child=child)
            ):
                # A result that a finished pod has told is in the store, and seen there;
                # where it is not, it is lost, and made again.
                await self._objects.clear(plan.owner, child)
            case _:
                await self._write(plan, seen, action)

    async def _write(self, plan: PlanObject, seen: ClusterSeen, action: Action) -> None:
        """Write something down."""
        match action:
            case Solve():
                self.solver.start(plan.owner, self.eyes.asking, asked_of(seen))
            case RecordPlan():
                made = await asyncio.to_thread(
                    plan_map, plan.owner, action, self.clock()
                )
                await self._objects.create(CONFIG_MAPS, plan.owner, made)
            case RecordEnding():
                await self._record_ending(plan, seen, action)
            case _:
                assert isinstance(action, WakeAt)  # noqa: S101 - the queue waits

    async def _start_profile(self, plan: PlanObject, seen: ClusterSeen) -> None:
        """Start to profile: on a device where one is measured, else without."""
        known = known_of(seen)
        task = profile_task(known.wish, known.spec, IN_POD)
        measures = known.wish.source is Source.MEASURED
        affinity = node_affinity_for(known.offers[0]) if measures else None
        template = self._template(
            plan, known.spec, task, num_gpus=int(measures), affinity=affinity
        )
        await self._start(plan, seen, known.wish.key, ChildKind.PROFILE, template)

    async def _start_replay(self, plan: PlanObject, seen: ClusterSeen) -> None:
        """Start to replay the plan that the search waits for; no device is needed."""
        asked = asked_of(seen)
        wanted = await self.eyes.asking.unreplayed_plan(asked)
        if wanted is None or seen.answer is None:
            return  # the question has changed since the decision
        digest = seen.answer.unreplayed
        spec = spec_of(plan)
        inputs = await self._inputs(plan, ChildKind.REPLAY, digest, wanted, asked)
        task = replay_task(digest, spec, IN_POD)
        template = self._template(plan, spec, task, inputs=inputs)
        await self._start(plan, seen, digest, ChildKind.REPLAY, template)

    async def _start_rehearsal(
        self, plan: PlanObject, seen: ClusterSeen, digest: str
    ) -> None:
        """Start to rehearse the plan that answers the question, on one device."""
        asked, kind = asked_of(seen), ChildKind.REHEARSAL
        wanted = await self.eyes.asking.rehearsed_plan(asked, digest)
        if wanted is None:
            return  # the question has changed since the decision
        await self.store.rehearsals.ask(plan.owner.uid, wanted)
        inputs = await self._inputs(plan, kind, digest, wanted.plan, asked)
        spec, rank = spec_of(plan), wanted.plan.fullest_rank
        template = self._template(
            plan,
            spec,
            rehearsal_task(digest, spec, IN_POD),
            num_gpus=1,
            affinity=node_affinity_for(
                wanted.plan.offers[wanted.plan.stage_of(rank).offer]
            ),
            inputs=inputs,
        )
        await self._start(plan, seen, digest, kind, template)

    async def _inputs(
        self,
        plan: PlanObject,
        kind: ChildKind,
        digest: str,
        planned: HybridPlan,
        asked: StoredQuestion,
    ) -> str:
        """Make the ConfigMap of a child, with plan and profile; its name."""
        profile = asked.problem.profile
        data = await asyncio.to_thread(packed, plan=planned, profile=profile)
        made = config_map(plan.owner, kind, digest, data)
        await self._objects.create(CONFIG_MAPS, plan.owner, made)
        return str(made["metadata"]["name"])

    async def _start_training(
        self, plan: PlanObject, seen: ClusterSeen, number: int, memory_factor: int
    ) -> None:
        """Start a gang by its plan of record."""
        of_record = await self._plan_of_record(plan, seen, number)
        spec, shape = spec_of(plan), of_record.pods
        await self._objects.create(SERVICES, plan.owner, service_of(plan.owner))
        task = train_task(self._gang(plan, of_record, number), spec, IN_POD)
        made = partial(
            self._template,
            plan,
            task=task,
            num_gpus=shape.gpus_per_pod,
            affinity=affinity_for(of_record),
            inputs=child_name(plan.owner, PLAN_OF_RECORD, str(number)),
            trains=True,
        )
        template, note = made(spec), ""
        if memory_factor > 1:
            nodes = await self.eyes.machines.nodes()
            stated, pod = spec.launch.per_gpu, template["spec"]
            more = raised(stated, memory_factor, shape, pod, nodes)
            template = made(replace(spec, launch=replace(spec.launch, per_gpu=more)))
            note = "" if template["spec"] == pod else raised_text(stated, more)
        await self._start(
            plan,
            seen,
            str(number),
            ChildKind.TRAIN,
            template,
            num_pods=shape.num_pods,
            note=note,
        )

    def _gang(self, plan: PlanObject, of_record: HybridPlan, number: int) -> Gang:
        """Return the ranks of one pod, with where they meet and where they save."""
        root, wanted = Path(CHECKPOINTS), spec_of(plan).checkpoint
        saves = bool(wanted.claim_name)
        return Gang(
            attempt=number,
            num_ranks=of_record.num_gpus,
            num_local=of_record.pods.gpus_per_pod,
            meeting=("--meet-at", meeting_point(plan.owner, number)),
            checkpoints=root / wanted.path / plan.owner.uid if saves else None,
            resume_from=root / wanted.resume_from if wanted.resume_from else None,
        )

    def _template(
        self,
        plan: PlanObject,
        spec: TrainingPlanSpec,
        task: Task,
        *,
        num_gpus: int = 0,
        affinity: Object | None = None,
        inputs: str = "",
        trains: bool = False,
    ) -> Object:
        """Return the template of a child's pods."""
        parts = PodParts(
            task=task,
            labels=labels_of(plan.owner, task.child_kind),
            num_gpus=num_gpus,
            per_gpu=spec.launch.per_gpu,
            affinity=affinity,
            inputs=inputs,
            subdomain=plan.owner.service if trains else "",
            claim=spec.checkpoint.claim_name if trains else "",
            priority_class=spec.launch.priority_class_name,
        )
        return pod_template(json.loads(spec.template), parts, self.release)

    async def _start(
        self,
        plan: PlanObject,
        seen: ClusterSeen,
        subject: str,
        kind: ChildKind,
        template: Object,
        *,
        num_pods: int = 1,
        note: str = "",
    ) -> None:
        """Make the Job of a child."""
        made = job_of(
            plan.owner,
            kind,
            subject,
            template,
            num_pods=num_pods,
            note=note,
            queue=spec_of(plan).launch.queue_name,
            after_s=later_than_all(plan, seen, 0.0),
        )
        await self._objects.create(JOBS, plan.owner, made)

    async def _plan_of_record(
        self, plan: PlanObject, seen: ClusterSeen, number: int
    ) -> HybridPlan:
        """Return what an attempt trains by."""
        attempt = next(one for one in seen.attempts if one.number == number)
        found = await self.eyes.plans_of_record.find(plan.owner, attempt)
        if found is None:
            name = child_name(plan.owner, PLAN_OF_RECORD, str(number))
            raise ClusterError(f"ConfigMap {name}, the plan of record, is gone")
        return found

    async def _record_ending(
        self, plan: PlanObject, seen: ClusterSeen, action: RecordEnding
    ) -> None:
        """Keep what the ranks observed, then write down how the attempt ended."""
        uid, number = plan.owner.uid, action.attempt
        name = child_name(plan.owner, ChildKind.TRAIN, str(number))
        job = await self.api.get(JOBS, plan.owner.namespace, name)
        mine = job if job is not None and plan.owner.owns(job) else None
        end = await self.eyes.jobs.end(plan, mine, number)
        full = end.full_device if end is not None else None
        told = await self.store.observations.of(uid, number)
        lesson = Lesson(
            plan_uid=uid,
            attempt=number,
            plan=await self._plan_of_record(plan, seen, number),
            limits=limits_of(spec_of(plan)),
            observations=told,
            full_device=full,
            ending=action.ending,
        )
        await learn(self.store, lesson)
        outcome = Outcome(
            ending=action.ending,
            ended_s=later_than_all(plan, seen, self.clock()),
            generation=plan.generation,
            message=action.child.message,
            rank=None if full is None else full.rank,
            phase=None if full is None else full.phase,
        )
        ranks = {f"rank-{one.rank}": one for one in told}
        try:
            data = await asyncio.to_thread(packed, **ranks)
        except TooLargeError:
            data = {}  # too many ranks: the store has what they observed
        await self._objects.create(
            CONFIG_MAPS, plan.owner, result_map(plan.owner, number, outcome, data)
        )


def spec_of(plan: PlanObject) -> TrainingPlanSpec:
    """Return the spec of a plan that was decided on."""
    assert plan.spec is not None  # noqa: S101 - nothing is asked for without one
    return plan.spec


def known_of(seen: ClusterSeen) -> Known:
    """Return what a plan is made from that was decided to be made."""
    assert seen.known is not None  # noqa: S101 - nothing is prepared without it
    return seen.known


def asked_of(seen: ClusterSeen) -> StoredQuestion:
    """Return the question that was decided to be answered."""
    assert seen.asked is not None  # noqa: S101 - nothing is searched for without one
    return seen.asked
