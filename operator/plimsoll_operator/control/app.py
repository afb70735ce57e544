"""The operator as a process: everything that it is made of, put together.

In: a `Configuration`. Out: it runs until it is asked to stop, or until something that
nobody can go on without has ended: the Lease, a watch, a worker.

    every replica         takes in reports, serves metrics and probes
    the Lease's holder    watches, decides, acts
"""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import time
import uuid
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web

from plimsoll_operator.backends.admission import Admission
from plimsoll_operator.control.configuration import Configuration
from plimsoll_operator.control.initial_sync import InitialSync
from plimsoll_operator.control.loop import Loop
from plimsoll_operator.control.observe import PlanObserver
from plimsoll_operator.control.reconcile import Reconciler
from plimsoll_operator.control.reporting import PassReporter
from plimsoll_operator.control.watching import Logins, registry_for, watch
from plimsoll_operator.control.work_queue import WorkQueue
from plimsoll_operator.errors import ClusterError, StoreBusyError, StoreDownError
from plimsoll_operator.ingest.server import Ingest, serving
from plimsoll_operator.kube.api import PLANS, Api, open_api
from plimsoll_operator.kube.lease import Hold, Seat, holding
from plimsoll_operator.nodes.machines import Machines
from plimsoll_operator.objects.events import EventWriter
from plimsoll_operator.objects.pod_template import Release
from plimsoll_operator.solving.solver import Solver
from plimsoll_operator.store.store import Store, open_store
from plimsoll_operator.telemetry.health import Facts, health_app
from plimsoll_operator.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)
WATCH: Final = "the watch of plans and Jobs"
"""Raises what ends it, but for a signal to stop."""
BEAT_S: Final = 1.0
STORE_AGAIN_S: Final = 5.0
"""Between two tries to open a store whose server is down."""


