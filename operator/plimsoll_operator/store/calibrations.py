"""What sits on devices besides tensors, fitted anew from all that was observed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from sqlalchemy import ColumnElement, delete, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from plimsoll_operator.store.database import Database
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
from plimsoll_planner.observed_overhead import (
    ObservedRank,
    Shortage,
    observed_overhead,
)
from plimsoll_planner.records.device_overhead import DeviceOverhead, OverheadKey
from plimsoll_planner.records.document import canonical_text


class Calibrations:
    """The overhead of each key of which something is known, within a scope."""

    def __init__(self, database: Database, scope: str) -> None:
        """Work on a database, within a scope of it."""
        self._database = database
        self._scope = scope

    async def refresh(self, key: OverheadKey) -> DeviceOverhead | None:
        """Fit anew from what is stored, keep the result and return it."""
        async with self._database.write() as session:
            await fit_others(session, self._scope, key)
            return await fit_anew(session, self._scope, key)

    async def all(self) -> tuple[DeviceOverhead, ...]:
        """Return all that is known, by product."""
        return await self._known()

    async def of(self, device_products: Collection[str]) -> tuple[DeviceOverhead, ...]:
        """Return what is known of some products."""
        return await self._known(CalibrationRow.device_product.in_(device_products))

    async def _known(self, *where: ColumnElement[bool]) -> tuple[DeviceOverhead, ...]:
        """Return what is known where all conditions hold, in the order of the keys."""
        mine = CalibrationRow.scope == self._scope
        wanted = select(CalibrationRow.document).where(mine, *where)
        ordered = wanted.order_by(*CalibrationRow.__table__.primary_key)
        async with self._database.read() as session:
            texts = (await session.scalars(ordered)).all()
        return tuple(record_of(DeviceOverhead, text) for text in texts)

    async def forget_shortages(self, device_product: str) -> int:
        """Forget that devices of a product ran out of memory; return how often."""
        mine = (
            ShortageRow.scope == self._scope,
            ShortageRow.device_product == device_product,
        )
        async with self._database.write() as session:
            found = (await session.scalars(select(ShortageRow).where(*mine))).all()
            keys = {key_of(row) for row in found}
            await session.execute(delete(ShortageRow).where(*mine))
            for key in keys:
                await fit_others(session, self._scope, key)
                await fit_anew(session, self._scope, key)
        return len(found)


async def fit_anew(
    session: AsyncSession, scope: str, key: OverheadKey
) -> DeviceOverhead | None:
    """Keep what is known of a key now; nothing where nothing is."""
    ranks = await ranks_of(session, scope, key)
    found = observed_overhead(key, ranks, await shortages_of(session, scope, key))
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
    return found


async def fit_others(session: AsyncSession, scope: str, key: OverheadKey) -> None:
    """Fit anew for every version of NCCL, where a key leaves that open."""
    if key.nccl_version:
        return
    version = CalibrationRow.nccl_version
    alike = runs_like(scope, key, CalibrationRow)
    others = select(version).where(*alike, version != "")
    for found in (await session.scalars(others)).all():
        await fit_anew(session, scope, replace(key, nccl_version=found))


async def ranks_of(
    session: AsyncSession, scope: str, key: OverheadKey
) -> list[ObservedRank]:
    """Return the fullest phase of every rank that finished a step."""
    seen, peak = ObservationRow, ObservedPeakRow
    place = func.row_number().over(
        partition_by=(seen.plan_uid, seen.attempt, seen.rank),
        order_by=(peak.device_bytes.desc(), peak.place),
    )
    phases = (
        select(
            seen.plan_uid,
            seen.attempt,
            seen.micro_batch,
            seen.num_communicators,
            seen.predicted_allocated_bytes,
            peak.allocated_bytes,
            peak.reserved_bytes,
            peak.device_bytes,
            place.label("place"),
        )
        .join(seen.peaks)
        .where(seen.num_steps > 0, *counts_for(scope, key, seen))
        .subquery()
    )
    rows = await session.execute(select(phases).where(phases.c.place == 1))
    return [
        ObservedRank(
            attempt=f"{row.plan_uid}/{row.attempt}",
            micro_batch=row.micro_batch,
            num_communicators=row.num_communicators,
            predicted_allocated_bytes=row.predicted_allocated_bytes,
            allocated_bytes=row.allocated_bytes,
            reserved_bytes=row.reserved_bytes,
            device_bytes=row.device_bytes,
        )
        for row in rows
    ]


async def shortages_of(
    session: AsyncSession, scope: str, key: OverheadKey
) -> list[Shortage]:
    """Return every shortage that counts for a key.

    So does one of a rank that had not told its version of NCCL yet.
    """
    versions = {key.nccl_version, ""}
    wanted = select(ShortageRow).where(
        *runs_like(scope, key, ShortageRow), ShortageRow.nccl_version.in_(versions)
    )
    rows = await session.scalars(wanted)
    return [
        Shortage(
            key=key,
            micro_batch=row.micro_batch,
            num_communicators=row.num_communicators,
            capacity_bytes=row.capacity_bytes,
            in_use_bytes=row.in_use_bytes,
            asked_bytes=row.asked_bytes,
            predicted_allocated_bytes=row.predicted_allocated_bytes,
            predicted_device_bytes=row.predicted_device_bytes,
        )
        for row in rows
    ]
