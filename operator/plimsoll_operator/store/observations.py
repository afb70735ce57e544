"""Measured use of ranks, beside the prediction."""

from __future__ import annotations

from sqlalchemy import delete, select
from sqlalchemy.orm import selectinload

from plimsoll_operator.store.database import Repository
from plimsoll_operator.store.documents import record_of
from plimsoll_operator.store.rows import ObservationRow, ObservedPeakRow, key_of
from plimsoll_planner.records.document import canonical_text
from plimsoll_planner.records.model_profile import DeviceKind, Fingerprint
from plimsoll_planner.records.observation import Observation, ObservedPeak
from plimsoll_planner.records.plan import Phase, PhasePeak

COLUMNS = (
    *("attempt", "rank", "plan_digest", "revision", "device_kind"),
    *("num_communicators", "num_steps", "step_s", "passes_s", "capacity_bytes"),
    *("moved_bytes", "moved_s", "refused_revision", "refusal"),
)
"""Fields of an observation that a row has as they are."""


class Observations(Repository):
    """The latest report of each rank of each attempt, within a scope."""

    async def save(
        self,
        plan_uid: str,
        observation: Observation,
        predicted: PhasePeak,
        micro_batch: int,
        now_s: float,
    ) -> None:
        """Keep a report in place of earlier ones of the rank; `now_s` is since 1970.

        One that has finished fewer steps than the stored one, or is of an earlier
        revision, is earlier, and nothing is done. `predicted` is the largest peak of
        the rank's stage in the plan that it runs by.
        """
        # A rank has one report, in whatever scope it was kept before.
        mine = (
            ObservationRow.plan_uid == plan_uid,
            ObservationRow.attempt == observation.attempt,
            ObservationRow.rank == observation.rank,
        )
        row = row_of(plan_uid, observation, predicted)
        row.scope, row.micro_batch, row.reported_s = self._scope, micro_batch, now_s
        async with self._database.write() as session:
            known = select(ObservationRow.revision, ObservationRow.num_steps)
            before = (await session.execute(known.where(*mine))).one_or_none()
            if before is not None:
                if tuple(before) > (observation.revision, observation.num_steps):
                    return
                await session.execute(delete(ObservationRow).where(*mine))
            session.add(row)

    async def of(self, plan_uid: str, attempt: int) -> tuple[Observation, ...]:
        """The latest report of each rank, by rank."""
        wanted = (
            select(ObservationRow)
            .filter_by(scope=self._scope, plan_uid=plan_uid, attempt=attempt)
            .order_by(ObservationRow.rank)
            .options(selectinload(ObservationRow.peaks))
        )
        return tuple(map(observation_of, await self._all(wanted)))

    async def news(self, since_s: float) -> set[str]:
        """The uids of plans of all scopes with reports of that time or later.

        Clocks of those who take reports in differ, so that whoever asks again goes back
        a little.
        """
        row = ObservationRow
        wanted = select(row.plan_uid).where(row.reported_s >= since_s).distinct()
        return set(await self._all(wanted))


def row_of(
    plan_uid: str, observation: Observation, predicted: PhasePeak
) -> ObservationRow:
    """An observation as its rows; a column has the name of its field."""
    fields = observation.to_json()
    return ObservationRow(
        **{name: fields[name] for name in COLUMNS},
        **observation.overhead_key.to_json(),
        plan_uid=plan_uid,
        fingerprint=canonical_text(observation.fingerprint),
        predicted_allocated_bytes=predicted.allocated.expected_bytes,
        predicted_device_bytes=predicted.device.expected_bytes,
        predicted_upper_bytes=predicted.device.upper_bytes,
        peaks=[
            ObservedPeakRow(place=place, **peak.to_json())
            for place, peak in enumerate(observation.peaks)
        ],
    )


def observation_of(row: ObservationRow) -> Observation:
    """An observation as the rank reported it."""
    return Observation(
        plan_digest=row.plan_digest,
        revision=row.revision,
        attempt=row.attempt,
        rank=row.rank,
        fingerprint=record_of(Fingerprint, row.fingerprint),
        device_kind=DeviceKind(row.device_kind),
        overhead_key=key_of(row),
        num_communicators=row.num_communicators,
        num_steps=row.num_steps,
        step_s=tuple(row.step_s),
        passes_s=tuple(row.passes_s),
        capacity_bytes=row.capacity_bytes,
        moved_bytes=row.moved_bytes,
        moved_s=row.moved_s,
        refused_revision=row.refused_revision,
        refusal=row.refusal,
        peaks=tuple(
            ObservedPeak(
                phase=Phase(peak.phase),
                allocated_bytes=peak.allocated_bytes,
                reserved_bytes=peak.reserved_bytes,
                device_bytes=peak.device_bytes,
            )
            for peak in row.peaks
        ),
    )