async def run(configuration: Configuration) -> None:
    """Run the operator until it is asked to stop.

    Raises:
        OperatorError: it cannot begin, or cannot go on.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with open_api(configuration.kubeconfig) as api:
        await until_stopped(work(configuration, api), stop)


async def work(configuration: Configuration, api: Api) -> None:
    """Work as an operator, once the store answers.

    Raises:
        OperatorError: it cannot begin, or cannot go on.
    """
    metrics = Metrics(per_plan=configuration.plan_metrics)
    async with AsyncExitStack() as stack:
        async with serving(waiting_app(metrics), port=configuration.http_port):
            store = await first_answer(stack, configuration.database)
        metrics.store_answers(is_up=True)
        operator = Operator(
            configuration=configuration, api=api, store=store, metrics=metrics
        )
        async with (
            serving(operator.health(), port=configuration.http_port),
            serving(operator.ingest().app(), port=configuration.ingest_port),
        ):
            await operator.run()


async def first_answer(stack: AsyncExitStack, place: str) -> Store:
    """The store at a place of `open_store`, once its server is up.

    The stack closes it.

    Raises:
        StoreError: it cannot be used, and waiting would not change that.
    """
    while True:
        try:
            return await stack.enter_async_context(open_store(place))
        except (StoreDownError, StoreBusyError) as error:
            logger.warning("nothing is decided before the store answers: %s", error)
            await asyncio.sleep(STORE_AGAIN_S)


def waiting_app(metrics: Metrics) -> web.Application:
    """The server for probes and Prometheus while the store is waited for."""
    return health_app(
        lambda: Facts(beat_s=time.monotonic()),
        lambda: "the store does not answer",
        metrics.registry,
        time.monotonic,
    )


async def until_stopped(work: Coroutine[Any, Any, None], stop: asyncio.Event) -> None:
    """Work until that has ended, or somebody asks for a stop."""
    working = asyncio.create_task(work)
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if working.done():
        working.result()
        return
    working.cancel()
    await asyncio.wait([working])


@dataclass(kw_only=True)
class Operator:
    """One replica of the operator."""

    configuration: Configuration
    api: Api
    store: Store
    metrics: Metrics
    queue: WorkQueue = field(
        default_factory=lambda: WorkQueue(time.monotonic, random.random)
    )
    observers: dict[str, PlanObserver] = field(default_factory=dict[str, PlanObserver])
    """By namespace."""
    loop: Loop | None = None
    """While we decide."""
    beat_s: float = field(default_factory=time.monotonic)
    """Time of the latest round of the event loop."""

    def ingest(self) -> Ingest:
        """The server that takes in reports."""
        return Ingest(
            self.api,
            self.store,
            shares=self.configuration.share_profiles,
            notify=self.queue.add,
            counted=self.metrics.report_answered,
        )

    def health(self) -> web.Application:
        """The server for probes and Prometheus."""
        return health_app(self.facts, lambda: "", self.metrics.registry, time.monotonic)

    def facts(self) -> Facts:
        """Look at this process."""
        if self.loop is None:
            return Facts(beat_s=self.beat_s)
        return Facts(
            beat_s=self.beat_s,
            heard_s={PLANS.plural: self.loop.heard_s},
            due_since_s=self.queue.due_since_s,
            passed_s=self.loop.passed_s,
        )

    async def run(self) -> None:
        """Wait for the Lease, then decide until it is lost.

        Raises:
            ClusterError: it is lost, or a watch has died.
        """
        beating = asyncio.create_task(self._beat())
        try:
            async with holding(self.api, self._seat()) as hold:
                logger.info("the Lease is ours: plans are decided here")
                await self._decide(hold)
        finally:
            beating.cancel()

    async def _beat(self) -> None:
        """Keep the time of the latest round of the event loop."""
        while True:
            self.beat_s = time.monotonic()
            await asyncio.sleep(BEAT_S)

    def _seat(self) -> Seat:
        """Which Lease, and who we are."""
        configuration = self.configuration
        return Seat(
            namespace=configuration.namespace,
            name=configuration.lease,
            holder=f"{configuration.name}_{uuid.uuid4().hex[:8]}",
        )

    async def _decide(self, hold: Hold) -> None:
        """Decide; end with whatever ends first."""
        solver = Solver(self.configuration.solvers, self.queue.add, self.metrics.solved)
        events = EventWriter(self.api, self.configuration.name)
        loop = self.loop = self._loop(hold, solver, events)
        self.metrics.leads(is_leader=True)
        await InitialSync(loop=loop).make()
        tasks = {
            asyncio.create_task(part): what
            for what, part in self._parts(hold, loop, events)
        }
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
                if tasks[task] == WATCH:  # kopf has taken the signal to stop
                    await loop.finish()
                    return
                raise ClusterError(
                    f"{tasks[task]} has ended: the operator starts again"
                )
        finally:
            self.metrics.leads(is_leader=False)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await solver.close()

    def _parts(
        self, hold: Hold, loop: Loop, events: EventWriter
    ) -> Iterator[tuple[str, Coroutine[Any, Any, object]]]:
        """Yield what runs side by side while we decide; none of it ends by itself."""
        logins = Logins(self.configuration.kubeconfig)
        registry = registry_for(loop.heard, loop.owned_changed, logins)
        yield "our hold on the Lease", hold.lost.wait()
        yield WATCH, watch(registry, self.configuration.watch_namespaces)
        yield "the list of all plans", loop.sync()
        yield "news of pods", loop.bring_news()
        yield "the writer of Events", events.run()
        for _ in range(self.configuration.workers):
            yield "a worker", loop.work()

    def _loop(self, hold: Hold, solver: Solver, events: EventWriter) -> Loop:
        """The loop, which makes passes."""
        machines = Machines(self.api, time.monotonic)
        release = Release(
            runtime_image=self.configuration.runtime_image,
            ingest_url=self.configuration.ingest_url,
        )
        admission = Admission(self.api, release)
        reconciler = Reconciler(
            api=self.api,
            queue=self.queue,
            observer_of=lambda name: self._observer(name, machines, admission),
            solver=solver,
            release=release,
            reporter=PassReporter(metrics=self.metrics, events=events),
            may_decide=lambda: hold.is_held,
            clock=time.time,
            monotonic=time.monotonic,
        )
        return Loop(
            api=self.api,
            store=self.store,
            queue=self.queue,
            reconciler=reconciler,
            metrics=self.metrics,
            namespaces=self.configuration.watch_namespaces,
            clock=time.time,
            monotonic=time.monotonic,
            random=random.random,
            heard_s=time.monotonic(),
        )

    def _observer(
        self, namespace: str, machines: Machines, admission: Admission
    ) -> PlanObserver:
        """The observer of the plans of a namespace."""
        if namespace not in self.observers:
            shares = self.configuration.share_profiles
            store = self.store.within(namespace, shares=shares)
            self.observers[namespace] = PlanObserver(
                self.api, store, machines, admission, shares=shares
            )
        return self.observers[namespace]
