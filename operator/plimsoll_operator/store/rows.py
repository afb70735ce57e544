"""The tables of the store, as classes.

Documents that are only ever read whole (a profile, a plan, an answer) are one column of
canonical JSON; what is looked up, counted or fitted has a column of its own beside
them. Times are seconds since 1970. A change here needs a migration (`migrations`).

    profile    by request key          question   by plan and number
    replay     by the plan's digest    answer     by the problem's digest
    rehearsal  by plan and digest
    plan       by uid; local           attempt    by plan and number
    observation, observed_peak, shortage   by plan and attempt, for calibration
    calibration   by overhead key          pod_end   by plan, attempt and pod

A plan of a cluster has no row in `plan` or `attempt`, so that nothing refers to them.
What is found by what it is about, and might be another namespace's, has a `scope`.
"""

from __future__ import annotations

from typing import Annotated

from sqlalchemy import (
    JSON,
    BigInteger,
    ColumnElement,
    ForeignKeyConstraint,
    Index,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from plimsoll_planner.records.device_overhead import OverheadKey

LABEL_LENGTH = 256
"""As long as `records.bounds.Label` may be."""
CONSTRAINTS = {
    "pk": "%(table_name)s_key",
    "uq": "%(table_name)s_one_%(column_0_name)s",
    "fk": "%(table_name)s_of_%(referred_table_name)s",
}
"""Names by which a later migration finds what it changes."""
OVERHEAD_KEY = ("scope", "device_product", "image", "torch_version", "nccl_version")
"""The columns by which ranks are found that one calibration is fitted to."""

Digest = Annotated[str, mapped_column(String(71))]
Uid = Annotated[str, mapped_column(String(64))]
ShortText = Annotated[str, mapped_column(String(LABEL_LENGTH))]
Document = Annotated[str, mapped_column(Text)]
Scope = Annotated[str, mapped_column(String(LABEL_LENGTH), server_default="")]
"""The namespace that a row is for; empty: one machine, or all that share."""


class Base(DeclarativeBase):
    """Base of all tables."""

    metadata = MetaData(naming_convention=CONSTRAINTS)
    type_annotation_map = {int: BigInteger}  # noqa: RUF012 - read by SQLAlchemy


class OverheadKeyColumns:
    """The scope, and the fields of `OverheadKey` by their names."""

    scope: Mapped[Scope]
    device_product: Mapped[ShortText]
    image: Mapped[ShortText]
    torch_version: Mapped[ShortText]
    nccl_version: Mapped[ShortText]


class UsedRow(Base):
    """A row that may be asked for again, and goes if nobody does."""

    __abstract__ = True

    used_s: Mapped[float] = mapped_column(server_default="0")
    """Time of the last write or read; up to a day too early."""


class ProfileRow(UsedRow):
    """Costs of a workload."""

    __tablename__ = "profile"

    request_key: Mapped[Digest] = mapped_column(primary_key=True)
    digest: Mapped[Digest]
    made_s: Mapped[float]
    document: Mapped[Document]


class ReplayRow(UsedRow):
    """Memory of the ranks of a plan, replayed."""

    __tablename__ = "replay"

    scope: Mapped[Scope] = mapped_column(primary_key=True)
    plan_digest: Mapped[Digest] = mapped_column(primary_key=True)
    document: Mapped[Document]


class RehearsalRow(Base):
    """A rehearsal of a plan's fullest rank: asked for, then with its result."""

    __tablename__ = "rehearsal"

    plan_uid: Mapped[Uid] = mapped_column(primary_key=True)
    plan_digest: Mapped[Digest] = mapped_column(primary_key=True)
    capacity_bytes: Mapped[int]
    """Of a device, less the headroom."""
    plan: Mapped[Document]
    fits: Mapped[bool | None]
    """None until there is a result."""
    document: Mapped[str | None] = mapped_column(Text)


class QuestionRow(Base):
    """Question to the search for a plan, once on each occasion."""

    __tablename__ = "question"
    __table_args__ = (
        UniqueConstraint("plan_uid", "generation", "round", "profile_digest"),
    )

    plan_uid: Mapped[Uid] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    """In the order in which they were put."""
    generation: Mapped[int]
    round: Mapped[int]
    profile_digest: Mapped[Digest]
    problem_digest: Mapped[Digest]
    document: Mapped[Document]


class AnswerRow(UsedRow):
    """The answer of the search to a problem."""

    __tablename__ = "answer"

    scope: Mapped[Scope] = mapped_column(primary_key=True)
    problem_digest: Mapped[Digest] = mapped_column(primary_key=True)
    is_feasible: Mapped[bool]
    """The document is a `Solution`; else it is an `Infeasible`."""
    unreplayed: Mapped[Digest]
    is_certified: Mapped[bool]
    num_rounds: Mapped[int]
    document: Mapped[Document]


class AttemptRow(Base):
    """A plan of record, and what became of it."""

    __tablename__ = "attempt"

    plan_uid: Mapped[Uid] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    plan_digest: Mapped[Digest]
    problem_digest: Mapped[Digest]
    micro_batch: Mapped[int]
    recorded_s: Mapped[float]
    ending: Mapped[ShortText | None]
    ended_s: Mapped[float]
    generation: Mapped[int]
    """Of the spec when the end was written down."""
    message: Mapped[str] = mapped_column(Text)
    rank: Mapped[int | None]
    phase: Mapped[ShortText | None]
    document: Mapped[Document]


class RevisionRow(Base):
    """A plan in the place of the one that runs, and what became of it."""

    __tablename__ = "plan_revision"

    plan_uid: Mapped[Uid] = mapped_column(primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    plan_digest: Mapped[Digest]
    made_s: Mapped[float]
    state: Mapped[ShortText]
    settled_s: Mapped[float]
    """Time at which that state was written down; 0 until the ranks have answered."""
    num_steps: Mapped[int]
    moved_bytes: Mapped[int]
    moved_s: Mapped[float]
    message: Mapped[str] = mapped_column(Text)
    document: Mapped[Document]


class PlanRow(Base):
    """A TrainingPlan of this machine."""

    __tablename__ = "plan"

    uid: Mapped[Uid] = mapped_column(primary_key=True)
    name: Mapped[ShortText]
    current_name: Mapped[ShortText | None] = mapped_column(unique=True)
    """The name, as long as no later plan has taken it."""
    generation: Mapped[int]
    created_s: Mapped[float]
    is_suspended: Mapped[bool]
    was_told: Mapped[bool]
    folder: Mapped[str] = mapped_column(Text)
    spec: Mapped[Document]
    status: Mapped[Document]
    offers: Mapped[list[dict[str, object]]] = mapped_column(JSON)


class ObservationRow(OverheadKeyColumns, Base):
    """Memory that one rank really used, beside its prediction."""

    __tablename__ = "observation"
    __table_args__ = (
        Index("observation_by_overhead_key", *OVERHEAD_KEY),
        Index("observation_by_time", "reported_s", "plan_uid"),
    )

    plan_uid: Mapped[Uid] = mapped_column(primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True)
    plan_digest: Mapped[Digest]
    revision: Mapped[int]
    device_kind: Mapped[ShortText]
    fingerprint: Mapped[Document]
    micro_batch: Mapped[int]
    num_communicators: Mapped[int]
    num_steps: Mapped[int]
    step_s: Mapped[list[float]] = mapped_column(JSON)
    passes_s: Mapped[list[float]] = mapped_column(JSON, server_default="[]")
    capacity_bytes: Mapped[int] = mapped_column(server_default="0")
    moved_bytes: Mapped[int] = mapped_column(server_default="0")
    moved_s: Mapped[float] = mapped_column(server_default="0")
    refused_revision: Mapped[int] = mapped_column(server_default="0")
    refusal: Mapped[str] = mapped_column(Text, server_default="")
    predicted_allocated_bytes: Mapped[int]
    """Expected."""
    predicted_device_bytes: Mapped[int]
    """Expected."""
    predicted_upper_bytes: Mapped[int]
    """Of all that is on the device."""
    reported_s: Mapped[float] = mapped_column(server_default="0")
    """Time at which it was taken in."""
    peaks: Mapped[list[ObservedPeakRow]] = relationship(
        lazy="raise", order_by="ObservedPeakRow.place"
    )


class ObservedPeakRow(Base):
    """The peak of an observed rank in one phase."""

    __tablename__ = "observed_peak"
    __table_args__ = (
        ForeignKeyConstraint(
            ["plan_uid", "attempt", "rank"],
            ["observation.plan_uid", "observation.attempt", "observation.rank"],
            ondelete="CASCADE",
        ),
    )

    plan_uid: Mapped[Uid] = mapped_column(primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True)
    place: Mapped[int] = mapped_column(primary_key=True)
    """In the report."""
    phase: Mapped[ShortText]
    allocated_bytes: Mapped[int]
    reserved_bytes: Mapped[int]
    device_bytes: Mapped[int]


class ShortageRow(OverheadKeyColumns, Base):
    """A rank that ran out of device memory; one of each attempt."""

    __tablename__ = "shortage"
    __table_args__ = (Index("shortage_by_overhead_key", *OVERHEAD_KEY),)

    plan_uid: Mapped[Uid] = mapped_column(primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    micro_batch: Mapped[int]
    num_communicators: Mapped[int]
    capacity_bytes: Mapped[int]
    in_use_bytes: Mapped[int]
    asked_bytes: Mapped[int]
    predicted_allocated_bytes: Mapped[int]
    predicted_device_bytes: Mapped[int]


class PodEndRow(Base):
    """The report of a pod after the end of all of its processes."""

    __tablename__ = "pod_end"

    plan_uid: Mapped[Uid] = mapped_column(primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    pod_uid: Mapped[Uid] = mapped_column(primary_key=True)
    place: Mapped[int]
    """Of the pod among those of the attempt."""
    document: Mapped[Document]


class CalibrationRow(OverheadKeyColumns, Base):
    """Memory of a device besides tensors, fitted to observations."""

    __tablename__ = "calibration"
    __table_args__ = (PrimaryKeyConstraint(*OVERHEAD_KEY),)

    num_observations: Mapped[int]
    document: Mapped[Document]


def key_of(row: OverheadKeyColumns) -> OverheadKey:
    """The overhead key that a row counts for."""
    return OverheadKey(
        device_product=row.device_product,
        image=row.image,
        torch_version=row.torch_version,
        nccl_version=row.nccl_version,
    )


def counts_for(
    scope: str, key: OverheadKey, table: type[OverheadKeyColumns]
) -> tuple[ColumnElement[bool], ...]:
    """The conditions that a table's rows count for an overhead key."""
    return (*runs_like(scope, key, table), table.nccl_version == key.nccl_version)


def runs_like(
    scope: str, key: OverheadKey, table: type[OverheadKeyColumns]
) -> tuple[ColumnElement[bool], ...]:
    """The same conditions, whatever version of NCCL a row has."""
    return (
        table.scope == scope,
        table.device_product == key.device_product,
        table.image == key.image,
        table.torch_version == key.torch_version,
    )
