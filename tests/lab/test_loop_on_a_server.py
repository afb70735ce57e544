"""The whole loop on a real API server: plans go through all conditions, and survive.

Pods have no nodes: `tests.lab.loops.Kubelets` say what kubelets would. Nothing may hold
the event loop meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from plimsoll_operator.api.status import ConditionType, Truth
from plimsoll_operator.control.initial_sync import InitialSync
from plimsoll_operator.kube.api import (
    CONFIG_MAPS,
    JOBS,
    PLANS,
    PODS,
    SERVICES,
    Kind,
    Object,
    open_api,
)
from plimsoll_operator.objects.pods import is_true
from plimsoll_operator.rules.rehearsing import NO_DEVICE
from plimsoll_planner.exit_codes import ExitCode
from tests.lab import event_loops
from tests.lab.cluster import Cluster
from tests.lab.kubelets import POLL_S, RUNS
from tests.lab.loops import (
    A_SPEC,
    OFFERS,
    PLAN,
    TABLE,
    Home,
    Process,
    at_home,
    message,
    reason,
    running,
)
from tests.support.loop_watch import nothing_holds_the_loop

pytestmark = pytest.mark.control_plane

Work = Callable[[Home], Awaitable[None]]
OnServer = Callable[[Work], None]
TRAIN = (PLAN, "train")
LARGER = TABLE.replace("6144", "12288")
"""Devices of which one is enough, until it is known that they have less."""
MOST_S = 180.0
WAIT_S = 20
"""For a device: enough for the pods of a gang to begin in, on a busy machine."""
MOST_WRITES = 12
"""Of the status of a plan that meets with nothing: two for each condition."""


@pytest.fixture
def on_server(server: Cluster, namespace: str, tmp_path: Path) -> OnServer:
    """Runner of work in a namespace of the server."""

    def run(work: Work) -> None:
        async def opened() -> None:
            async with (
                open_api(str(server.kubeconfig)) as api,
                at_home(api, namespace, tmp_path) as home,
            ):
                await work(home)

        with nothing_holds_the_loop():
            event_loops.run(opened())

    return run


async def kinds_of_maps(home: Home) -> list[str]:
    """Purposes of the ConfigMaps that are left of a plan."""
    return [name.split("-")[1] for name in await home.names(CONFIG_MAPS)]


def test_a_plan_comes_to_its_end(on_server: OnServer) -> None:
    """Each task is made once, each status is written once, and little is left.

    What is read of a status is what was written, or there were no end to writing.
    """

    async def work(home: Home) -> None:
        plan = await home.create()
        async with running(home) as run:
            status = await run.over()
            await run.settled()
        found = await home.api.get(PLANS, *run.key)
        assert found is not None
        assert not {"annotations", "finalizers"} & set(found["metadata"])
        assert all(condition.status is Truth.TRUE for condition in status.conditions)
        assert (status.attempt, status.workload_ref is None) == (1, False)
        written = run.written
        assert written.pop(f"patch {PLAN} status") <= MOST_WRITES
        assert sum(number for what, number in written.items() if "-train-" in what) == 1
        statuses = [one.get("status") for one in run.versions]
        assert all(one != other for one, other in pairwise(statuses))
        assert await home.names(JOBS) == [f"{PLAN}-train-1"]  # for its logs
        assert await kinds_of_maps(home) == ["answer", "plan", "question", "result"]
        for kind in (CONFIG_MAPS, SERVICES):
            for one in await home.api.list(kind, home.namespace):
                if one["metadata"]["name"].startswith(PLAN):
                    assert plan.owner.owns(one)

    on_server(work)


def test_a_gang_that_is_out_of_memory_is_planned_anew(on_server: OnServer) -> None:
    """Reports of its ranks are kept, and the next attempt has another question."""

    async def work(home: Home) -> None:
        home.kubelets.endings[TRAIN] = [ExitCode.DEVICE_OUT_OF_MEMORY]
        await home.create()
        async with running(home) as run:
            status = await run.over()
        condition = status.condition(ConditionType.SUCCEEDED)
        assert condition is not None
        assert condition.reason == "Trained", condition.message
        assert (status.attempt, status.failures.out_of_memory) == (2, 1)
        assert f"{PLAN}-plan-2" in await home.names(CONFIG_MAPS)

    on_server(work)


def test_a_plan_that_ran_out_when_rehearsed_is_planned_anew(
    on_server: OnServer,
) -> None:
    """Each plan is rehearsed once, on one device; of its Jobs and inputs none is left.

    No attempt is made of what did not fit.
    """

    async def work(home: Home) -> None:
        home.kubelets.verdicts = [False]
        table = {"data": {"offers.csv": LARGER}}
        await home.api.patch(CONFIG_MAPS, home.namespace, OFFERS, table)
        await home.create(launch={"rehearse": "Always"})
        async with running(home) as run:
            status = await run.over()
            await run.settled()
        condition = status.condition(ConditionType.CERTIFIED)
        assert condition is not None
        assert condition.reason == "Rehearsed", condition.message
        assert (
            "the plan before ran out of memory when it was rehearsed"
            in condition.message
        )
        assert status.holds(ConditionType.SUCCEEDED)
        assert (status.attempt, status.failures.out_of_memory) == (1, 0)
        asked = [one for one in home.kubelets.gpus if one[0] == "rehearsal"]
        assert asked == [("rehearsal", 1)] * 2
        assert await home.names(JOBS) == [f"{PLAN}-train-1"]  # for its logs
        assert await kinds_of_maps(home) == ["answer", "plan", "question", "result"]

    on_server(work)


def test_a_wish_for_a_rehearsal_waits_no_longer_than_it_may(
    on_server: OnServer,
) -> None:
    """Without a free device the plan is launched, and its pod takes none from it."""

    async def work(home: Home) -> None:
        home.kubelets.held_back = ("rehearsal",)
        wish = {"rehearse": "IfDevice"}
        await home.create(launch=wish, runPolicy={"pendingSeconds": WAIT_S})
        async with running(home) as run:
            await run.until(
                "pending", lambda plan: reason(plan, "Certified") == "RehearsalPending"
            )
            status = await run.over()
            await run.settled()
        condition = status.condition(ConditionType.CERTIFIED)
        assert condition is not None
        assert (condition.reason, condition.message) == ("Replayed", NO_DEVICE)
        assert status.holds(ConditionType.SUCCEEDED)
        assert await home.names(JOBS) == [f"{PLAN}-train-1"]

    on_server(work)


def test_a_plan_that_trains_needs_one_glance_of_a_new_operator(
    on_server: OnServer,
) -> None:
    """It writes nothing and makes no pass, but for a gang that ended meanwhile."""

    async def glance(home: Home) -> Process:
        process = home.process()
        await InitialSync(loop=process.loop).make()
        assert process.effects.done == []
        return process

    async def work(home: Home) -> None:
        home.kubelets.endings[TRAIN] = [RUNS]
        await home.create()
        async with running(home) as run:
            await run.launched()
            await run.settled()
        process = await glance(home)
        version = (await home.plan()).version
        assert process.loop.reconciler.written == {run.key: version}
        for known in list(process.loop.known_workloads.items()):
            process.loop.owned_changed(run.key, *known, JOBS.plural)
        assert process.queue.due_since_s is None
        gang = JOBS, home.namespace, f"{PLAN}-train-1"
        job = await home.api.get(*gang)
        while job is not None and not is_true(job, "Complete"):
            home.kubelets.jobs[job["metadata"]["uid"]] = ExitCode.DONE
            await asyncio.sleep(POLL_S)
            job = await home.api.get(*gang)
        assert (await glance(home)).loop.reconciler.written == {}
        async with running(home) as run:
            assert (await run.over()).holds(ConditionType.SUCCEEDED)
            await run.settled()
        version = (await home.plan()).version
        assert (await glance(home)).loop.reconciler.written == {run.key: version}

    on_server(work)


def test_a_plan_is_suspended_and_resumed(on_server: OnServer) -> None:
    """Its Job goes, no failure is counted, and a second attempt goes on."""

    async def work(home: Home) -> None:
        home.kubelets.endings[TRAIN] = [RUNS]
        await home.create()
        async with running(home) as run:
            await run.launched()
            await home.edit(suspend=True)
            plan = await run.until(
                "suspended", lambda plan: reason(plan, "Launched") == "Suspended"
            )
            assert not plan.status.is_over
            await run.settled()
            assert await home.names(JOBS) == []
            await home.edit(suspend=False)
            status = await run.over()
        assert (status.attempt, status.failures.application) == (2, 0)

    on_server(work)


def test_whoever_resumes_too_soon_loses_nothing(on_server: OnServer) -> None:
    """A gang that was asked to leave goes; it does not count as somebody's deletion."""

    async def work(home: Home) -> None:
        home.kubelets.endings[TRAIN] = [RUNS]
        await home.create()
        async with running(home) as run:
            await run.launched()
            await home.edit(suspend=True)
            await run.until(
                "asked to leave",
                lambda plan: reason(plan, "Succeeded") != "Running",
            )
            await home.edit(suspend=False)
            status = await run.over()
        assert (status.attempt, status.failures.application) == (2, 0)

    on_server(work)


