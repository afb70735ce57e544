"""The state of all plans from three lists, for an operator that begins.

In: all plans, their Jobs and the metadata of their ConfigMaps, a page at a time. Out:
plans of which that alone shows that nothing is to be done are given to metrics, and
looked at again like any other; what the watches bring of them is no news. A pass is
made over all others. Called once by `app`, before anybody watches.

Of thousands of plans most just train or are over. A pass looks everything up live, and
where it asks for the Jobs of one plan the API server goes through all of a namespace.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from plimsoll_operator.backends.launch_backend import LaunchBackend, Workload
from plimsoll_operator.backends.pods import BACKENDS
from plimsoll_operator.backends.workloads import begun, tasks_in
from plimsoll_operator.control.loop import Loop
from plimsoll_operator.control.reconcile import decision_on
from plimsoll_operator.errors import ClusterError
from plimsoll_operator.kube.api import CONFIG_MAPS, PLANS, Kind, Object
from plimsoll_operator.names import ATTEMPT_LABEL, PLAN_LABEL, PlanKey
from plimsoll_operator.objects.plans import PlanObject, plan_of
from plimsoll_operator.objects.record_maps import attempts_in
from plimsoll_operator.rules.actions import WakeAt
from plimsoll_operator.rules.decide import is_closed
from plimsoll_operator.rules.observed_state import (
    Attempt,
    ObservedState,
    TaskKind,
    TaskState,
)
from plimsoll_operator.telemetry.metrics import Pass

logger = logging.getLogger(__name__)
Shelf = dict[PlanKey, list[bytes]]
"""Objects of plans as JSON: a tenth of what they take as objects of Python."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InitialSync:
    """Looks at all plans of a loop."""

    loop: Loop

    async def make(self) -> None:
        """Look; where the API server does not answer, passes will."""
        try:
            for namespace in self.loop.namespaces or ("",):
                await self._look_at_all(namespace)
        except ClusterError as error:
            logger.warning("every plan gets a pass: %s", error)

    async def _look_at_all(self, namespace: str) -> None:
        """Look at all plans of a namespace, or of all of them."""
        # Plans come last: what changes meanwhile is then newer than what we know.
        shelves = [
            (one, await self._shelf(one.makes, namespace, PLAN_LABEL, one))
            for one in BACKENDS.values()
        ]
        maps = await self._shelf(
            CONFIG_MAPS, namespace, f"{PLAN_LABEL},{ATTEMPT_LABEL}"
        )
        async for page in self.loop.api.pages(PLANS, namespace):
            for found in page:
                metadata = found["metadata"]
                key = metadata["namespace"], metadata["name"]
                workloads = [
                    Workload(backend, json.loads(one))
                    for backend, shelf in shelves
                    for one in shelf.pop(key, [])
                ]
                self._look(key, found, workloads, maps.pop(key, []))
                await asyncio.sleep(0)

    async def _shelf(
        self,
        kind: Kind,
        namespace: str,
        labels: str,
        backend: LaunchBackend | None = None,
    ) -> Shelf:
        """Objects by the key of their plan; metadata alone without a back end."""
        shelf: Shelf = defaultdict(list)
        pages = self.loop.api.pages(
            kind, namespace, labels=labels, metadata_only=backend is None
        )
        async for page in pages:
            for found in page:
                metadata = found["metadata"]
                key = metadata["namespace"], metadata["labels"][PLAN_LABEL]
                shelf[key].append(json.dumps(trimmed(found, backend)).encode())
                await asyncio.sleep(0)
        return shelf

    def _look(
        self,
        key: PlanKey,
        found: Object,
        workloads: Sequence[Workload],
        maps: Sequence[bytes],
    ) -> None:
        """Look at one plan; leave it to a pass unless nothing is to be done."""
        loop, began_s = self.loop, self.loop.monotonic()
        try:
            plan, now_s = plan_of(found), loop.clock()
            mine = [one for one in workloads if plan.owner.owns(one.found)]
            attempts = attempts_in(plan.owner.own(map(json.loads, maps)))
            state = state_from_lists(plan, mine, attempts, now_s)
            if state is None:
                return
            decision = decision_on(plan, state, now_s)
        except (ClusterError, LookupError, TypeError, ValueError):
            return  # somebody has changed what we wrote: a pass says so
        if decision.status != plan.status:
            return
        if any(not isinstance(action, WakeAt) for action in decision.actions):
            return
        loop.reconciler.reporter.observed(plan, ())
        loop.reconciler.written[key] = plan.version
        loop.reconciler.schedule(key, state, decision)
        for metadata in (one.metadata for one in mine):
            loop.known_workloads[metadata["uid"]] = metadata["resourceVersion"]
        loop.metrics.pass_made(Pass.IDLE, loop.monotonic() - began_s)


def state_from_lists(
    plan: PlanObject,
    workloads: Sequence[Workload],
    attempts: Sequence[Attempt],
    now_s: float,
) -> ObservedState | None:
    """State of a plan that is over, or whose ranks train undisturbed.

    None if pods, nodes or the store are needed to know it. Seconds are since 1970.
    """
    latest = attempts[-1] if attempts else None
    shown = tasks_in(workloads, latest)
    tasks = tuple(begun(one, plan.status, now_s) for one in shown)
    state = ObservedState(
        attempts=tuple(attempts), tasks=tasks, observed=plan.status.observed
    )
    if plan.is_deleting:
        return None
    if is_closed(plan.status, plan.generation):
        return None if tasks else state
    if latest is None or latest.ending is not None:
        return None
    is_left_alone = not any(one.is_ending for one in shown)
    workers = state.task(TaskKind.TRAIN, str(latest.number))
    trains = workers is not None and workers.state is TaskState.RUNNING
    others = [task.state for task in tasks if task is not workers]
    is_quiet = all(state is TaskState.ENDED for state in others)
    return state if trains and is_quiet and is_left_alone else None


def trimmed(found: Object, backend: LaunchBackend | None) -> Object:
    """The part of an object that is read here; metadata alone without a back end."""
    metadata = {k: v for k, v in found["metadata"].items() if k != "managedFields"}
    if backend is None:
        return {"metadata": metadata}
    spec = backend.counted_spec(found["spec"])
    return {"metadata": metadata, "status": found.get("status") or {}, "spec": spec}
