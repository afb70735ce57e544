"""What the loop makes of what the watches hear; whole passes run on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import cast

import pytest

from plimsoll_operator.control.loop import Loop
from plimsoll_operator.control.observe import PlanObserver
from plimsoll_operator.control.reconcile import Reconciler
from plimsoll_operator.control.reporting import PassReporter
from plimsoll_operator.control.work_queue import WorkQueue
from plimsoll_operator.errors import StoreDownError
from plimsoll_operator.kube.api import PLANS, Api, Kind, Object
from plimsoll_operator.objects.events import EventWriter
from plimsoll_operator.objects.pod_template import Release
from plimsoll_operator.solving.solver import Solver
from plimsoll_operator.store.database import Database
from plimsoll_operator.store.store import Store
from plimsoll_operator.telemetry.metrics import Metrics
from tests.support.cluster_objects import LATER_S, OWNER

KEY, OTHER = ("team", "tiny"), ("team", "other")
UID = OWNER.uid
HEARD = "trainingplan_watch_last_event_timestamp_seconds"


def nowhere(namespace: str) -> PlanObserver:
    """Make no pass: nothing here looks at a plan."""
    raise AssertionError(namespace)


@dataclass
class Home:
    """A loop without a server, and the time."""

    now_s: float = LATER_S
    metrics: Metrics = field(default_factory=lambda: Metrics(per_plan=False))

    def __post_init__(self) -> None:
        """Hear of nothing yet."""
        api = Api(None)
        self.queue = WorkQueue(lambda: self.now_s, lambda: 0.0)
        reconciler = Reconciler(
            api=api,
            queue=self.queue,
            observer_of=nowhere,
            solver=Solver(1, self.queue.add),
            release=Release(runtime_image="a", ingest_url="b"),
            reporter=PassReporter(metrics=self.metrics, events=EventWriter(api, "a")),
            may_decide=lambda: True,
            clock=lambda: self.now_s,
            monotonic=lambda: self.now_s,
        )
        self.loop = Loop(
            api=api,
            store=Store(cast("Database", None)),
            queue=self.queue,
            reconciler=reconciler,
            metrics=self.metrics,
            namespaces=(),
            clock=lambda: self.now_s,
            monotonic=lambda: self.now_s,
            random=lambda: 0.5,
        )

    def heard_s(self, kind: str) -> float | None:
        """When a kind was heard of, as Prometheus is told."""
        return self.metrics.registry.get_sample_value(HEARD, {"kind": kind})


def test_the_time_of_the_latest_event_of_each_watch_is_told() -> None:
    """Of a kind of which nothing was heard there is no time at all."""
    home = Home()
    assert (home.heard_s("trainingplans"), home.heard_s("jobs")) == (None, None)
    home.loop.heard(KEY, UID, "7", False)
    home.now_s += 5
    home.loop.owned_changed(KEY, "job", "1", "jobs")
    assert home.heard_s("trainingplans") == LATER_S
    assert home.heard_s("jobs") == LATER_S + 5
    home.now_s += 5
    home.loop.heard(KEY, UID, "8", True)
    assert home.heard_s("trainingplans") == LATER_S + 10


def test_a_list_is_no_event() -> None:
    """That a watch is believed in does not make it one that has spoken."""
    home = Home()
    home.loop.judge_watch({})
    assert home.loop.heard_s == LATER_S
    assert home.heard_s("trainingplans") is None


@pytest.mark.parametrize(
    ("version", "is_deleted", "num_due"),
    [("7", False, 0), ("8", False, 1), ("7", True, 1)],
)
def test_what_we_wrote_ourselves_is_no_news(
    version: str, is_deleted: bool, num_due: int
) -> None:
    """Any other version is looked at, and so is a plan that went."""
    home = Home()
    home.loop.reconciler.written[KEY] = "7"
    home.loop.heard(KEY, UID, version, is_deleted)
    assert len(home.queue) == num_due


def test_a_plan_is_known_from_its_first_event_on() -> None:
    """What its pods tell is brought to it, before all plans are listed again."""
    home = Home()
    home.loop.heard(KEY, UID, "7", False)
    assert home.loop.keys == {UID: KEY}
    home.loop.heard(KEY, UID, "8", True)
    assert home.loop.keys == {}


def test_an_event_of_a_job_has_its_plan_looked_at() -> None:
    """Now, whatever was asked for before."""
    home = Home()
    home.queue.add_at(KEY, LATER_S + 60)
    assert home.queue.due_since_s is None
    home.loop.owned_changed(KEY, "job", "1", "jobs")
    assert home.queue.due_since_s == LATER_S


def test_a_job_that_the_first_look_has_seen_is_no_news() -> None:
    """Once: the watch begins with what was there. Whatever comes later is news."""
    home = Home()
    home.loop.known_workloads["job"] = "7"
    home.loop.owned_changed(KEY, "job", "7", "jobs")
    assert home.queue.due_since_s is None
    home.loop.owned_changed(KEY, "job", "7", "jobs")
    assert home.queue.due_since_s == LATER_S


def test_a_watch_is_deaf_that_keeps_back_what_a_list_shows_for_a_minute() -> None:
    """One list ahead of it is no proof: its event may be under way."""
    home = Home()
    for version, heard, believed in (
        (7, None, True),  # just listed
        (7, None, False),  # and not brought since
        (9, "7", True),  # brought, with a newer one under way
        (9, "8", False),
        (9, "9", True),
    ):
        home.now_s += 60
        if heard is not None:
            home.loop.heard(KEY, UID, heard, False)
        home.loop.judge_watch({KEY: version})
        assert (home.loop.heard_s == home.now_s) is believed


def test_a_plan_that_went_proves_nothing_against_a_watch() -> None:
    """It was listed, and no event of it need come any more."""
    home = Home()
    home.loop.judge_watch({KEY: 7, OTHER: 8})
    home.loop.heard(OTHER, UID, "8", False)
    home.now_s += 60
    home.loop.judge_watch({OTHER: 8})
    assert home.loop.heard_s == home.now_s


class Listing(Api):
    """Lists one plan; something may happen meanwhile."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        """Ask no server."""
        super().__init__(None)
        self.meanwhile = meanwhile

    async def pages(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        labels: str = "",
        metadata_only: bool = False,
    ) -> AsyncGenerator[list[Object]]:
        """Yield the only page."""
        assert (kind, namespace, metadata_only, labels) == (PLANS, "", True, "")
        metadata = {"namespace": KEY[0], "name": KEY[1], "uid": UID}
        yield [{"metadata": metadata | {"resourceVersion": "7"}}]
        self.meanwhile()


class Kept(Store):
    """Knows some plans, or answers nothing at all."""

    def __init__(self, *uids: str, is_down: bool = False) -> None:
        """Keep nothing anywhere."""
        super().__init__(cast("Database", None))
        self.uids, self.is_down = set(uids), is_down

    async def known_plans(self) -> set[str]:
        """Uids of all plans."""
        self.require_up()
        return set(self.uids)

    async def forget(self, plan_uid: str) -> None:
        """Forget a plan."""
        self.require_up()
        self.uids.remove(plan_uid)

    def require_up(self) -> None:
        """Answer nothing while down."""
        if self.is_down:
            raise StoreDownError("the store is down")


def synced(loop: Loop) -> None:
    """List all plans once."""

    async def once() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.1):  # the next time is a minute later
                await loop.sync()

    asyncio.run(once())


def test_a_watch_is_believed_in_while_the_store_is_down() -> None:
    """Else the operator would be started anew for it, again and again."""
    home = Home()
    home.loop.api = Listing(lambda: None)
    home.loop.store = Kept(is_down=True)
    home.loop.latest[KEY] = 7
    home.now_s += 400
    synced(home.loop)
    assert home.loop.heard_s == home.now_s
    assert home.loop.keys == {UID: KEY}


def test_what_begins_while_plans_are_listed_is_not_forgotten() -> None:
    """Its question may be in the store, and its pods may have told something."""
    home = Home()
    store = home.loop.store = Kept(UID, "gone")

    def meanwhile() -> None:
        store.uids.add("new")
        home.loop.heard(OTHER, "new", "8", False)

    home.loop.api = Listing(meanwhile)
    synced(home.loop)
    assert store.uids == {UID, "new"}
    assert home.loop.keys == {UID: KEY, "new": OTHER}
