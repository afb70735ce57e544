"""The first tables: documents, plans with their attempts, and what was observed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make all tables."""
    make_documents()
    make_plans()
    make_observations()
    make_calibration()


def downgrade() -> None:
    """Drop all tables, those that refer to others first."""
    for name in (
        *("calibration", "shortage", "observed_peak", "observation"),
        *("attempt", "question", "plan", "answer", "replay", "profile"),
    ):
        op.drop_table(name)


def make_documents() -> None:
    """What is found by a digest."""
    op.create_table(
        "profile",
        sa.Column("request_key", sa.String(71), primary_key=True),
        sa.Column("digest", sa.String(71), nullable=False),
        sa.Column("made_s", sa.Double, nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
    )
    op.create_table(
        "replay",
        sa.Column("plan_digest", sa.String(71), primary_key=True),
        sa.Column("document", sa.Text(), nullable=False),
    )
    op.create_table(
        "answer",
        sa.Column("problem_digest", sa.String(71), primary_key=True),
        sa.Column("is_feasible", sa.Boolean(), nullable=False),
        sa.Column("unreplayed", sa.String(71), nullable=False),
        sa.Column("is_certified", sa.Boolean(), nullable=False),
        sa.Column("num_rounds", sa.BigInteger(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
    )


def make_plans() -> None:
    """Plans, with what was asked and tried for them."""
    op.create_table(
        "plan",
        sa.Column("uid", sa.String(64), primary_key=True),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("current_name", sa.String(256), nullable=True, unique=True),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("created_s", sa.Double, nullable=False),
        sa.Column("is_suspended", sa.Boolean(), nullable=False),
        sa.Column("was_told", sa.Boolean(), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("offers", sa.JSON(), nullable=False),
    )
    op.create_table(
        "question",
        sa.Column("plan_uid", sa.String(64), primary_key=True),
        sa.Column("number", sa.BigInteger(), primary_key=True),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("round", sa.BigInteger(), nullable=False),
        sa.Column("profile_digest", sa.String(71), nullable=False),
        sa.Column("problem_digest", sa.String(71), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.UniqueConstraint("plan_uid", "generation", "round", "profile_digest"),
    )
    op.create_table(
        "attempt",
        sa.Column("plan_uid", sa.String(64), primary_key=True),
        sa.Column("number", sa.BigInteger(), primary_key=True),
        sa.Column("plan_digest", sa.String(71), nullable=False),
        sa.Column("problem_digest", sa.String(71), nullable=False),
        sa.Column("micro_batch", sa.BigInteger(), nullable=False),
        sa.Column("recorded_s", sa.Double, nullable=False),
        sa.Column("ending", sa.String(256), nullable=True),
        sa.Column("ended_s", sa.Double, nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("rank", sa.BigInteger(), nullable=True),
        sa.Column("phase", sa.String(256), nullable=True),
        sa.Column("document", sa.Text(), nullable=False),
    )


def make_observations() -> None:
    """What ranks used."""
    op.create_table(
        "observation",
        sa.Column("plan_uid", sa.String(64), primary_key=True),
        sa.Column("attempt", sa.BigInteger(), primary_key=True),
        sa.Column("rank", sa.BigInteger(), primary_key=True),
        sa.Column("plan_digest", sa.String(71), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("device_kind", sa.String(256), nullable=False),
        *overhead_key(),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("micro_batch", sa.BigInteger(), nullable=False),
        sa.Column("num_communicators", sa.BigInteger(), nullable=False),
        sa.Column("num_steps", sa.BigInteger(), nullable=False),
        sa.Column("step_s", sa.JSON(), nullable=False),
        sa.Column("predicted_allocated_bytes", sa.BigInteger(), nullable=False),
        sa.Column("predicted_device_bytes", sa.BigInteger(), nullable=False),
        sa.Column("predicted_upper_bytes", sa.BigInteger(), nullable=False),
    )
    op.create_index(
        "observation_by_overhead_key",
        "observation",
        ["device_product", "image", "torch_version", "nccl_version"],
    )
    rank = ("plan_uid", "attempt", "rank")
    op.create_table(
        "observed_peak",
        sa.Column("plan_uid", sa.String(64), primary_key=True),
        sa.Column("attempt", sa.BigInteger(), primary_key=True),
        sa.Column("rank", sa.BigInteger(), primary_key=True),
        sa.Column("place", sa.BigInteger(), primary_key=True),
        sa.Column("phase", sa.String(256), nullable=False),
        sa.Column("allocated_bytes", sa.BigInteger(), nullable=False),
        sa.Column("reserved_bytes", sa.BigInteger(), nullable=False),
        sa.Column("device_bytes", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            rank, [f"observation.{name}" for name in rank], ondelete="CASCADE"
        ),
    )


def make_calibration() -> None:
    """Where memory was short, and what was learnt from all of it."""
    op.create_table(
        "shortage",
        sa.Column("plan_uid", sa.String(64), primary_key=True),
        sa.Column("attempt", sa.BigInteger(), primary_key=True),
        *overhead_key(),
        sa.Column("micro_batch", sa.BigInteger(), nullable=False),
        sa.Column("num_communicators", sa.BigInteger(), nullable=False),
        sa.Column("capacity_bytes", sa.BigInteger(), nullable=False),
        sa.Column("in_use_bytes", sa.BigInteger(), nullable=False),
        sa.Column("asked_bytes", sa.BigInteger(), nullable=False),
        sa.Column("predicted_allocated_bytes", sa.BigInteger(), nullable=False),
        sa.Column("predicted_device_bytes", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "calibration",
        *overhead_key(is_primary=True),
        sa.Column("num_observations", sa.BigInteger(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
    )


def overhead_key(*, is_primary: bool = False) -> list[sa.Column[str]]:
    """The columns that say for which calibration a row counts."""
    return [
        sa.Column(name, sa.String(256), primary_key=is_primary, nullable=False)
        for name in ("device_product", "image", "torch_version", "nccl_version")
    ]
