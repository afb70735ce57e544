"""The operator's loop in this process, on a lab's API server, with kubelets that act.

Observer, executor, queue, solver and store are the real ones, and so are the server and
its controllers. There are no nodes: pods stay unbound, and `Kubelets` write their
status as a kubelet would, by a script. Reports of a pod go into the store as by the
ingest.

    Process    one life of the operator; it may be made to die around any effect
    Kubelets   let pods run and end, one ending after the other
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from plimsoll_operator.api.status import Status
from plimsoll_operator.backends.admission import Admission
from plimsoll_operator.control.loop import Loop
from plimsoll_operator.control.observe import PlanObserver
from plimsoll_operator.control.reconcile import Reconciler
from plimsoll_operator.control.reporting import PassReporter
from plimsoll_operator.control.work_queue import WorkQueue
from plimsoll_operator.kube.api import (
    CONFIG_MAPS,
    EVENTS,
    JOBS,
    PLANS,
    PODS,
    Api,
    Kind,
    Object,
    Written,
)
from plimsoll_operator.nodes.machines import Machines
from plimsoll_operator.objects.events import EventWriter
from plimsoll_operator.objects.plans import PlanObject, plan_of
from plimsoll_operator.objects.pod_template import Release
from plimsoll_operator.solving.solver import Solver
from plimsoll_operator.store.database import Database, open_database
from plimsoll_operator.store.store import Store
from plimsoll_operator.telemetry.metrics import Metrics
from tests.lab.kubelets import POLL_S, Kubelets
from tests.support import cluster_objects

PLAN = "tiny"
OFFERS = "machines"
TABLE = (
    "InstanceType,AcceleratorName,AcceleratorCount,DeviceMemoryMiB,DeviceKind\n"
    "box,H200,8,6144,emulated\n"
)
RELEASE = Release(runtime_image="runtime.example/r", ingest_url="http://ingest.example")
A_SPEC: Object = cluster_objects.A_SPEC | {
    "search": {"maxGPUs": 8, "rateFloor": "0", "offers": {"configMap": OFFERS}},
}
QUIET_S, MOST_LOOKS = 3.0, 5
"""Longer than a pod that waits is left alone at first, so that looks are among it."""


class CrashError(BaseException):
    """The process dies: nobody catches that."""


METRICS = Metrics(per_plan=True)
"""Nobody looks at them here."""


@dataclass(kw_only=True)
class Effects:
    """Counts what a process changes outside of itself, and lets it die there."""

    crash_at: tuple[int, bool] | None = None
    """Before (False) or after (True) which effect, counted from 0."""
    done: list[str] = field(default_factory=list[str])
    is_dead: bool = False

    @asynccontextmanager
    async def one(self, what: str) -> AsyncGenerator[None]:
        """Do one thing; a process that is dead does nothing."""
        number = len(self.done)
        if self.is_dead or self.crash_at == (number, False):
            self.is_dead = True
            raise CrashError(what)
        yield
        self.done.append(what)
        if self.crash_at == (number, True):
            self.is_dead = True
            raise CrashError(what)


class CountedApi(Api):
    """The API server, each change of it an effect."""

    def __init__(self, api: Api, effects: Effects) -> None:
        """Use the connection of another one."""
        super().__init__(api._client)
        self._effects = effects

    async def create(
        self, kind: Kind, namespace: str, made: Object, *, dry_run: bool = False
    ) -> Written:
        """Make an object."""
        if dry_run or kind is EVENTS:
            return await super().create(kind, namespace, made, dry_run=dry_run)
        async with self._effects.one(f"create {made['metadata']['name']}"):
            return await super().create(kind, namespace, made)

    async def patch(
        self, kind: Kind, namespace: str, name: str, change: Object, *, part: str = ""
    ) -> Object:
        """Change an object."""
        async with self._effects.one(f"patch {name} {part}"):
            return await super().patch(kind, namespace, name, change, part=part)

    async def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        uid: str,
        foreground: bool = False,
    ) -> None:
        """Remove an object."""
        async with self._effects.one(f"delete {name}"):
            await super().delete(kind, namespace, name, uid=uid, foreground=foreground)


class CountedDatabase(Database):
    """A database, each transaction that writes an effect."""

    def __init__(self, database: Database, effects: Effects) -> None:
        """Use another one's connections."""
        self.__dict__.update(vars(database))
        self._effects = effects

    @asynccontextmanager
    async def write(self) -> AsyncGenerator[Any]:
        """Open a transaction that writes."""
        async with self._effects.one("write"), super().write() as session:
            yield session


