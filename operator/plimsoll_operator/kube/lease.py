"""The Lease that one replica holds: only its holder decides.

In: the API, the name of the Lease and of the holder. Out: a `Hold`, within whose block
the caller may decide until `lost` is set. Called by the process' entry point.

    holder        renews every 2 s; counts from when it asked, not from the answer, and
                  takes the Lease for lost 10 s after the latest that was granted,
                  whether a request hangs or not
    candidate     looks every 2 s; takes it 15 s after it saw the record change last
    who leaves    gives it back, so that the next one starts at once

Clocks of different machines are never compared: times in the record are for people, and
each side counts seconds on its own. A write names the version it replaces, so that of
two only one succeeds. `kubernetes.aio.leaderelection` is not used: it gives nothing
back, and a request that hangs, or a connection that breaks, outlives its deadline.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from plimsoll_operator.errors import (
    ApiConflictError,
    ApiDeniedError,
    ApiDownError,
    ApiRefusedError,
    ClusterError,
)
from plimsoll_operator.kube.api import LEASES, Api, Object
from plimsoll_operator.kube.times import stamp_of, utc_now

LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Seat:
    """Which Lease, and who we are."""

    namespace: str
    name: str
    holder: str
    """Unlike that of any other process, also of one that had our name before."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Durations, equal to those of Kubernetes' own components."""

    duration_s: int = 15
    """From the latest renewal a candidate saw to its taking over."""
    renew_deadline_s: float = 10.0
    """From the latest renewal granted to a holder to its end."""
    retry_s: float = 2.0

    def __post_init__(self) -> None:
        """A holder must know of its end before another begins."""
        if not self.duration_s > self.renew_deadline_s > self.retry_s > 0:
            raise ValueError(f"not duration > deadline > retry > 0: {self}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """The Lease as a candidate saw it, and since when."""

    spec: Object
    since_s: float


def watched(before: Record | None, lease: Object, now_s: float) -> Record:
    """The record as it is now; one that did not change keeps its time."""
    spec: Object = lease.get("spec") or {}
    if before is not None and before.spec == spec:
        return before
    return Record(spec=spec, since_s=now_s)


def is_free(record: Record, seat: Seat, timing: Timing, now_s: float) -> bool:
    """Whether a Lease may be taken.

    One in our own name is ours: the answer to an earlier claim was lost.
    """
    holder = record.spec.get("holderIdentity")
    promised_s = record.spec.get("leaseDurationSeconds") or timing.duration_s
    return holder in (None, "", seat.holder) or now_s >= record.since_s + promised_s


def claimed(lease: Object, seat: Seat, timing: Timing, now: datetime) -> Object:
    """A Lease as we write it to take or renew it, over the version it has."""
    before: Object = lease.get("spec") or {}
    is_mine = before.get("holderIdentity") == seat.holder
    stamp = stamp_of(now)
    transitions = (before.get("leaseTransitions") or 0) + (not is_mine)
    spec = before | {
        "holderIdentity": seat.holder,
        "leaseDurationSeconds": timing.duration_s,
        "acquireTime": before.get("acquireTime", stamp) if is_mine else stamp,
        "renewTime": stamp,
        "leaseTransitions": transitions if before else 0,
    }
    return lease | {"spec": spec}


def released(lease: Object, now: datetime) -> Object:
    """A Lease as we write it to give it back."""
    spec = lease["spec"] | {"holderIdentity": None, "renewTime": stamp_of(now)}
    return lease | {"spec": spec}


class Hold:
    """Our hold on a Lease."""

    def __init__(
        self,
        api: Api,
        seat: Seat,
        timing: Timing,
        clock: Callable[[], float],
        today: Callable[[], datetime],
    ) -> None:
        """Hold nothing yet; see `holding`."""
        self._api, self._seat, self._timing = api, seat, timing
        self._clock, self._today = clock, today
        self._lease: Object = {}
        """As it was written last."""
        self._granted_s = -math.inf
        """Time of asking for the latest claim that was granted."""
        self._alarm: asyncio.TimerHandle | None = None
        self._warned = ""
        self.lost = asyncio.Event()
        """Set once another may hold the Lease, and never unset."""

    @property
    def is_held(self) -> bool:
        """Whether we may decide now.

        By the clock as well: a process that was stopped a while has no alarm yet.
        """
        end_s = self._granted_s + self._timing.renew_deadline_s
        return not self.lost.is_set() and self._clock() < end_s

    async def acquire(self) -> None:
        """Wait until the Lease is ours.

        Raises:
            ApiRefusedError: there can be no such Lease.
        """
        record: Record | None = None
        while self._granted_s == -math.inf:
            try:
                async with self._limit():
                    record = await self._look(record)
            except (ApiDownError, ApiConflictError, ApiDeniedError, TimeoutError) as e:
                self._say("cannot take", e)
            if self._granted_s == -math.inf:
                await asyncio.sleep(self._timing.retry_s)

    async def keep(self) -> None:
        """Renew the Lease until it is lost."""
        try:
            while not self.lost.is_set():
                await asyncio.sleep(self._timing.retry_s)
                try:
                    async with self._limit():
                        await self._renew()
                except (ClusterError, TimeoutError) as error:
                    self._say("cannot renew", error)
        finally:
            self.lost.set()

    async def release(self) -> None:
        """Give the Lease back, if it is in our name; in vain where nobody answers."""
        if self._alarm is not None:
            self._alarm.cancel()
        with suppress(ClusterError, TimeoutError):
            async with asyncio.timeout(self._timing.retry_s):
                found = await self._found()
                if found is not None and self._is_mine(found):
                    given = released(found, self._today())
                    await self._api.replace(LEASES, self._seat.namespace, given)

    async def _look(self, record: Record | None) -> Record | None:
        """Look at the Lease, take it if it is free, and return what was seen."""
        found = await self._found()
        if found is None:
            await self._claim(None)
            return None
        now_s = self._clock()  # not before the answer: renewals up to it are in it
        record = watched(record, found, now_s)
        if is_free(record, self._seat, self._timing, now_s):
            await self._claim(found)
        return record

    async def _renew(self) -> None:
        """Renew the Lease; one that was changed is looked at first."""
        with suppress(ApiConflictError, ApiRefusedError):
            await self._claim(self._lease)
            return
        found = await self._found()
        if found is not None and not self._is_mine(found):
            self.lost.set()
            return
        await self._claim(found)

    async def _claim(self, lease: Object | None) -> None:
        """Write the Lease in our name; None: make it."""
        asked_s, place = self._clock(), self._seat.namespace
        fresh = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._seat.name},
        }
        made = claimed(lease or fresh, self._seat, self._timing, self._today())
        if lease is None:
            self._lease = (await self._api.create(LEASES, place, made)).object
        else:
            self._lease = await self._api.replace(LEASES, place, made)
        self._granted(asked_s)

    def _granted(self, asked_s: float) -> None:
        """Count from when a claim was asked for, and set the alarm."""
        self._granted_s, self._warned = asked_s, ""
        if self._alarm is not None:
            self._alarm.cancel()
        left_s = asked_s + self._timing.renew_deadline_s - self._clock()
        self._alarm = asyncio.get_running_loop().call_later(left_s, self.lost.set)

    async def _found(self) -> Object | None:
        """The Lease as it is now."""
        return await self._api.get(LEASES, self._seat.namespace, self._seat.name)

    def _is_mine(self, lease: Object) -> bool:
        """Whether a Lease is in our name."""
        spec: Object = lease.get("spec") or {}
        return spec.get("holderIdentity") == self._seat.holder

    def _limit(self) -> asyncio.Timeout:
        """Leave time for a second try where a connection hangs."""
        return asyncio.timeout(self._timing.renew_deadline_s / 2)

    def _say(self, what: str, error: Exception) -> None:
        """Log what is wrong, once for each thing that is."""
        why = str(error) or type(error).__name__
        warning = f"{what} the Lease {self._seat.name}: {why}"
        if warning != self._warned:
            LOG.warning("%s", warning)
        self._warned = warning


@asynccontextmanager
async def holding(
    api: Api,
    seat: Seat,
    *,
    timing: Timing | None = None,
    clock: Callable[[], float] = time.monotonic,
    today: Callable[[], datetime] = utc_now,
) -> AsyncGenerator[Hold]:
    """Wait for a Lease, and hold it within the block.

    Whoever decides must have ended with the block: after it another one begins.
    Without a `timing`, that of Kubernetes' own components holds. `clock` is in seconds
    that only grow; `today` is for people who read the record.

    Raises:
        ApiRefusedError: there can be no such Lease.
    """
    hold = Hold(api, seat, timing or Timing(), clock, today)
    try:
        await hold.acquire()
        keeping = asyncio.create_task(hold.keep())
        try:
            yield hold
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])
            if not keeping.cancelled():
                keeping.result()  # what it raised, if it did, is for the caller
    finally:
        # Also where we never knew that it was ours: the answer may have been lost.
        await hold.release()
