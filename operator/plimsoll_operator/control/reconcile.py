"""One pass over one plan: look, decide, say, act. And when to look again.

In: the key of a plan. Out: its status, and what was asked for; the queue knows when
the plan wants another look. Whatever goes wrong is an error of this pass alone: the
queue tries again, later each time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from plimsoll_operator.api.status import ConditionType, Status, Truth
from plimsoll_operator.backends.executor import Executor
from plimsoll_operator.backends.pod_backend import PodBackend
from plimsoll_operator.backends.pods import backend_for
from plimsoll_operator.backends.revision_effects import RevisionEffects
from plimsoll_operator.control.observe import ClusterState, PlanObserver
from plimsoll_operator.control.publishing import Publisher
from plimsoll_operator.control.reporting import PassReporter
from plimsoll_operator.control.work_queue import WorkQueue
from plimsoll_operator.errors import ClusterError
from plimsoll_operator.kube.api import PLANS, Api
from plimsoll_operator.names import PlanKey
from plimsoll_operator.objects.owned_objects import OwnedObjects
from plimsoll_operator.objects.plans import PlanObject, plan_of
from plimsoll_operator.objects.pod_template import Release
from plimsoll_operator.objects.record_maps import MapRecords
from plimsoll_operator.rules.actions import (
    Action,
    Clear,
    OfferRevision,
    Revise,
    Solve,
    StopTraining,
    WakeAt,
)
from plimsoll_operator.rules.decide import Decision, decide, unreadable
from plimsoll_operator.rules.observed_state import (
    ObservedState,
    ObservedTask,
    TaskState,
)
from plimsoll_operator.solving.revise_cache import ReviseQuestion
from plimsoll_operator.solving.solver import Solver
from plimsoll_operator.store.questions import StoredQuestion
from plimsoll_planner.records.problem import Problem

SOONEST_S, LATEST_S = 2.0, 30.0
"""Between looks at pods that wait: nothing reports when they go on."""
CLEARING_S: Final = 1.0
"""Between looks at what is being removed, until it is gone."""
ENDING_S: Final = 5.0
"""Between looks at pods that are asked to end."""
REFUSED_S: Final = 60.0
"""Between looks at what a spec names and is not there."""
WAITING = (WakeAt, StopTraining, Solve, Revise, OfferRevision)
"""Actions after which nothing has changed yet."""
SEARCH_S: Final = 60.0
"""Between looks at a plan that is searched for; the search reports its end."""


@dataclass(kw_only=True)
class Reconciler:
    """Makes passes."""

    api: Api
    queue: WorkQueue
    observer_of: Callable[[str], PlanObserver]
    """By namespace: plans of one share what they know."""
    solver: Solver
    release: Release
    reporter: PassReporter
    may_decide: Callable[[], bool]
    """Whether the Lease is still ours."""
    clock: Callable[[], float]
    """Seconds since 1970."""
    monotonic: Callable[[], float]
    """The queue's clock."""
    written: dict[PlanKey, str] = field(default_factory=dict[PlanKey, str])
    """Versions of plans that we have written: who watches one learns nothing new."""

    async def one_pass(self, key: PlanKey) -> Decision | None:
        """Look at a plan and do what is to be done.

        Returns:
            What was decided; None where there is no such plan.

        Raises:
            OperatorError: something could not be looked at or done; it is tried again.
        """
        found = await self.api.get(PLANS, *key)
        if found is None:
            return None
        plan, now_s = plan_of(found), self.clock()
        if plan.is_deleting:
            return None
        observer = self.observer_of(plan.owner.namespace)
        state = await observer.observe(plan, now_s)
        self.reporter.observed(plan, state.ranks)
        decision = decision_on(plan, state, now_s)
        if self.may_decide():
            publisher = Publisher(self.api, observer.store)
            await publisher.publish(plan.owner, state, decision.status, now_s)
        if decision.status != plan.status:
            await self.say(key, plan, decision.status)
        for action in decision.actions:
            self.require_lease()
            await self.executor(plan, state, observer).apply(action)
        self.reporter.acted(decision.actions, state.ranks)
        self.schedule(key, state, decision)
        return decision

    def executor(
        self, plan: PlanObject, state: ClusterState, observer: PlanObserver
    ) -> Executor:
        """The executor of a decision on a plan whose spec can be read."""
        spec, owner, objects = plan.spec, plan.owner, OwnedObjects(self.api)
        assert spec is not None  # noqa: S101 - else nothing is decided

        async def search(asked: StoredQuestion) -> None:
            key = owner.namespace, owner.name
            self.solver.start(key, observer.solve_cache, asked)

        async def revise(asked: ReviseQuestion, problem: Problem) -> None:
            cache = observer.revise_cache
            key = owner.namespace, owner.name
            self.solver.revise(key, owner.uid, cache, asked, problem)

        backend = PodBackend(
            launch=backend_for(spec),
            plan=plan,
            objects=objects,
            workloads=observer.workloads,
            machines=observer.machines,
            name_conflicts=observer.name_conflicts,
            release=self.release,
            clock=self.clock,
        )
        return Executor(
            plan_uid=owner.uid,
            generation=plan.generation,
            created_s=plan.created_s,
            spec=spec,
            state=state,
            store=observer.store,
            solve_cache=observer.solve_cache,
            backend=backend,
            records=MapRecords(
                owner=owner,
                objects=objects,
                plans=observer.plans_of_record,
                name_conflicts=observer.name_conflicts,
            ),
            search=search,
            revisions=RevisionEffects(
                plan_uid=owner.uid,
                store=observer.store,
                backend=backend,
                cache=observer.revise_cache,
                revise=revise,
                clock=self.clock,
            ),
            clock=self.clock,
        )

    def forget(self, key: PlanKey) -> None:
        """Forget a plan that is there no more."""
        self.written.pop(key, None)
        self.reporter.metrics.forget(*key)
        self.solver.leave(key)

    def require_lease(self) -> None:
        """End a pass of a process that others may have taken for dead.

        Raises:
            ClusterError: the Lease is not ours any more.
        """
        if not self.may_decide():
            raise ClusterError("the Lease is lost: somebody else decides")

    async def say(self, key: PlanKey, plan: PlanObject, status: Status) -> None:
        """Write a status, over the version that was looked at.

        Raises:
            ApiConflictError: the plan has changed since: look again.
        """
        self.require_lease()
        change = {
            "metadata": {"resourceVersion": plan.version},
            "status": status.to_json(),
        }
        made = await self.api.patch(PLANS, *key, change, part="status")
        self.written[key] = made["metadata"]["resourceVersion"]
        self.reporter.reported(plan.owner, plan.status, status)

    def schedule(self, key: PlanKey, state: ObservedState, decision: Decision) -> None:
        """Put the time of the plan's next look into the queue."""
        acted = [one for one in decision.actions if not isinstance(one, WAITING)]
        is_clearing = all(isinstance(action, Clear) for action in acted)
        if acted and not is_clearing:
            self.queue.add(key)
            return
        if acted or (decision.status.is_over and state.tasks):
            self.queue.add_at(key, self.monotonic() + CLEARING_S)
            return
        at_s = next_look_s(decision.actions, decision.status, state, self.clock())
        if at_s is not None:
            ahead_s = max(at_s - self.clock(), 0.0)
            self.queue.add_at(key, self.monotonic() + ahead_s)


