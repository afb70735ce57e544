"""Operators that are killed at any moment, as real processes, while plans go on.

What survives is the API server and the store's file. Pods have no nodes here:
`tests.lab.kubelets` say what kubelets would, and this process outlives all operators.
`make soak` runs the same with many more kills.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from plimsoll_operator.api.status import ConditionType
from plimsoll_operator.kube.api import CONFIG_MAPS, JOBS, LEASES, SERVICES, open_api
from tests.lab import event_loops
from tests.lab.cluster import Cluster
from tests.lab.loops import A_SPEC, Home, at_home
from tests.lab.running import Operator, settings_for

NUM_KILLS = int(os.environ.get("PLIMSOLL_KILLS", "6"))
KILLS_OF_A_PLAN = 5
LEASE = "plimsoll"
"""As it is named where nobody says otherwise."""
SEED = 20261122
LATEST_S, LATER_S = 3.0, 0.03
"""From the moment an operator leads to its end by SIGKILL, at most; and how much more
for each plan that is there: it looks at all of them before it goes on with any."""
PLAN_S, PLANS_S = 600.0, 5.0
"""For one plan to come to its end once nobody kills any more, and for each other one:
each is searched for, one after the other."""
KILL_S = 30.0
"""For an operator to start on a busy machine, and to be killed."""

pytestmark = [
    pytest.mark.control_plane,
    pytest.mark.timeout(KILL_S * NUM_KILLS + PLAN_S + PLANS_S * NUM_KILLS),
]


@dataclass(kw_only=True)
class Hunt:
    """Plans that begin one after the other, and operators that are killed meanwhile."""

    home: Home
    operator: Operator
    dice: random.Random
    names: list[str] = field(default_factory=list[str])

    async def begin(self) -> None:
        """Make a plan, with a profile of its own.

        None runs out of memory: the operator would learn that no plan after it fits.
        """
        number = len(self.names)
        name = f"plan-{number}"
        workload = A_SPEC["workload"] | {"args": {"variant": number}}
        await self.home.create(name, workload=workload)
        self.names.append(name)

    async def is_going_on(self) -> bool:
        """Whether the newest plan is not over."""
        return not (await self.home.plan(self.names[-1])).status.is_over

    async def kill(self) -> None:
        """Kill an operator some time after it began to decide.

        Its Lease is taken away, so that the next one need not wait until that runs out:
        most of the time would be spent on it.
        """
        await asyncio.to_thread(self.operator.wait_until_it_leads)
        await asyncio.sleep(self.dice.uniform(0, LATEST_S + LATER_S * len(self.names)))
        self.operator.kill()
        place = LEASES, self.home.namespace, LEASE
        if (held := await self.home.api.get(*place)) is not None:
            await self.home.api.delete(*place, uid=held["metadata"]["uid"])

    async def over(self) -> None:
        """Wait until all plans are over, and of their Jobs only last gangs are left.

        Raises:
            AssertionError: that does not come; with how they are.
        """
        end_s = time.monotonic() + PLAN_S + PLANS_S * len(self.names)
        while True:
            plans = [await self.home.plan(name) for name in self.names]
            wanted = [f"{one.owner.name}-train-{one.status.attempt}" for one in plans]
            found = await self.home.names(JOBS)
            if all(one.status.is_over for one in plans) and found == sorted(wanted):
                return
            assert time.monotonic() < end_s, (found, [one.status for one in plans])
            await asyncio.sleep(1)

    async def check(self, name: str) -> None:
        """No plan is lost, and no task was made twice.

        Raises:
            AssertionError: something was.
        """
        status = (await self.home.plan(name)).status
        assert status.holds(ConditionType.SUCCEEDED), status
        assert status.attempt == 1 + status.failures.out_of_memory
        met = self.home.kubelets.met.values()
        mine = Counter(one for one in met if one.startswith(f"{name}-"))
        assert set(mine.values()) == {1}, mine
        kinds = Counter(one.removeprefix(f"{name}-").split("-")[0] for one in mine)
        number = status.attempt
        assert (kinds["profile"], kinds["train"]) == (1, number), mine
        assert kinds["replay"] <= number, mine  # an equal plan may have had it
        assert f"{name}-plan-{number + 1}" not in await self.home.names(CONFIG_MAPS)


def test_a_killed_operator_does_nothing_twice(
    server: Cluster, namespace: str, tmp_path: Path
) -> None:
    """At whatever moment: no task is made twice, no plan is lost, and all succeed."""
    operator = Operator(
        environment=settings_for(server, namespace, tmp_path),
        log=tmp_path / "operator.log",
    )

    async def hunt() -> None:
        async with (
            open_api(str(server.kubeconfig)) as api,
            at_home(api, namespace, tmp_path) as home,
        ):
            dice = random.Random(SEED)  # noqa: S311 - moments, not secrets
            hunt = Hunt(home=home, operator=operator, dice=dice)
            for number in range(NUM_KILLS):
                if number % KILLS_OF_A_PLAN == 0 or not await hunt.is_going_on():
                    await hunt.begin()
                await hunt.kill()
            assert operator.num_starts >= NUM_KILLS
            assert len(hunt.names) >= NUM_KILLS / KILLS_OF_A_PLAN
            await hunt.over()
            for name in hunt.names:
                await hunt.check(name)
            kept = sorted(f"{name}-ranks" for name in hunt.names)
            assert await home.names(SERVICES) == kept  # they go with their plans

    operator.start()
    try:
        event_loops.run(hunt())
    finally:
        operator.stop()
    assert "Traceback" not in operator.log.read_text()
