"""How many plans an operator carries, on a real control plane with nodes on paper.

Bars: created plans come to Accepted at 0.4 or more of the rate of a bare client that
makes the same requests in the same run; 5,000 launched plans that nothing happens to
cost less than 200 MiB and 0.3 of a core; from the start of the process to the last of
5,000 plans with 20,000 pods looked at: less than 30 s.

PLIMSOLL_BENCH_PLANS sets another number than 5,000. Jobs are not the controller's
(`managedBy`), for it would make 20 pods a second; pods are created bound.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.frame import CannotRunError, Goal, Measurement, run
from plimsoll_operator.api.definition import definition
from plimsoll_operator.backends import admission
from plimsoll_operator.backends.pods.job import JobBackend
from plimsoll_operator.kube.api import (
    CONFIG_MAPS,
    JOBS,
    NODES,
    PLANS,
    PODS,
    Api,
    Kind,
    Object,
    open_api,
)
from plimsoll_operator.names import API_VERSION, KIND, PLAN_LABEL
from plimsoll_operator.objects.manifests import Owner, task_metadata
from plimsoll_operator.objects.plans import plan_of
from plimsoll_operator.objects.pod_template import Release, pod_template
from plimsoll_operator.objects.record_maps import plan_map
from plimsoll_operator.rules.actions import RecordPlan
from plimsoll_planner.records.task import TaskKind
from tests.lab import kwok, owner
from tests.lab.errors import LabError
from tests.lab.gpus import Gpus
from tests.lab.prepare import require
from tests.support.builders import a_plan

NUM_NEW = 400
"""Plans that are created, to see how soon they are accepted."""
NUM_PLANS = int(os.environ.get("PLIMSOLL_BENCH_PLANS", "5000"))
PODS_OF_PLAN = 4
NUM_NODES = 200
SETTLED_S = 90.0
"""For the first events of the watches, which tell what is known."""
IDLE_S = 60.0
"""For which an idle operator is watched."""
AT_ONCE = 16
"""Requests of the bare client; as many as the operator has workers."""
PATIENCE_S = 900.0
RELEASE = Release(runtime_image="plimsoll/runtime:bench", ingest_url="http://nowhere")
NOW = "2026-11-22T12:00:00Z"
SPEC: Object = {
    "workload": {"entrypoint": "examples.mlp:workload"},
    "training": {"globalBatchSize": 8, "steps": 10},
    "profile": {"policy": "Never"},
    "template": {
        "spec": {
            "containers": [{"image": "plimsoll/examples:bench"}],
            "nodeSelector": kwok.SELECTOR,
            "tolerations": [kwok.TOLERATION],
        }
    },
}


@dataclass(frozen=True, kw_only=True)
class Running:
    """An operator, as a process of its own."""

    process: psutil.Popen
    http_port: int

    def counted(self, name: str) -> float:
        """Sum of all series of a metric."""
        url = f"http://127.0.0.1:{self.http_port}/metrics?name[]={name}"
        try:
            with urllib.request.urlopen(url, timeout=10) as reply:
                text = reply.read().decode()
        except OSError:
            return 0.0
        pattern = rf"^{name}(?:\{{[^}}]*\}})? (\S+)$"
        return sum(float(value) for value in re.findall(pattern, text, re.MULTILINE))


def a_new_plan(namespace: str, number: int) -> Object:
    """Plan as a person creates it."""
    metadata = {"name": f"plan-{number}", "namespace": namespace}
    made = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata}
    return made | {"spec": SPEC}


async def in_turn(
    work: Callable[[int], Coroutine[Any, Any, object]], number: int
) -> None:
    """Do something so many times, some at once."""
    turns = iter(range(number))

    async def worker() -> None:
        for turn in turns:
            await work(turn)

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))


@asynccontextmanager
async def an_operator(kubeconfig: Path, folder: Path) -> AsyncGenerator[Running]:
    """Run an operator on a cluster."""
    environment = {
        "KUBECONFIG": str(kubeconfig),
        "PLIMSOLL_DATABASE": str(folder / "bench.db"),
        "PLIMSOLL_NAMESPACE": "default",
        "PLIMSOLL_POD_NAME": "bench",
        "PLIMSOLL_RUNTIME_IMAGE": RELEASE.runtime_image,
        "PLIMSOLL_INGEST_URL": RELEASE.ingest_url,
        "PLIMSOLL_HTTP_PORT": "18080",
        "PLIMSOLL_INGEST_PORT": "18090",
        "PLIMSOLL_WATCH_NAMESPACES": "watched",
        "PLIMSOLL_LOG_LEVEL": "warning",
        "PLIMSOLL_LOG_FORMAT": "text",
    }
    with (folder / "operator.log").open("ab") as log:
        process = psutil.Popen(
            [sys.executable, "-m", "plimsoll_operator"],
            env=os.environ | environment,
            stdout=log,
            stderr=log,
        )
    try:
        yield Running(process=process, http_port=18080)
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, 30)


async def until(what: str, holds: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    """Wait for something.

    Raises:
        TimeoutError: it does not come.
    """
    end_s = time.monotonic() + PATIENCE_S
    while not await holds():
        if time.monotonic() > end_s:
            raise TimeoutError(f"{what}: not within {PATIENCE_S:g} s")
        await asyncio.sleep(0.1)


async def accept_bare(api: Api, namespace: str) -> float:
    """Create plans and ask of each what the operator asks; return plans a second."""
    await namespace_for(api, namespace)

    async def one(number: int) -> None:
        made = await api.create(PLANS, namespace, a_new_plan(namespace, number))
        plan = plan_of(made.object)
        parts = admission.dry_parts(plan, a_plan().offers[0])
        pods = pod_template(SPEC["template"], parts, RELEASE)
        job = JobBackend.render(task_metadata(plan.owner, TaskKind.TRAIN, "0"), pods)
        await api.create(JOBS, namespace, job, dry_run=True)
        await api.create(PODS, namespace, admission.pod_of(job, pods), dry_run=True)
        change = {"metadata": {"resourceVersion": plan.version}, "status": STATUS}
        await api.patch(PLANS, namespace, plan.owner.name, change, part="status")

    began_s = time.monotonic()
    await in_turn(one, NUM_NEW)
    return NUM_NEW / (time.monotonic() - began_s)


async def accept_watched(api: Api, namespace: str, running: Running) -> float:
    """Create plans while an operator watches; return plans accepted a second."""
    before = await asyncio.to_thread(running.counted, "trainingplan_plans_total")

    async def create(number: int) -> None:
        await api.create(PLANS, namespace, a_new_plan(namespace, number))

    async def all_over() -> bool:
        over = await asyncio.to_thread(running.counted, "trainingplan_plans_total")
        return over - before >= NUM_NEW

    began_s = time.monotonic()
    await in_turn(create, NUM_NEW)
    await until("all plans accepted", all_over)
    return NUM_NEW / (time.monotonic() - began_s)


def conditions(*, launched: bool) -> list[Object]:
    """Conditions as the operator writes them."""
    found = {
        "Accepted": ("True", "Valid"),
        "Profiled": ("True", "Measured") if launched else ("False", "ProfileMissing"),
        "Planned": ("True", "Proven") if launched else ("Unknown", "Waiting"),
        "Certified": ("True", "Replayed") if launched else ("Unknown", "Waiting"),
        "Launched": ("True", "Started") if launched else ("Unknown", "Waiting"),
        "Succeeded": ("Unknown", "Running")
        if launched
        else ("False", "ProfileMissing"),
    }
    return [
        {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": "",
            "observedGeneration": 1,
            "lastTransitionTime": NOW,
        }
        for kind, (status, reason) in found.items()
    ]


STATUS: Object = {
    "observedGeneration": 1,
    "conditions": conditions(launched=False),
    "startTime": NOW,
    "completionTime": NOW,
}


async def launch_by_hand(api: Api, namespace: str, number: int) -> None:
    """Make a plan that trains, with all that an operator would have made for it."""
    wanted = a_new_plan(namespace, number)
    plan = plan_of((await api.create(PLANS, namespace, wanted)).object)
    chosen = RecordPlan(attempt=1, plan=a_plan(), problem_digest="", asked_digest="")
    of_record = plan_map(plan.owner, chosen, 0.0)
    await api.create(CONFIG_MAPS, namespace, of_record)
    parts = admission.dry_parts(plan, a_plan().offers[0])
    job = JobBackend.render(
        task_metadata(plan.owner, TaskKind.TRAIN, "1"),
        pod_template(SPEC["template"], parts, RELEASE),
        PODS_OF_PLAN,
    )
    job["spec"]["managedBy"] = "plimsoll.dev/bench"
    job = (await api.create(JOBS, namespace, job)).object
    began = {"status": {"startTime": NOW, "active": 4, "ready": PODS_OF_PLAN}}
    await api.patch(JOBS, namespace, job["metadata"]["name"], began, part="status")
    ref = {name: job["metadata"][name] for name in ("name", "uid")} | {"attempt": 1}
    status = {
        "observedGeneration": 1,
        "conditions": conditions(launched=True),
        "startTime": NOW,
        "attempt": 1,
        "workloadRef": ref,
    }
    change = {"status": status}
    await api.patch(PLANS, namespace, plan.owner.name, change, part="status")
    for index in range(PODS_OF_PLAN):
        await api.create(PODS, namespace, bound_pod(plan.owner, job, number, index))


def bound_pod(plan: Owner, job: Object, number: int, index: int) -> Object:
    """Pod of a Job that is placed on a node on paper."""
    reference = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
        "controller": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{job['metadata']['name']}-{index}",
            "labels": {PLAN_LABEL: plan.name},
            "ownerReferences": [reference],
        },
        "spec": {
            "nodeName": f"paper-{number % NUM_NODES}",
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "trainer", "image": "plimsoll/examples:bench"}],
        },
    }


async def namespace_for(api: Api, name: str) -> None:
    """Make a namespace in which pods are accepted."""
    kind = Kind(path="api/v1", plural="namespaces", is_namespaced=False)
    await api.create(kind, "", {"metadata": {"name": name}})
    accounts = Kind(path="api/v1", plural="serviceaccounts")

    async def has_account() -> bool:
        return await api.get(accounts, name, "default") is not None

    await until("a service account", has_account)


async def figures(kubeconfig: Path, folder: Path) -> list[Measurement]:
    """Measure everything on one control plane."""
    async with open_api(str(kubeconfig)) as api:
        crds = Kind(
            path="apis/apiextensions.k8s.io/v1",
            plural="customresourcedefinitions",
            is_namespaced=False,
        )
        await api.create(crds, "", definition())
        await api.create(NODES, "", kwok.fake_node("paper", Gpus(count=8)))
        for number in range(NUM_NODES):  # kwok would let pods on its nodes end
            name = {"name": f"paper-{number}"}
            await api.create(NODES, "", {"metadata": name})
        await asyncio.sleep(3)  # until the kind is served
        bare = [await accept_bare(api, "bare-before")]
        await namespace_for(api, "watched")
        async with an_operator(kubeconfig, folder) as running:
            ours = await accept_watched(api, "watched", running)
        bare.append(await accept_bare(api, "bare-after"))
        shares = tuple(ours / rate for rate in bare)
        found = [
            Measurement(name="bare client, accepted", runs=tuple(bare), unit="plans/s"),
            Measurement(name="operator, accepted", runs=(ours,), unit="plans/s"),
            Measurement(
                name="of the bare client's rate",
                runs=shares,
                unit="share",
                goal=Goal(at_least=0.4),
            ),
        ]
        return found + await at_scale(api, kubeconfig, folder)


async def at_scale(api: Api, kubeconfig: Path, folder: Path) -> list[Measurement]:
    """Measure an operator of many plans that train."""
    for one in await api.list(PLANS, "watched", metadata_only=True):
        metadata = one["metadata"]
        await api.delete(PLANS, "watched", metadata["name"], uid=metadata["uid"])
    await in_turn(lambda n: launch_by_hand(api, "watched", n), NUM_PLANS)
    began_s = time.monotonic()
    async with an_operator(kubeconfig, folder) as running:

        async def all_seen() -> bool:
            name = "trainingplan_reconcile_duration_seconds_count"
            return await asyncio.to_thread(running.counted, name) >= NUM_PLANS

        await until("all plans looked at", all_seen)
        cold_s = time.monotonic() - began_s
        await asyncio.sleep(SETTLED_S)
        before = sum(running.process.cpu_times()[:2])
        await asyncio.sleep(IDLE_S)
        cores = (sum(running.process.cpu_times()[:2]) - before) / IDLE_S
        resident_mib = running.process.memory_info().rss / 2**20
    of_plans = f"{NUM_PLANS} plans, {NUM_PLANS * PODS_OF_PLAN} pods"
    return [
        Measurement(
            name=f"cold start with {of_plans}",
            runs=(cold_s,),
            unit="s",
            goal=Goal(at_most=30),
        ),
        Measurement(
            name=f"idle with {of_plans}",
            runs=(cores,),
            unit="cores",
            goal=Goal(at_most=0.3),
        ),
        Measurement(
            name=f"resident with {of_plans}",
            runs=(resident_mib,),
            unit="MiB",
            goal=Goal(at_most=200),
        ),
    ]


def measure() -> Iterator[Measurement]:
    """Yield the figures."""
    try:
        require("control-plane")
    except LabError as error:
        raise CannotRunError(str(error)) from None
    lab = owner.start("control-plane")
    try:
        with tempfile.TemporaryDirectory() as folder:
            yield from asyncio.run(figures(lab.cluster.kubeconfig, Path(folder)))
    except subprocess.SubprocessError as error:
        raise CannotRunError(str(error)) from None
    finally:
        lab.close()


if __name__ == "__main__":
    sys.exit(run("operator", measure))