def decision_on(plan: PlanObject, state: ObservedState, now_s: float) -> Decision:
    """The decision on a plan."""
    if plan.spec is None:
        return unreadable(
            plan.status, plan.fault, generation=plan.generation, now_s=now_s
        )
    return decide(
        plan.spec, plan.status, state, generation=plan.generation, now_s=now_s
    )


def next_look_s(
    actions: Sequence[Action], status: Status, state: ObservedState, now_s: float
) -> float | None:
    """Time of the next look at a plan if nothing happens; None: never."""
    wanted = [action.at_s for action in actions if isinstance(action, WakeAt)]
    wanted += [now_s + pause_s(task, now_s) for task in state.tasks if waits(task)]
    wanted += [now_s + SEARCH_S for one in actions if isinstance(one, Solve | Revise)]
    is_refused = status.truth(ConditionType.ACCEPTED) is Truth.FALSE
    if is_refused and not status.is_over:
        wanted.append(now_s + REFUSED_S)
    return min(wanted, default=None)


def waits(task: ObservedTask) -> bool:
    """Whether a task may go on without any report of it."""
    is_ending = task.state is TaskState.RUNNING and bool(task.message)
    return task.state is TaskState.PENDING or is_ending


def pause_s(task: ObservedTask, now_s: float) -> float:
    """Seconds to leave a task alone: more, the longer it has waited."""
    if task.state is TaskState.RUNNING:
        return ENDING_S
    return min(max((now_s - task.since_s) / 4, SOONEST_S), LATEST_S)
