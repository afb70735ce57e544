"""Overheads: bytes on devices besides tensors, fitted to observations.

In: rows of observations and shortages. Out: one overhead for each key. Called when an
attempt has ended, and where a person forgets shortages. Observations are never removed,
for they are what is learned from; so a fit takes the newest ones.

A fit takes a while: it runs in a thread, from rows read before, and nobody who writes
waits for it. It is kept if the fit before it and the shortages are still those that it
began with, else it is made again: so an older fit never stands in place of a newer one,
and no shortage comes back that a person has forgotten. Ranks that report meanwhile
count the next time; they are of attempts that end later, and that fit anew then.

Where namespaces share what they learn, each has fits of its own all the same: what the
others have learned widens them when they are read (`other_namespaces`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, Subquery, and_, delete, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from plimsoll_operator.store.database import Database, Repository
from plimsoll_operator.store.documents import record_of
from plimsoll_operator.store.rows import (
    CalibrationRow,
    ObservationRow,
    ObservedPeakRow,
    ShortageRow,
    counts_for,
    key_of,
    runs_like,
)
from plimsoll_operator.store.shortages import found_where
from plimsoll_planner.overhead.observed import ObservedRank, Shortage, observed_overhead
from plimsoll_planner.overhead.other_namespaces import with_other_namespaces
from plimsoll_planner.records.device_overhead import DeviceOverhead, OverheadKey
from plimsoll_planner.records.document import canonical_text
from plimsoll_planner.records.model_profile import Fingerprint
from plimsoll_planner.records.offer import Offer

MOST_RANKS = 10_000
"""That a fit takes: 1,250 worker groups of eight, in 0.2 s. From 100 plans on, one more
moves the interval by less than 1 %."""

Keys = Callable[[AsyncSession], Awaitable[set[OverheadKey]]]
"""Finds what is to be fitted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Basis:
    """Facts that must not change while a key is fitted."""

    before: str | None
    """The fit that is there."""
    shortages: tuple[Shortage, ...]


class Calibrations(Repository):
    """The overhead of each key of which something is known, within a scope."""

    def __init__(self, database: Database, scope: str, *, shares: bool) -> None:
        """Work on a database, within a scope of it, which may listen to the others."""
        super().__init__(database, scope)
        self._shares = shares

    async def refresh(self, key: OverheadKey) -> DeviceOverhead | None:
        """Fit anew from what is stored, keep the result and return it."""

        async def wanted(session: AsyncSession) -> set[OverheadKey]:
            return await with_others(session, self._scope, {key})

        return (await self._fit(wanted))[key]

    async def all(self) -> tuple[DeviceOverhead, ...]:
        """All that is known, by product."""
        return await self._known(CalibrationRow.scope == self._scope)

    async def of(self, device_products: Collection[str]) -> tuple[DeviceOverhead, ...]:
        """All that is known of some products."""
        products = CalibrationRow.device_product.in_(device_products)
        return await self._known(CalibrationRow.scope == self._scope, products)

    async def to_plan_with(
        self, offers: Collection[Offer], fingerprint: Fingerprint
    ) -> tuple[DeviceOverhead, ...]:
        """All that is known of devices for some code, wider if others saw more."""
        products = {offer.device_product for offer in offers}
        own = await self.of(products)
        if not self._shares:
            return own
        foreign = await self._known(
            CalibrationRow.scope != self._scope,
            CalibrationRow.device_product.in_(products),
        )
        async with self._database.read() as session:
            shortages = await found_where(
                session,
                ShortageRow.scope != self._scope,
                ShortageRow.device_product.in_(products),
            )
        return with_other_namespaces(offers, fingerprint, own, foreign, shortages)

    async def _known(self, *where: ColumnElement[bool]) -> tuple[DeviceOverhead, ...]:
        """All that is known where conditions hold, in the order of the keys."""
        wanted = select(CalibrationRow.document).where(*where)
        texts = await self._all(wanted.order_by(*CalibrationRow.__table__.primary_key))
        return tuple(record_of(DeviceOverhead, text) for text in texts)

    async def forget_shortages(self, device_product: str) -> int:
        """Forget that devices of a product ran out of memory; return how often."""
        mine = (
            ShortageRow.scope == self._scope,
            ShortageRow.device_product == device_product,
        )
        num_forgotten = 0

        async def wanted(session: AsyncSession) -> set[OverheadKey]:
            nonlocal num_forgotten
            found = (await session.scalars(select(ShortageRow).where(*mine))).all()
            num_forgotten = len(found)
            return await with_others(session, self._scope, set(map(key_of, found)))

        await self._fit(wanted, forgotten=mine)
        return num_forgotten

    async def _fit(
        self, wanted: Keys, *, forgotten: Sequence[ColumnElement[bool]] = ()
    ) -> Mapping[OverheadKey, DeviceOverhead | None]:
        """Fit anew, until nothing has come between; keep the results and return them.

        Shortages of `forgotten` conditions go, all that count for the `wanted` keys.
        """
        async with self._database.fitting:  # else each of many would undo the others
            while True:
                async with self._database.read() as session:
                    bases = await self._bases(session, wanted)
                    ranks = {
                        key: (await session.execute(ranks_of(self._scope, key))).all()
                        for key in bases
                    }
                known = {} if forgotten else {k: v.shortages for k, v in bases.items()}
                found = await asyncio.to_thread(fit_all, ranks, known)
                async with self._database.write() as session:
                    if await self._bases(session, wanted) == bases:
                        if forgotten:
                            await session.execute(delete(ShortageRow).where(*forgotten))
                        for key, overhead in found.items():
                            await put(session, self._scope, key, overhead)
                        return found

    async def _bases(
        self, session: AsyncSession, wanted: Keys
    ) -> dict[OverheadKey, Basis]:
        """State that a fit begins with, by key."""
        bases: dict[OverheadKey, Basis] = {}
        for key in await wanted(session):
            mine = counts_for(self._scope, key, CalibrationRow)
            bases[key] = Basis(
                before=await session.scalar(
                    select(CalibrationRow.document).where(*mine)
                ),
                shortages=await shortages_of(session, self._scope, key),
            )
        return bases


