"""When profiles, replays and answers were last used, so that old ones can go.

What an older store holds counts as used now: nobody knows better.
"""

from __future__ import annotations

import time

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

NAMES = ("profile", "replay", "answer")


def upgrade() -> None:
    """Add the time."""
    for name in NAMES:
        used = sa.Column("used_s", sa.Double, nullable=False, server_default="0")
        op.add_column(name, used)
        now = sa.table(name, sa.column("used_s")).update().values(used_s=time.time())
        op.execute(now)


def downgrade() -> None:
    """Keep all else."""
    for name in NAMES:
        op.drop_column(name, "used_s")