def test_a_gang_that_never_begins_is_given_up(on_server: OnServer) -> None:
    """In the words of the scheduler, and once: there is no second attempt."""

    async def work(home: Home) -> None:
        home.kubelets.held_back = ("train",)
        await home.create(runPolicy={"pendingSeconds": 3600})
        process = home.process()
        async with running(home, process) as run:
            await run.until(
                "pending", lambda plan: bool(message(plan, "Launched")), most_s=90
            )
            process.moved_s = 4000.0
            status = await run.over()
        condition = status.condition(ConditionType.SUCCEEDED)
        assert condition is not None
        assert (condition.reason, status.attempt) == ("PendingTimeout", 1)
        assert "pods run" in condition.message or "nodes" in condition.message

    on_server(work)


def test_a_job_that_a_person_deletes_is_tried_again(on_server: OnServer) -> None:
    """It counts as a failure of the application, and says what happened."""

    async def work(home: Home) -> None:
        home.kubelets.endings[TRAIN] = [RUNS]
        await home.create()
        async with running(home) as run:
            plan = await run.launched()
            ref = plan.status.workload_ref
            assert ref is not None
            await home.api.delete(JOBS, home.namespace, ref.name, uid=ref.uid)
            plan = await run.until(
                "backing off", lambda plan: reason(plan, "Launched") == "BackingOff"
            )
            assert plan.status.failures.application == 1
            assert "was deleted by somebody" in message(plan, "Succeeded")
            run.process.moved_s += 60.0
            run.process.queue.add(run.key)
            status = await run.over()
        assert status.attempt == 2

    on_server(work)