@dataclass(kw_only=True)
class Process:
    """One life of the operator."""

    api: Api
    database: Database
    effects: Effects = field(default_factory=Effects)
    moved_s: float = 0.0
    """By which its clock is ahead."""
    searches: Solver | None = None
    """In place of one of its own."""
    queue: WorkQueue = field(
        default_factory=lambda: WorkQueue(time.monotonic, lambda: 0.5)
    )
    observers: dict[str, PlanObserver] = field(default_factory=dict[str, PlanObserver])

    def clock(self) -> float:
        """Seconds since 1970."""
        return time.time() + self.moved_s

    @cached_property
    def solver(self) -> Solver:
        """Search in one process beside this one."""
        return self.searches or Solver(1, self.queue.add)

    @cached_property
    def loop(self) -> Loop:
        """Make passes."""
        counted = CountedApi(self.api, self.effects)
        reconciler = Reconciler(
            api=counted,
            queue=self.queue,
            observer_of=self.observer,
            solver=self.solver,
            release=RELEASE,
            reporter=PassReporter(metrics=METRICS, events=EventWriter(counted, "lab")),
            may_decide=lambda: True,
            clock=self.clock,
            monotonic=time.monotonic,
        )
        return Loop(
            api=counted,
            store=Store(self.database),
            queue=self.queue,
            reconciler=reconciler,
            metrics=METRICS,
            namespaces=(),
            clock=self.clock,
            monotonic=time.monotonic,
            random=lambda: 0.5,
        )

    def observer(self, namespace: str) -> PlanObserver:
        """Observer of the plans of a namespace."""
        if namespace not in self.observers:
            counted = CountedApi(self.api, self.effects)
            store = Store(CountedDatabase(self.database, self.effects), namespace)
            machines = Machines(counted, time.monotonic)
            self.observers[namespace] = PlanObserver(
                counted, store, machines, Admission(counted, RELEASE)
            )
        return self.observers[namespace]


@dataclass(kw_only=True)
class Home:
    """A namespace with a table of offers, a store, kubelets, and plans in it."""

    api: Api
    database: Database
    namespace: str
    kubelets: Kubelets

    def process(self, **fields: Any) -> Process:
        """New life of the operator."""
        return Process(api=self.api, database=self.database, **fields)

    async def create(self, name: str = PLAN, **spec: Any) -> PlanObject:
        """Make a plan."""
        made = {
            "apiVersion": "plimsoll.dev/v1alpha1",
            "kind": "TrainingPlan",
            "metadata": {"name": name},
            "spec": A_SPEC | spec,
        }
        return plan_of((await self.api.create(PLANS, self.namespace, made)).object)

    async def plan(self, name: str = PLAN) -> PlanObject:
        """Plan as it is."""
        found = await self.api.get(PLANS, self.namespace, name)
        assert found is not None
        return plan_of(found)

    async def edit(self, name: str = PLAN, **spec: Any) -> None:
        """Change the spec of a plan."""
        await self.api.patch(PLANS, self.namespace, name, {"spec": spec})

    async def names(self, kind: Kind) -> list[str]:
        """Names of all objects of a kind but those that are always there."""
        found = await self.api.list(kind, self.namespace, metadata_only=True)
        names = sorted(one["metadata"]["name"] for one in found)
        return [one for one in names if one not in (OFFERS, "kube-root-ca.crt")]


