"""Of several replicas one decides: Leases on a real API server, and a cut network."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from plimsoll_operator.errors import ApiRefusedError
from plimsoll_operator.kube.api import LEASES, Api, open_api
from plimsoll_operator.kube.lease import Hold, Seat, Timing, holding
from tests.lab import event_loops
from tests.lab.cluster import Cluster
from tests.lab.proxy import Proxy, proxied

pytestmark = pytest.mark.control_plane

QUICK = Timing(duration_s=4, renew_deadline_s=3.0, retry_s=0.3)
"""Long enough for a busy machine to renew in."""
SLOW = Timing(duration_s=300, renew_deadline_s=240.0, retry_s=0.2)
"""Events within `LIMIT_S` do not happen because one of these is over."""
LIMIT_S = 120.0

A_HOLDER = """
import asyncio, sys
from plimsoll_operator.kube.api import open_api
from plimsoll_operator.kube.lease import Seat, Timing, holding

async def main(kubeconfig, namespace):
    seat = Seat(namespace=namespace, name="decider", holder="killed")
    timing = Timing(duration_s=4, renew_deadline_s=3.0, retry_s=0.3)
    async with open_api(kubeconfig) as api, holding(api, seat, timing=timing):
        print("held", flush=True)
        await asyncio.sleep(3600)

asyncio.run(main(*sys.argv[1:]))
"""


class Replicas:
    """Several holders of one Lease, in this process."""

    def __init__(self, api: Api, namespace: str) -> None:
        """Let them talk to a server, unless they have a way of their own."""
        self.api, self.namespace = api, namespace

    def seat(self, holder: str) -> Seat:
        """Seat of one of them."""
        return Seat(namespace=self.namespace, name="decider", holder=holder)

    async def spec(self) -> dict[str, Any]:
        """Content of the Lease now."""
        found = await self.api.get(LEASES, self.namespace, "decider")
        assert found is not None
        spec: dict[str, Any] = found["spec"]
        return spec

    async def change(self, **spec: Any) -> None:
        """Change what the Lease says, as somebody with the right to may."""
        change = {"spec": spec}
        await self.api.patch(LEASES, self.namespace, "decider", change)


class Candidate:
    """One that waits for the Lease, and then holds it until it is asked to leave."""

    def __init__(self, replicas: Replicas, holder: str, timing: Timing) -> None:
        """Begin to wait."""
        self.held, self.leave = asyncio.Event(), asyncio.Event()
        self.hold: Hold | None = None
        self.task = asyncio.create_task(self._run(replicas, holder, timing))

    async def _run(self, replicas: Replicas, holder: str, timing: Timing) -> None:
        seat = replicas.seat(holder)
        async with holding(replicas.api, seat, timing=timing) as self.hold:
            self.held.set()
            await self.leave.wait()


def on_a_server(
    cluster: Cluster,
    namespace: str,
    work: Callable[[Replicas], Coroutine[Any, Any, None]],
) -> None:
    """Run a test's work."""

    async def run() -> None:
        async with open_api(str(cluster.kubeconfig)) as api:
            await work(Replicas(api, namespace))

    event_loops.run(run())


def through_a_proxy(
    cluster: Cluster,
    namespace: str,
    folder: Path,
    work: Callable[[Replicas, Api, Proxy], Coroutine[Any, Any, None]],
) -> None:
    """Run a test's work with a second way to the server, which can be cut."""

    async def run() -> None:
        async with (
            proxied(cluster.kubeconfig, folder) as proxy,
            open_api(str(cluster.kubeconfig)) as api,
            open_api(str(proxy.kubeconfig)) as far,
        ):
            await work(Replicas(api, namespace), far, proxy)

    event_loops.run(run())


def seconds_between(earlier: str, later: str) -> float:
    """Seconds between two times of a Lease."""
    both = (datetime.fromisoformat(one) for one in (later, earlier))
    return (next(both) - next(both)).total_seconds()