def test_an_edit_before_the_launch_plans_anew(on_server: OnServer) -> None:
    """The replay of the plan before is of no use, and the new plan is launched."""

    async def work(home: Home) -> None:
        home.kubelets.endings[PLAN, "replay"] = [RUNS]
        await home.create()
        async with running(home) as run:
            await run.until(
                "replaying", lambda plan: reason(plan, "Certified") == "ReplayPending"
            )
            await home.edit(override={"gpus": 4})
            status = await run.over()
            await run.settled()
        assert status.plan is not None
        assert status.plan.gpus == 4
        assert await home.names(JOBS) == [f"{PLAN}-train-1"]  # for its logs

    on_server(work)


@pytest.mark.parametrize(
    ("stage", "condition"),
    [
        ("ProfilePending", "Profiled"),
        ("ReplayPending", "Certified"),
        ("Started", "Launched"),
    ],
)
def test_a_deleted_plan_leaves_nothing(
    on_server: OnServer, stage: str, condition: str
) -> None:
    """At every stage the server's garbage collector removes what was made."""

    async def work(home: Home) -> None:
        for name in ("profile", "replay", "train"):
            runs = name.title() in stage or name == "train"
            home.kubelets.endings[PLAN, name] = [RUNS if runs else ExitCode.DONE]
        plan = await home.create()
        async with running(home) as run:
            await run.until(stage, lambda plan: reason(plan, condition) == stage)
            await home.api.delete(PLANS, *run.key, uid=plan.owner.uid)
            for kind in (JOBS, CONFIG_MAPS, SERVICES, PODS):
                await eventually(home.names, kind, [])

    on_server(work)


async def eventually(
    names: Callable[[Kind], Awaitable[list[str]]], kind: Kind, wanted: list[str]
) -> None:
    """Wait until there is what is wanted."""
    until_s = time.monotonic() + MOST_S
    while (found := await names(kind)) != wanted:
        assert time.monotonic() < until_s, (kind.plural, found)
        await asyncio.sleep(0.1)


def somebodys(kind: str, name: str) -> Object:
    """Object that belongs to nobody."""
    made: Object = {"kind": kind, "metadata": {"name": name}}
    if kind == "Job":
        pods = A_SPEC["template"]["spec"] | {"restartPolicy": "Never"}
        spec = {"suspend": True, "template": {"spec": pods}}
        return made | {"apiVersion": "batch/v1", "spec": spec}
    spec = {"clusterIP": "None", "selector": {"a": "b"}} if kind == "Service" else {}
    return made | {"apiVersion": "v1"} | ({"spec": spec} if spec else {})


