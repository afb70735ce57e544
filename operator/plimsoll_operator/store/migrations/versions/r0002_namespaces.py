"""What a cluster stores: scopes, when reports came in, and how pods ended.

What an older store holds keeps its meaning: the one home is the scope "", and its
reports came in before anybody asked. On the way down what belongs to a namespace goes,
for an older version would take it for everybody's.

SQLite cannot change a key in place: there Alembic copies the table. It must not copy
`observation`, for the phases of its rows would go with the old table; a column that has
a default can be added without.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

FOUND_BY = {
    "replay": ["plan_digest"],
    "answer": ["problem_digest"],
    "calibration": ["device_product", "image", "torch_version", "nccl_version"],
}
"""Tables whose key has the scope in front now, with what it was."""
KEY = FOUND_BY["calibration"]
BY_KEY = {name: f"{name}_by_overhead_key" for name in ("observation", "shortage")}
BY_TIME = "observation_by_time"


def upgrade() -> None:
    """Add what is new."""
    for name, key in FOUND_BY.items():
        with op.batch_alter_table(name) as table:
            table.add_column(scope())
            table.drop_constraint(f"{name}_key", type_="primary")
            table.create_primary_key(f"{name}_key", ["scope", *key])
    op.drop_index(BY_KEY["observation"], "observation")
    for name, index in BY_KEY.items():
        op.add_column(name, scope())
        op.create_index(index, name, ["scope", *KEY])
    op.add_column(
        "observation",
        sa.Column("reported_s", sa.Double, nullable=False, server_default="0"),
    )
    op.create_index(BY_TIME, "observation", ["reported_s", "plan_uid"])
    op.create_table(
        "pod_end",
        sa.Column("plan_uid", sa.String(64), primary_key=True),
        sa.Column("attempt", sa.BigInteger(), primary_key=True),
        sa.Column("pod_uid", sa.String(64), primary_key=True),
        sa.Column("place", sa.BigInteger(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
    )


def downgrade() -> None:
    """Keep what the one home has."""
    op.drop_table("pod_end")
    for name in (*FOUND_BY, *BY_KEY):
        op.execute(f"DELETE FROM {name} WHERE scope <> ''")  # noqa: S608 - constants
    op.drop_index(BY_TIME, "observation")
    op.drop_column("observation", "reported_s")
    for name, index in BY_KEY.items():
        op.drop_index(index, name)
        op.drop_column(name, "scope")
    op.create_index(BY_KEY["observation"], "observation", KEY)
    for name, key in FOUND_BY.items():
        with op.batch_alter_table(name) as table:
            table.drop_constraint(f"{name}_key", type_="primary")
            table.drop_column("scope")
            table.create_primary_key(f"{name}_key", key)


def scope() -> sa.Column[str]:
    """The column that says to which namespace a row belongs."""
    return sa.Column("scope", sa.String(256), nullable=False, server_default="")