def test_who_leaves_lets_the_next_one_in(
    control_plane: Cluster, namespace: str
) -> None:
    """At once, and not when its time is over; the transitions are counted."""

    async def work(replicas: Replicas) -> None:
        first = Candidate(replicas, "first", SLOW)
        await asyncio.wait_for(first.held.wait(), LIMIT_S)
        hold = first.hold
        assert hold is not None
        assert hold.is_held
        second = Candidate(replicas, "second", SLOW)
        await asyncio.sleep(1.0)
        assert not second.held.is_set()
        first.leave.set()
        await asyncio.wait_for(second.held.wait(), LIMIT_S)
        assert hold.lost.is_set()
        spec = await replicas.spec()
        assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("second", 1)
        assert spec["leaseDurationSeconds"] == SLOW.duration_s
        second.leave.set()
        await asyncio.gather(first.task, second.task)
        assert not (await replicas.spec()).get("holderIdentity")

    on_a_server(control_plane, namespace, work)


def test_what_is_renewed_is_not_stolen(control_plane: Cluster, namespace: str) -> None:
    """Over twice its time the candidate waits, whatever the record's times say."""

    async def work(replicas: Replicas) -> None:
        first = Candidate(replicas, "first", QUICK)
        await asyncio.wait_for(first.held.wait(), LIMIT_S)
        acquired = (await replicas.spec())["acquireTime"]
        second = Candidate(replicas, "second", QUICK)
        await asyncio.sleep(2.0 * QUICK.duration_s)
        assert not second.held.is_set()
        assert first.hold is not None
        assert first.hold.is_held
        assert (await replicas.spec())["acquireTime"] == acquired
        second.task.cancel()
        first.leave.set()
        await asyncio.gather(first.task, second.task, return_exceptions=True)

    on_a_server(control_plane, namespace, work)


def test_the_lease_of_a_killed_process_is_taken_over(
    control_plane: Cluster, namespace: str
) -> None:
    """Not before its time is over, counted from its latest renewal."""

    async def work(replicas: Replicas) -> None:
        holder = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", A_HOLDER),
            *(str(control_plane.kubeconfig), namespace),
            stdout=asyncio.subprocess.PIPE,
        )
        assert holder.stdout is not None
        assert await holder.stdout.readline() == b"held\n"
        second = Candidate(replicas, "second", QUICK)
        await asyncio.sleep(1.0)
        holder.send_signal(signal.SIGKILL)
        await holder.wait()
        left = await replicas.spec()
        assert left["holderIdentity"] == "killed"
        await asyncio.wait_for(second.held.wait(), LIMIT_S)
        taken = await replicas.spec()
        apart_s = seconds_between(left["renewTime"], taken["acquireTime"])
        assert apart_s >= QUICK.duration_s
        second.leave.set()
        await second.task

    on_a_server(control_plane, namespace, work)


def test_a_holder_that_hears_nothing_ends_before_another_begins(
    control_plane: Cluster, namespace: str, tmp_path: Path
) -> None:
    """Though its requests hang for longer; nor does it wait for them to leave."""

    async def work(replicas: Replicas, far: Api, proxy: Proxy) -> None:
        first = Candidate(Replicas(far, namespace), "first", QUICK)
        await asyncio.wait_for(first.held.wait(), LIMIT_S)
        second = Candidate(replicas, "second", QUICK)
        await asyncio.sleep(1.0)
        proxy.cut()
        hold = first.hold
        assert hold is not None
        early = asyncio.create_task(second.held.wait())
        lost = asyncio.create_task(hold.lost.wait())
        done, _ = await asyncio.wait(
            (early, lost), timeout=LIMIT_S, return_when="FIRST_COMPLETED"
        )
        assert done == {lost}
        assert not hold.is_held
        await asyncio.wait_for(early, LIMIT_S)
        first.leave.set()
        await asyncio.wait_for(first.task, QUICK.renew_deadline_s)
        proxy.open()
        assert (await replicas.spec())["holderIdentity"] == "second"
        second.leave.set()
        await second.task

    through_a_proxy(control_plane, namespace, tmp_path, work)


