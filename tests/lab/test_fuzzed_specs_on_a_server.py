"""Two thousand faulty plans against a real API server and a real operator.

Each is refused by the server, or gets `Accepted=False` with the field that the types
name; good plans that come in between wait for nobody.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from plimsoll_operator.api.spec import TrainingPlanSpec
from plimsoll_operator.errors import ApiRefusedError
from plimsoll_operator.kube.api import (
    CLAIMS,
    CONFIG_MAPS,
    JOBS,
    PLANS,
    SERVICES,
    Api,
    Object,
    open_api,
)
from plimsoll_planner.errors import InvalidFieldError
from tests.lab import event_loops
from tests.lab.cluster import Cluster
from tests.lab.gpus import Gpus
from tests.lab.kwok import fake_node
from tests.lab.running import LIMIT_S, Operator, condition_of, settings_for
from tests.lab.trainingplans import an_object, served
from tests.support.api_values import refusal, without_nulls
from tests.support.drawing import CHOSEN
from tests.support.fuzzed_specs import CLAIM, GOOD, OFFERS, fuzzed

pytestmark = [pytest.mark.control_plane, pytest.mark.timeout(600)]

SEED = os.environ.get("PLIMSOLL_FUZZ_SEED", "")
"""Of a run that is to be repeated."""
NUM_SPECS, NUM_GOOD = (2000, 40) if CHOSEN == "nightly" else (500, 10)
AT_A_TIME = 16
"""Plans that nobody has judged yet."""
LEAST_UNREAD, LEAST_HELD = NUM_SPECS * 4 // 20, NUM_SPECS * 3 // 20
"""Plans that the schema lets through and the operator refuses: for what the types say,
for what the cluster says."""
MOST_S = 10.0
"""From a good plan's creation to its being accepted, while the flood goes on."""
POLL_S = 0.5
NODE = "fuzzed-node"
TABLE = (
    "InstanceType,AcceleratorName,AcceleratorCount,Price,DeviceMemoryMiB,DeviceKind\n"
    "box,H200,8,9.5,6144,emulated\n"
)
KEPT = "spec.template"
"""Field that both the server and the operator judge by more than its type."""
NAMED = re.compile(r"spec\.[a-zA-Z]+")
"""Opens the message about a spec that can be read and does not fit the cluster."""
FAULTS = ("Traceback", "a fault of Plimsoll")
"""In the log of an operator that has met what it was not made for."""


