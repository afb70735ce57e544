"""The loop on a cluster: takes keys from the queue, and makes passes.

In: what the watches hear. Out: passes, a few at a time, one for each plan. Beside them
every plan is looked at again every ten minutes, for what no watch has reported. New
reports of pods are brought to their plans within seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from plimsoll_operator.control.reconcile import Reconciler
from plimsoll_operator.control.work_queue import WorkQueue
from plimsoll_operator.errors import ApiConflictError, OperatorError, StoreError
from plimsoll_operator.kube.api import PLANS, Api
from plimsoll_operator.names import PlanKey
from plimsoll_operator.rules.decide import Decision
from plimsoll_operator.store.store import Store
from plimsoll_operator.telemetry.logs import about
from plimsoll_operator.telemetry.metrics import Metrics, Pass
from plimsoll_planner.errors import PlimsollError

logger = logging.getLogger(__name__)
SYNC_S: Final = 60.0
"""Between two lists of all plans."""
ROUNDS: Final = 10
"""Lists from one look at a plan of which nothing is heard to the next."""
ROUNDS_A_DAY: Final = 1440
UNUSED_S: Final = 90 * 86400.0
"""After which the store forgets what can be made anew."""
NEWS_S: Final = 5.0
"""Between two questions to the store for new reports of pods."""
FINISH_S: Final = 5.0
"""For passes that are under way when we are asked to stop; what is cut off then is
found half done, and done again."""
OVERLAP_S: Final = 30.0
"""Of two such questions: clocks of replicas differ."""


@dataclass(kw_only=True)
class Loop:
    """Makes passes over all plans."""

    api: Api
    store: Store
    queue: WorkQueue
    reconciler: Reconciler
    metrics: Metrics
    namespaces: tuple[str, ...]
    clock: Callable[[], float]
    """Seconds since 1970."""
    monotonic: Callable[[], float]
    random: Callable[[], float]
    keys: dict[str, PlanKey] = field(default_factory=dict[str, PlanKey])
    """Of plans, by uid."""
    latest: dict[PlanKey, int] = field(default_factory=dict[PlanKey, int])
    """Versions of plans that the watch has brought."""
    num_under_way: int = 0
    """Passes."""
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while there is none."""
    passed_s: float = 0.0
    """When the latest pass ended, or nothing was to be done; of the monotonic clock."""
    heard_s: float = 0.0
    """When the watch of plans was last known to be complete."""
    known_workloads: dict[str, str] = field(default_factory=dict[str, str])
    """Versions that the initial sync has seen, by uid: the watch brings them again."""
    behind: dict[PlanKey, int] = field(default_factory=dict[PlanKey, int])
    """Versions that a list had shown, and the watch had not brought."""

    def heard(self, key: PlanKey, uid: str, version: str, is_deleted: bool) -> None:
        """Hear of an event of a plan."""
        self.metrics.heard_of(PLANS.plural, self.clock())
        if is_deleted:
            self.keys.pop(uid, None)
            self.latest.pop(key, None)
            self.queue.add(key)
            return
        self.keys[uid] = key
        self.latest[key] = int(version)
        if self.reconciler.written.get(key) != version:
            self.queue.add(key)

    def owned_changed(self, key: PlanKey, uid: str, version: str, plural: str) -> None:
        """Take in an event of a workload, by its plan."""
        self.metrics.heard_of(plural, self.clock())
        if self.known_workloads.pop(uid, "") != version:
            self.queue.add(key)

    async def work(self) -> None:
        """Make passes until cancelled."""
        while True:
            key = await self.queue.take()
            self.num_under_way += 1
            self.idle.clear()
            try:
                await self.pass_over(key)
            finally:
                self.num_under_way -= 1
                self.passed_s = self.monotonic()
                if not self.num_under_way:
                    self.idle.set()

    async def finish(self) -> None:
        """Let passes that are under way come to their end, for some seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FINISH_S):
                await self.idle.wait()

    async def pass_over(self, key: PlanKey) -> Decision | None:
        """Make a pass, and give its outcome to the queue."""
        began_s = self.monotonic()
        try:
            with about(*key):
                decision = await self.reconciler.one_pass(key)
        except ApiConflictError as error:
            self.metrics.pass_failed(error, self.monotonic() - began_s)
            self.queue.add(key)
            self.queue.done(key)
        except Exception as error:  # noqa: BLE001 - other plans go on
            self.metrics.pass_failed(error, self.monotonic() - began_s)
            self.log(key, error)
            self.queue.failed(key)
        else:
            idle = decision is None or not decision.actions
            came_of_it = Pass.IDLE if idle else Pass.ACTED
            self.metrics.pass_made(came_of_it, self.monotonic() - began_s)
            if decision is None:
                self.queue.forget(key)
                self.reconciler.forget(key)
            self.queue.done(key)
            return decision
        return None

    def log(self, key: PlanKey, error: Exception) -> None:
        """Log why a pass came to nothing; a fault of ours with its traceback."""
        with about(*key):
            if isinstance(error, PlimsollError):
                logger.warning("%s", error)
            else:
                logger.error("a fault of Plimsoll", exc_info=error)

    async def sync(self) -> None:
        """List all plans every minute; look at each again every ten."""
        for number in count():
            # Before the list: a plan that is made meanwhile is not taken for deleted.
            stored = await self.stored_plans()
            try:
                found = await self.list_all()
            except OperatorError as error:
                logger.warning("plans cannot be listed: %s", error)
            else:
                self.judge_watch(found)
                await self.forget_all(stored - set(self.keys))
                if number % ROUNDS_A_DAY == 1:
                    await self.forget_unused()
                if number % ROUNDS == 0:
                    self.spread(found)
            await asyncio.sleep(SYNC_S)

    async def forget_unused(self) -> None:
        """Let the store forget what no plan has used for long; while down, tomorrow."""
        with suppress(StoreError):
            num_rows = await self.store.forget_unused(self.clock() - UNUSED_S)
            logger.info("%d rows of the store were unused and are gone", num_rows)

    def spread(self, keys: Iterable[PlanKey]) -> None:
        """Ask for a look at each plan until the next time they are spread."""
        for key in keys:
            ahead_s = self.random() * ROUNDS * SYNC_S
            self.queue.add_at(key, self.monotonic() + ahead_s)

    async def list_all(self) -> dict[PlanKey, int]:
        """The version of every plan.

        Raises:
            ClusterError: the API server does not answer.
        """
        found: dict[PlanKey, int] = {}
        keys: dict[str, PlanKey] = {}
        before = set(self.keys)
        for namespace in self.namespaces or ("",):
            # Page by page: thousands at once would stay in memory.
            async for page in self.api.pages(PLANS, namespace, metadata_only=True):
                for metadata in (one["metadata"] for one in page):
                    key = metadata["namespace"], metadata["name"]
                    keys[metadata["uid"]] = key
                    found[key] = int(metadata["resourceVersion"])
        newer = {uid: key for uid, key in self.keys.items() if uid not in before}
        self.keys = keys | newer
        return found

    async def stored_plans(self) -> set[str]:
        """The uids of plans that the store knows; none while it is down."""
        try:
            return await self.store.known_plans()
        except StoreError:
            return set()

    async def forget_all(self, uids: Iterable[str]) -> None:
        """Let the store forget plans that were deleted, perhaps while nobody watched.

        While it is down they stay, until the next time.
        """
        with suppress(StoreError):
            for uid in uids:
                await self.store.forget(uid)

    def judge_watch(self, found: dict[PlanKey, int]) -> None:
        """Believe in the watch, unless it has kept back for a minute what a list shows.

        That it brings nothing proves nothing: nothing may have happened.
        """
        is_deaf = any(
            self.latest.get(key, 0) < version
            for key, version in self.behind.items()
            if key in found
        )
        self.behind = {k: v for k, v in found.items() if v > self.latest.get(k, 0)}
        if not is_deaf:
            self.heard_s = self.monotonic()

    async def bring_news(self) -> None:
        """Bring new reports of pods to their plans."""
        since_s = self.clock()
        while True:
            await asyncio.sleep(NEWS_S)
            try:
                reporting = await self.store.observations.news(since_s - OVERLAP_S)
            except StoreError as error:
                self.metrics.store_answers(is_up=False)
                logger.warning("nothing is heard of pods: %s", error)
                continue
            self.metrics.store_answers(is_up=True)
            since_s = self.clock()
            for uid in reporting:
                if uid in self.keys:
                    self.queue.add(self.keys[uid])