@asynccontextmanager
async def at_home(api: Api, namespace: str, folder: Path) -> AsyncGenerator[Home]:
    """Yield a namespace that plans can be made in, its kubelets at work."""
    table: Object = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": OFFERS},
        "data": {"offers.csv": TABLE},
    }
    await api.create(CONFIG_MAPS, namespace, table)
    async with open_database(folder / "store.db") as database:
        kubelets = Kubelets(api=api, store=Store(database), namespace=namespace)
        work = asyncio.create_task(kubelets.work())
        try:
            yield Home(
                api=api, database=database, namespace=namespace, kubelets=kubelets
            )
        finally:
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work


@dataclass(kw_only=True)
class Running:
    """A loop that runs for one plan; what it hears comes from polls of the server."""

    home: Home
    process: Process
    name: str = PLAN
    versions: list[Object] = field(default_factory=list[Object])
    """Of the plan, each once."""

    @property
    def key(self) -> tuple[str, str]:
        """Name the plan."""
        return self.home.namespace, self.name

    async def settled(self) -> None:
        """Wait until nothing more is changed.

        Raises:
            AssertionError: there is no end to it.
        """
        for _ in range(MOST_LOOKS):
            before = len(self.process.effects.done)
            await asyncio.sleep(QUIET_S)
            if len(self.process.effects.done) == before:
                return
        raise AssertionError(f"it goes on: {self.process.effects.done[-20:]}")

    @property
    def written(self) -> Counter[str]:
        """Count what was changed, by what it was."""
        return Counter(self.process.effects.done)

    async def until(
        self, what: str, holds: Callable[[PlanObject], bool], *, most_s: float = 120.0
    ) -> PlanObject:
        """Wait until the plan is as wanted.

        Raises:
            AssertionError: time is up; with the status.
        """
        until_s = time.monotonic() + most_s
        while True:
            plan = await self.home.plan(self.name)
            if holds(plan):
                return plan
            if time.monotonic() > until_s:
                text = json.dumps(
                    [
                        plan.status.to_json(),
                        await self.home.api.list(JOBS, self.home.namespace),
                        await self.home.api.list(PODS, self.home.namespace),
                    ]
                )
                raise AssertionError(f"not {what} after {most_s} s: {text}")
            await asyncio.sleep(POLL_S)

    async def launched(self) -> PlanObject:
        """Wait until the ranks of the plan run, and return it as it is then."""
        return await self.until(
            "running", lambda plan: reason(plan, "Launched") == "Started"
        )

    async def over(self) -> Status:
        """Wait for the end of the plan, and return its status then."""
        plan = await self.until("over", lambda plan: plan.status.is_over)
        return plan.status

    async def hear(self) -> None:
        """Poll the plan and its Jobs, as watches would show them."""
        seen: set[str] = set()
        there: set[str] = set()
        while True:
            found = await self.home.api.get(PLANS, *self.key)
            jobs = await self.home.api.list(JOBS, self.home.namespace)
            names = {one["metadata"]["name"] for one in jobs}
            if there - names:
                self.process.queue.add(self.key)
            there = names
            for one in [*([found] if found else []), *jobs]:
                version = one["metadata"]["resourceVersion"]
                if version in seen:
                    continue
                seen.add(version)
                if one is found:
                    self.versions.append(one)
                    uid = one["metadata"]["uid"]
                    self.process.loop.heard(self.key, uid, version, False)
                else:
                    self.process.queue.add(self.key)
            await asyncio.sleep(POLL_S)


@asynccontextmanager
async def running(
    home: Home, process: Process | None = None, name: str = PLAN
) -> AsyncGenerator[Running]:
    """Run a loop for a plan."""
    run = Running(home=home, process=process or home.process(), name=name)
    tasks = [
        asyncio.create_task(run.process.loop.work()),
        asyncio.create_task(run.hear()),
    ]
    try:
        yield run
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await run.process.solver.close()


def reason(plan: PlanObject, kind: str) -> str:
    """Reason of a condition; empty if there is none."""
    found = next((one for one in plan.status.conditions if one.type == kind), None)
    return found.reason if found is not None else ""


def message(plan: PlanObject, kind: str) -> str:
    """Message of a condition."""
    found = next((one for one in plan.status.conditions if one.type == kind), None)
    return found.message if found is not None else ""
