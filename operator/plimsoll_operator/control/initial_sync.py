"""The state of all plans from three lists, for an operator that begins.

In: all plans, their Jobs and the metadata of their ConfigMaps, a page at a time. Out:
plans of which that alone shows that nothing is to be done are told to metrics, and
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
from typing import Any

from plimsoll_operator.backends.workloads import begun, children_in, is_ending
from plimsoll_operator.control.loop import Loop
from plimsoll_operator.control.reconcile import decision_on
from plimsoll_operator.errors import ClusterError
from plimsoll_operator.kube.api import CONFIG_MAPS, JOBS, PLANS, Kind, Object
from plimsoll_operator.names import ATTEMPT_LABEL, PLAN_LABEL, PlanKey
from plimsoll_operator.objects.plans import PlanObject, plan_of
from plimsoll_operator.objects.record_maps import attempts_in
from plimsoll_operator.rules.actions import WakeAt
from plimsoll_operator.rules.decide import is_closed
from plimsoll_operator.rules.observed_state import (
    Attempt,
    ChildKind,
    ChildState,
    ObservedState,
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
        jobs = await self._shelf(JOBS, namespace, PLAN_LABEL)
        maps = await self._shelf(
            CONFIG_MAPS, namespace, f"{PLAN_LABEL},{ATTEMPT_LABEL}"
        )
        async for page in self.loop.api.pages(PLANS, namespace):
            for found in page:
                metadata = found["metadata"]
                key = metadata["namespace"], metadata["name"]
                self._look(key, found, jobs.pop(key, []), maps.pop(key, []))
                await asyncio.sleep(0)

    async def _shelf(self, kind: Kind, namespace: str, labels: str) -> Shelf:
        """Return what belongs to plans, by the key of the plan."""
        shelf: Shelf = defaultdict(list)
        pages = self.loop.api.pages(
            kind, namespace, labels=labels, metadata_only=kind is CONFIG_MAPS
        )
        async for page in pages:
            for found in page:
                metadata = found["metadata"]
                key = metadata["namespace"], metadata["labels"][PLAN_LABEL]
                shelf[key].append(json.dumps(trimmed(found)).encode())
                await asyncio.sleep(0)
        return shelf

    def _look(
        self, key: PlanKey, found: Object, jobs: list[bytes], maps: list[bytes]
    ) -> None:
        """Look at one plan; leave it to a pass unless nothing is to be done."""
        loop, began_s = self.loop, self.loop.monotonic()
        try:
            plan, now_s = plan_of(found), loop.clock()
            mine = plan.owner.own(map(json.loads, jobs))
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
        for job in mine:
            loop.known_jobs[job["metadata"]["uid"]] = job["metadata"]["resourceVersion"]
        loop.metrics.pass_made(Pass.IDLE, loop.monotonic() - began_s)


def state_from_lists(
    plan: PlanObject, jobs: Sequence[Object], attempts: Sequence[Attempt], now_s: float
) -> ObservedState | None:
    """Return what is seen of a plan that is over, or whose ranks train undisturbed.

    None where more has to be looked at: pods, nodes, the store.

    Args:
        plan: as it was listed.
        jobs: of it.
        attempts: of it.
        now_s: seconds since 1970.
    """
    latest = attempts[-1] if attempts else None
    shown = children_in(jobs, latest)
    children = tuple(begun(job, plan.status, now_s) for job in shown)
    state = ObservedState(
        attempts=tuple(attempts), children=children, observed=plan.status.observed
    )
    if plan.is_deleting:
        return None
    if is_closed(plan.status, plan.generation):
        return None if children else state
    if latest is None or latest.ending is not None:
        return None
    is_left_alone = not any(is_ending(job) for job in shown)
    workers = state.child(ChildKind.TRAIN, str(latest.number))
    trains = workers is not None and workers.state is ChildState.RUNNING
    others = [child.state for child in children if child is not workers]
    is_quiet = all(state is ChildState.ENDED for state in others)
    return state if trains and is_quiet and is_left_alone else None


def trimmed(found: Object) -> dict[str, Any]:
    """An object without what nobody looks at."""
    metadata = {k: v for k, v in found["metadata"].items() if k != "managedFields"}
    kept: dict[str, Any] = {"metadata": metadata}
    if "status" in found:
        kept["status"] = found["status"]
    if "spec" in found:
        kept["spec"] = {"completions": found["spec"].get("completions", 1)}
    return kept