@pytest.fixture(scope="module")
def server(control_plane: Cluster) -> Iterator[Cluster]:
    """Server that knows the kind as the chart brings it, and has a node."""
    control_plane.apply(fake_node(NODE, Gpus()))
    control_plane.wait(f"node/{NODE}", "condition=Ready")
    yield from served(control_plane)
    control_plane.kubectl("delete", "node", NODE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sent:
    """A plan that was sent."""

    kind: str
    """How it came about."""
    spec: Any
    refusal: str = ""
    """Why the server did not take it; empty where it did."""
    plan: Object | None = None
    """As it was judged by the operator."""
    waited_s: float = 0.0
    """For that."""


@dataclass(kw_only=True)
class Flood:
    """Specs that were sent, and what became of them."""

    api: Api
    namespace: str
    sent: list[Sent] = field(default_factory=list[Sent])

    async def send(self, seed: int) -> None:
        """Create all plans, some at a time; good ones come in between."""
        waiting: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        for number, one in enumerate(fuzzed(seed, NUM_SPECS)):
            waiting.put_nowait(one)
            if number % (NUM_SPECS // NUM_GOOD) == 0:
                waiting.put_nowait(("good", GOOD))
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_A_TIME):
                group.create_task(self._create(waiting))

    async def _create(self, waiting: asyncio.Queue[tuple[str, Any]]) -> None:
        """Create one plan after the other, each when the one before is judged."""
        while not waiting.empty():
            kind, spec = waiting.get_nowait()
            name = f"{kind}-{waiting.qsize()}"
            try:
                await self.api.create(PLANS, self.namespace, an_object(name, spec=spec))
            except ApiRefusedError as error:
                self.sent.append(Sent(kind=kind, spec=spec, refusal=str(error)))
                continue
            began_s = time.monotonic()
            plan = await self._judged(name)
            waited_s = time.monotonic() - began_s
            self.sent.append(Sent(kind=kind, spec=spec, plan=plan, waited_s=waited_s))

    async def _judged(self, name: str) -> Object:
        """Plan once it has been judged."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                plan = await self.api.get(PLANS, self.namespace, name)
                if plan is not None and verdict(plan)[0]:
                    return plan
                await asyncio.sleep(POLL_S)


def verdict(plan: Object) -> tuple[str, str, str]:
    """Status, reason and message of `Accepted`."""
    return condition_of(plan.get("status") or {}, "Accepted")


def fault_in(spec: Any) -> InvalidFieldError | None:
    """Objection of the types to a spec."""
    return refusal(TrainingPlanSpec, spec)


def check_refused(sent: Sent) -> None:
    """Fail unless the server was right, and named a field: the one, if there is one."""
    error = fault_in(sent.spec) or fault_in(without_nulls(sent.spec))
    assert "spec" in sent.refusal
    assert error is not None or KEPT in sent.refusal, sent
    if error is not None and sent.kind == "edge":
        assert error.path in sent.refusal


def check_reported(plan: Object) -> str:
    """Fail unless a plan's status has what is wrong; return who found it."""
    status, reason, text = verdict(plan)
    error = fault_in(plan["spec"])
    if error is None and status == "True":
        return "accepted"
    assert (status, reason) == ("False", "InvalidSpec")
    begun = [plan["status"].get(name) for name in ("plan", "workloadRef", "attempt")]
    assert not any(begun), begun
    if error is None:
        assert NAMED.match(text), text
        return "held"
    assert error.path in text
    return "unread"


def test_every_faulty_plan_is_told_its_fault(
    server: Cluster, namespace: str, tmp_path: Path
) -> None:
    """By the server or by the operator, which has no fault of its own."""
    seed = int(SEED or random.randrange(2**32))  # noqa: S311 - specs, not secrets
    print(f"PLIMSOLL_FUZZ_SEED={seed}")  # noqa: T201 - to run a failure again
    environment = settings_for(server, namespace, tmp_path)
    operator = Operator(environment=environment, log=tmp_path / "operator.log")
    operator.start()
    try:
        operator.wait_until_it_leads()
        event_loops.run(flooded(server, namespace, seed))
        log = "\n".join(operator.log_lines())
        assert not any(word in log for word in FAULTS), log
        assert operator.num_starts == 1
    finally:
        operator.stop()


async def flooded(server: Cluster, namespace: str, seed: int) -> None:
    """Send all plans, and judge what became of each."""
    async with open_api(str(server.kubeconfig)) as api:
        await prepare(api, namespace)
        flood = Flood(api=api, namespace=namespace)
        began_s = time.monotonic()
        await flood.send(seed)
        took_s = time.monotonic() - began_s
        for one in flood.sent:
            if one.plan is None:
                check_refused(one)
        found = Counter(check_reported(one.plan) for one in flood.sent if one.plan)
        good = [one for one in flood.sent if one.kind == "good"]
        longest_s = max(one.waited_s for one in good)
        print(  # noqa: T201 - what was measured
            f"{dict(found)} in {took_s:.0f} s; good ones waited {longest_s:.1f} s"
        )
        assert [verdict(one.plan or {})[0] for one in good] == ["True"] * NUM_GOOD
        assert longest_s <= MOST_S
        assert found["unread"] >= LEAST_UNREAD
        assert found["held"] >= LEAST_HELD
        for kind in (JOBS, CONFIG_MAPS, SERVICES):
            for made in await api.list(kind, namespace):
                assert "ownerReferences" not in made["metadata"]


async def prepare(api: Api, namespace: str) -> None:
    """Make what good specs name."""
    table: Object = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": OFFERS},
        "data": {"offers.csv": TABLE},
    }
    claim: Object = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": CLAIM},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    await api.create(CONFIG_MAPS, namespace, table)
    await api.create(CLAIMS, namespace, claim)