def test_one_connection_that_hangs_loses_nothing(
    control_plane: Cluster, namespace: str, tmp_path: Path
) -> None:
    """A second one is tried in time."""

    async def work(replicas: Replicas, far: Api, proxy: Proxy) -> None:
        timing = Timing(duration_s=7, renew_deadline_s=6.0, retry_s=0.3)
        first = Candidate(Replicas(far, namespace), "first", timing)
        await asyncio.wait_for(first.held.wait(), LIMIT_S)
        assert proxy.num_connections == 1
        proxy.leave_hanging()
        before = (await replicas.spec())["renewTime"]
        await asyncio.sleep(timing.renew_deadline_s + 1.0)
        assert first.hold is not None
        assert first.hold.is_held
        after = (await replicas.spec())["renewTime"]
        assert seconds_between(before, after) > timing.renew_deadline_s / 2
        assert proxy.num_connections > 1
        first.leave.set()
        await first.task

    through_a_proxy(control_plane, namespace, tmp_path, work)


def test_a_claim_whose_answer_was_lost_is_ours(
    control_plane: Cluster, namespace: str, tmp_path: Path
) -> None:
    """It is found in our name, and nobody waits for its time to be over."""

    async def work(replicas: Replicas, far: Api, proxy: Proxy) -> None:
        away = Candidate(replicas, "away", SLOW)
        await asyncio.wait_for(away.held.wait(), LIMIT_S)
        timing = Timing(duration_s=90, renew_deadline_s=4.0, retry_s=0.2)
        first = Candidate(Replicas(far, namespace), "first", timing)
        await asyncio.sleep(1.0)
        # As if the claim had come through when the answer did not.
        away.leave.set()
        await asyncio.wait_for(away.task, LIMIT_S)
        proxy.mute()
        await replicas.change(holderIdentity="first", leaseDurationSeconds=90)
        await asyncio.sleep(1.0)
        proxy.open()
        await asyncio.wait_for(first.held.wait(), LIMIT_S)
        first.leave.set()
        await first.task

    through_a_proxy(control_plane, namespace, tmp_path, work)


def test_a_lease_that_a_person_gives_to_another_is_lost(
    control_plane: Cluster, namespace: str
) -> None:
    """At the next renewal, and it is not taken from the other on the way out."""

    async def work(replicas: Replicas) -> None:
        first = Candidate(replicas, "first", SLOW)
        await asyncio.wait_for(first.held.wait(), LIMIT_S)
        await replicas.change(holderIdentity="other")
        assert first.hold is not None
        await asyncio.wait_for(first.hold.lost.wait(), LIMIT_S)
        first.leave.set()
        await first.task
        assert (await replicas.spec())["holderIdentity"] == "other"

    on_a_server(control_plane, namespace, work)


def test_a_lease_that_a_person_touches_or_deletes_is_kept(
    control_plane: Cluster, namespace: str
) -> None:
    """A note on it makes another version of it; gone, it is made anew."""

    async def work(replicas: Replicas) -> None:
        first = Candidate(replicas, "first", SLOW)
        await asyncio.wait_for(first.held.wait(), LIMIT_S)
        place = (LEASES, namespace, "decider")
        note = {"metadata": {"annotations": {"note": "seen"}}}
        await replicas.api.patch(*place, note)
        touched = (await replicas.spec())["renewTime"]
        await asyncio.sleep(1.0)
        assert seconds_between(touched, (await replicas.spec())["renewTime"]) > 0
        found = await replicas.api.get(*place)
        assert found is not None
        await replicas.api.delete(*place, uid=found["metadata"]["uid"])
        await asyncio.sleep(1.0)
        assert (await replicas.spec())["holderIdentity"] == "first"
        assert first.hold is not None
        assert first.hold.is_held
        first.leave.set()
        await first.task

    on_a_server(control_plane, namespace, work)


def test_a_lease_that_cannot_be_is_said_at_once(control_plane: Cluster) -> None:
    """Waiting would not make its namespace."""

    async def work(replicas: Replicas) -> None:
        async with holding(replicas.api, replicas.seat("first")):
            pytest.fail("held a Lease in no namespace")

    with pytest.raises(ApiRefusedError, match='namespaces "nowhere" not found'):
        on_a_server(control_plane, "nowhere", work)