def fit_all(
    ranks: Mapping[OverheadKey, Sequence[Row[Any]]],
    shortages: Mapping[OverheadKey, Sequence[Shortage]],
) -> dict[OverheadKey, DeviceOverhead | None]:
    """Fit every key to its ranks."""
    return {
        key: observed_overhead(key, list(map(rank_of, rows)), shortages.get(key, ()))
        for key, rows in ranks.items()
    }


async def put(
    session: AsyncSession, scope: str, key: OverheadKey, found: DeviceOverhead | None
) -> None:
    """Keep what is known of a key now; nothing where nothing is."""
    before = counts_for(scope, key, CalibrationRow)
    await session.execute(delete(CalibrationRow).where(*before))
    if found is not None:
        row = CalibrationRow(
            **key.to_json(),
            scope=scope,
            num_observations=found.num_observations,
            document=canonical_text(found),
        )
        session.add(row)


async def with_others(
    session: AsyncSession, scope: str, keys: set[OverheadKey]
) -> set[OverheadKey]:
    """Keys, with every known version of NCCL where one leaves that open."""
    found = set(keys)
    for key in keys:
        if not key.nccl_version:
            alike = runs_like(scope, key, CalibrationRow)
            versions = await session.scalars(
                select(CalibrationRow.nccl_version).where(*alike)
            )
            found |= {replace(key, nccl_version=version) for version in versions}
    return found


def ranks_of(scope: str, key: OverheadKey) -> Select[Any]:
    """The fullest phase of every rank that finished a step, of some worker groups."""
    seen, peak = ObservationRow, ObservedPeakRow
    groups = newest_groups(scope, key)
    place = func.row_number().over(
        partition_by=(seen.plan_uid, seen.attempt, seen.rank),
        order_by=(peak.device_bytes.desc(), peak.place),
    )
    same = and_(seen.plan_uid == groups.c.plan_uid, seen.attempt == groups.c.attempt)
    phases = (
        select(
            seen.plan_uid,
            seen.attempt,
            seen.rank,
            seen.micro_batch,
            seen.num_communicators,
            seen.predicted_allocated_bytes,
            peak.allocated_bytes,
            peak.reserved_bytes,
            peak.device_bytes,
            place.label("place"),
        )
        .join(seen.peaks)
        .join(groups, same)
        .where(seen.num_steps > 0, *counts_for(scope, key, seen))
        .subquery()
    )
    of_rank = phases.c.plan_uid, phases.c.attempt, phases.c.rank
    return select(phases).where(phases.c.place == 1).order_by(*of_rank)


def newest_groups(scope: str, key: OverheadKey) -> Subquery:
    """Worker groups until their ranks are enough for a fit.

    The newest one of each plan comes first: one that is trained every night would push
    all others out, and teaches nothing new.
    """
    seen = ObservationRow
    planned = seen.predicted_allocated_bytes
    like = (
        func.max(seen.micro_batch),
        func.sum(seen.num_communicators),
        func.min(planned),
        func.max(planned),
        func.sum(planned),
    )
    reported_s = func.max(seen.reported_s)
    repeats = func.row_number().over(
        partition_by=like, order_by=(reported_s.desc(), seen.plan_uid, seen.attempt)
    )
    groups = (
        select(
            seen.plan_uid,
            seen.attempt,
            func.count().label("num_ranks"),
            reported_s.label("reported_s"),
            repeats.label("repeats"),
        )
        .where(seen.num_steps > 0, *counts_for(scope, key, seen))
        .group_by(seen.plan_uid, seen.attempt)
        .subquery()
    )
    one = groups.c
    in_turn = (one.repeats, one.reported_s.desc(), one.plan_uid, one.attempt)
    before = func.sum(one.num_ranks).over(order_by=in_turn) - one.num_ranks
    turns = select(one.plan_uid, one.attempt, before.label("before")).subquery()
    taken = select(turns.c.plan_uid, turns.c.attempt).where(turns.c.before < MOST_RANKS)
    return taken.subquery()


def rank_of(row: Row[Any]) -> ObservedRank:
    """Bytes that a rank held, from a row of `ranks_of`."""
    return ObservedRank(
        attempt=f"{row.plan_uid}/{row.attempt}",
        micro_batch=row.micro_batch,
        num_communicators=row.num_communicators,
        predicted_allocated_bytes=row.predicted_allocated_bytes,
        allocated_bytes=row.allocated_bytes,
        reserved_bytes=row.reserved_bytes,
        device_bytes=row.device_bytes,
    )


async def shortages_of(
    session: AsyncSession, scope: str, key: OverheadKey
) -> tuple[Shortage, ...]:
    """Every shortage that counts for a key.

    So does one of a rank that had not reported its version of NCCL yet.
    """
    versions = ShortageRow.nccl_version.in_({key.nccl_version, ""})
    found = await found_where(session, *runs_like(scope, key, ShortageRow), versions)
    return tuple(replace(one, key=key) for one in found)