@pytest.mark.parametrize(
    ("kind", "made", "condition", "expected"),
    [
        (JOBS, somebodys("Job", f"{PLAN}-train-1"), "Launched", "Pending"),
        (SERVICES, somebodys("Service", f"{PLAN}-ranks"), "Launched", "Pending"),
        (
            CONFIG_MAPS,
            somebodys("ConfigMap", f"{PLAN}-plan-1"),
            "Accepted",
            "InvalidSpec",
        ),
    ],
)
def test_what_stands_in_the_way_is_waited_for(
    on_server: OnServer, kind: Kind, made: Object, condition: str, expected: str
) -> None:
    """It is named, left alone, and the plan goes on when it is gone."""

    async def work(home: Home) -> None:
        name = made["metadata"]["name"]
        there = (await home.api.create(kind, home.namespace, made)).object["metadata"]
        await home.create()
        async with running(home) as run:
            plan = await run.until(
                "waiting",
                lambda plan: "belongs to somebody" in message(plan, condition),
            )
            assert reason(plan, condition) == expected
            assert message(plan, condition) == (
                f"{made['kind']} {home.namespace}/{name} belongs to somebody else: "
                "delete it, or give the plan another name"
            )
            await run.settled()
            await home.api.delete(kind, home.namespace, name, uid=there["uid"])
            run.process.queue.add(run.key)
            status = await run.over()
        assert status.holds(ConditionType.SUCCEEDED)

    on_server(work)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (
            {"search": A_SPEC["search"] | {"offers": {"configMap": "none"}}},
            "spec.search.offers.configMap: got 'none'",
        ),
        (
            {"checkpoint": {"claimName": "none"}},
            "spec.checkpoint.claimName: got 'none'",
        ),
        (
            {"checkpoint": {"resumeFrom": "old/step-00000010"}},
            "spec.checkpoint.resumeFrom: got 'old/step-00000010'",
        ),
        (
            {"checkpoint": {"exportWeights": True}},
            "spec.checkpoint.exportWeights: got 'true', allowed is given with",
        ),
        (
            {"checkpoint": {"path": "/home/me"}},
            "spec.checkpoint.path: got '/home/me', allowed is a path below the claim",
        ),
        (
            {"checkpoint": {"path": "../other"}},
            "spec.checkpoint.path: got '../other', allowed is a path below the claim",
        ),
        (
            {"launch": {"backend": "JobSet"}},
            "spec.launch.backend: got 'JobSet'",
        ),
        (
            {"template": {"spec": A_SPEC["template"]["spec"] | {"tolerationz": []}}},
            'unknown field "spec.template.spec.tolerationz"',
        ),
        (
            {
                "template": {
                    "spec": A_SPEC["template"]["spec"] | {"serviceAccountName": "none"}
                }
            },
            'serviceaccount "none" not found',
        ),
        (
            {"template": {"spec": {"containers": [{"image": "a", "args": ["b"]}]}}},
            "spec.template.spec.containers[0].args",
        ),
    ],
)
def test_what_cannot_be_launched_is_said_before_any_work(
    on_server: OnServer, spec: dict[str, Any], text: str
) -> None:
    """Nothing is profiled for it; the message says what to change."""

    async def work(home: Home) -> None:
        await home.create(**spec)
        async with running(home) as run:
            plan = await run.until(
                "refused", lambda plan: bool(message(plan, "Accepted"))
            )
            assert text in message(plan, "Accepted")
            assert reason(plan, "Accepted") == "InvalidSpec"
            await run.settled()
            assert await home.names(JOBS) == []
            assert run.written == {f"patch {PLAN} status": 1}
            await home.edit(**repaired(spec))
            await run.until(
                "accepted", lambda plan: reason(plan, "Accepted") == "Valid"
            )

    on_server(work)


def repaired(spec: dict[str, Any]) -> dict[str, Any]:
    """Fields of a spec as they are in a good one, null where absent."""
    good = {name: A_SPEC.get(name) for name in spec}
    if good.get("template"):
        good["template"] = {
            "spec": A_SPEC["template"]["spec"]
            | dict.fromkeys(
                set(spec["template"]["spec"]) - set(A_SPEC["template"]["spec"])
            )
        }
    return good


def test_a_namespace_that_is_restricted_refuses_pods_with_its_reason(
    server: Cluster, namespace: str, on_server: OnServer
) -> None:
    """A pod is tried out as well as its Job, which such a namespace takes."""
    level = "pod-security.kubernetes.io/enforce=restricted"
    server.kubectl("label", "namespace", namespace, level)

    async def work(home: Home) -> None:
        await home.create()
        async with running(home) as run:
            plan = await run.until(
                "refused", lambda plan: bool(message(plan, "Accepted"))
            )
            assert "the cluster refuses its Pod" in message(plan, "Accepted")
            assert "restricted" in message(plan, "Accepted")

    on_server(work)


def test_nonsense_prices_are_said_where_they_stand(on_server: OnServer) -> None:
    """With ConfigMap, line and column; a good table is then taken."""

    async def work(home: Home) -> None:
        table = await home.api.get(CONFIG_MAPS, home.namespace, OFFERS)
        assert table is not None
        [head, row] = table["data"]["offers.csv"].splitlines()
        bad = f"{head},Price\n{row},free\n"
        await home.api.patch(
            CONFIG_MAPS, home.namespace, OFFERS, {"data": {"offers.csv": bad}}
        )
        await home.create()
        async with running(home) as run:
            plan = await run.until(
                "refused", lambda plan: bool(message(plan, "Accepted"))
            )
            assert "line 2, Price: got 'free'" in message(plan, "Accepted")

    on_server(work)
