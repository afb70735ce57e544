"""Migrations: from any revision to the newest and back, all or nothing."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import column, insert, inspect, select, table

from plimsoll_operator.errors import StoreError
from plimsoll_operator.store import migrate
from plimsoll_operator.store.answers import StoredAnswer
from plimsoll_operator.store.database import DAY_S, NEWEST_REVISION
from plimsoll_operator.store.places import system_at
from plimsoll_operator.store.rehearsals import AskedRehearsal
from plimsoll_operator.store.rows import Base
from plimsoll_operator.store.store import Store
from plimsoll_operator.store.system import REVISION_TABLE
from plimsoll_planner.records.document import canonical_text, digest_of
from tests.support.builders import (
    DIGEST,
    a_fingerprint,
    a_peak,
    a_plan,
    a_replay,
    an_infeasible,
    an_observation,
    an_overhead,
)
from tests.support.stores import (
    an_end,
    at_once,
    by_hand,
    connected,
    in_store,
    nothing,
    open_new,
    schema_of,
)

REVISIONS = [
    script.revision
    for script in ScriptDirectory(str(migrate.MIGRATIONS)).walk_revisions()
]
"""The newest first."""
KEY = an_overhead().key
OBSERVATION = an_observation(step_s=(1.5,), overhead_key=KEY)
OLD_ROWS: dict[str, dict[str, object]] = {
    "profile": {"request_key": "key", "digest": DIGEST, "made_s": 1.5, "document": "x"},
    "replay": {"plan_digest": DIGEST, "document": canonical_text(a_replay())},
    "answer": {
        "problem_digest": DIGEST,
        "is_feasible": False,
        "unreplayed": "",
        "is_certified": True,
        "num_rounds": 2,
        "document": canonical_text(an_infeasible()),
    },
    "observation": {
        "plan_uid": "uid",
        "attempt": 1,
        "rank": 0,
        "plan_digest": DIGEST,
        "revision": 1,
        "device_kind": "cuda",
        **KEY.to_json(),
        "fingerprint": canonical_text(a_fingerprint()),
        "micro_batch": 2,
        "num_communicators": 2,
        "num_steps": 2,
        "step_s": "[1.5]",
        "predicted_allocated_bytes": 1,
        "predicted_device_bytes": 2,
        "predicted_upper_bytes": 3,
    },
    "observed_peak": {
        "plan_uid": "uid",
        "attempt": 1,
        "rank": 0,
        "place": 0,
        **OBSERVATION.peaks[0].to_json(),
    },
    "shortage": {
        "plan_uid": "uid",
        "attempt": 1,
        **KEY.to_json(),
        "micro_batch": 2,
        "num_communicators": 2,
        "capacity_bytes": 5,
        "in_use_bytes": 4,
        "asked_bytes": 2,
        "predicted_allocated_bytes": 1,
        "predicted_device_bytes": 2,
    },
    "calibration": {
        **KEY.to_json(),
        "num_observations": 8,
        "document": canonical_text(an_overhead()),
    },
}
"""One of each table, as revision 0001 has it; the tables that others refer to first."""


def differences(place: Path | str) -> list[object]:
    """In what a store is not as the classes say."""
    with connected(place) as connection:
        options = {"version_table": REVISION_TABLE}
        context = MigrationContext.configure(connection, opts=options)
        found = list(compare_metadata(context, Base.metadata))
        for name, ours in Base.metadata.tables.items():  # Alembic compares no keys
            key = inspect(connection).get_pk_constraint(name)["constrained_columns"]
            if key != ours.primary_key.columns.keys():
                found.append((name, key))
    return found


def revision_of(place: Path | str) -> str:
    """Revision that is written down."""
    return system_at(place).prepare()


def made_at(place: Path | str, revision: str) -> None:
    """Make the tables of a revision."""
    backend = system_at(place)
    backend.prepare()
    migrate.upgrade(backend, revision)


def fill(place: Path | str) -> None:
    """Write what a store of revision 0001 may hold."""
    for name, row in OLD_ROWS.items():
        made = insert(table(name, *map(column, row)))
        by_hand(place, made, row)


def rows_of(place: Path | str) -> dict[str, list[dict[str, object]]]:
    """Rows of the tables that revision 0001 has."""
    return {
        name: [
            dict(found._mapping)
            for found in by_hand(place, select(table(name, *map(column, row))))
        ]
        for name, row in OLD_ROWS.items()
    }


def test_revisions_count_upwards() -> None:
    """So that a newer one is told from an older one; the constant is the newest."""
    assert REVISIONS[0] == NEWEST_REVISION
    assert [f"{n:04}" for n in range(len(REVISIONS), 0, -1)] == REVISIONS


def test_a_new_store_is_as_the_classes_say(empty_place: Path | str) -> None:
    """Alembic finds no difference, and would find one; nor do the keys differ."""
    in_store(empty_place, nothing)
    assert differences(empty_place) == []
    by_hand(empty_place, "ALTER TABLE profile DROP COLUMN made_s")
    assert len(differences(empty_place)) == 1


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_store_of_any_revision_comes_up(
    revision: str, empty_place: Path | str
) -> None:
    """It becomes what a new one is."""
    made_at(empty_place, "head")
    new = schema_of(empty_place)
    migrate.downgrade(system_at(empty_place), "base")
    made_at(empty_place, revision)
    in_store(empty_place, nothing)
    assert schema_of(empty_place) == new
    assert differences(empty_place) == []


def test_what_an_older_store_holds_keeps_its_meaning(empty_place: Path | str) -> None:
    """It is the one home's, and no namespace's; none of it is news."""
    made_at(empty_place, "0001")
    fill(empty_place)

    async def work(store: Store) -> None:
        answer = StoredAnswer(
            answer=an_infeasible(), unreplayed="", is_certified=True, num_rounds=2
        )
        assert await store.replays.find(DIGEST) == a_replay()
        assert await store.answers.find(DIGEST) == answer
        assert await store.observations.of("uid", 1) == (OBSERVATION,)
        assert await store.calibrations.all() == (an_overhead(),)
        assert await store.observations.news(0.0) == {"uid"}
        assert await store.observations.news(0.1) == set()
        other = store.within("team")
        assert await other.replays.find(DIGEST) is None
        assert await other.observations.of("uid", 1) == ()
        assert await other.calibrations.all() == ()
        assert await store.calibrations.forget_shortages(KEY.device_product) == 1

    in_store(empty_place, work)


def test_what_the_one_home_has_goes_down_and_up_again(empty_place: Path | str) -> None:
    """What belongs to a namespace is no older version's: it would use it for all."""
    made_at(empty_place, "0001")
    fill(empty_place)
    rows, schema = rows_of(empty_place), schema_of(empty_place)

    async def save(store: Store) -> None:
        team = store.within("team")
        await team.replays.save(a_replay(torch_version="2.16.0"))
        await team.observations.save("other", OBSERVATION, a_peak(), 2, 9.0)
        await store.pod_ends.save("uid", 1, 0, "pod", an_end())
        asked = AskedRehearsal(plan=a_plan(), capacity_bytes=1)
        await store.rehearsals.ask("uid", asked)

    async def look(store: Store) -> None:
        assert await store.replays.find(DIGEST) == a_replay()
        assert await store.observations.of("uid", 1) == (OBSERVATION,)
        assert await store.within("team").replays.find(DIGEST) is None
        assert await store.observations.news(0.0) == {"uid"}
        assert await store.pod_ends.of("uid", 1) == {}
        assert await store.rehearsals.asked("uid", digest_of(a_plan())) is None

    in_store(empty_place, save)
    migrate.downgrade(system_at(empty_place), "0001")
    assert rows_of(empty_place) == rows
    assert schema_of(empty_place) == schema
    in_store(empty_place, look)
    migrate.downgrade(system_at(empty_place), "base")
    assert list(schema_of(empty_place)) == [REVISION_TABLE]


def test_a_migration_that_fails_changes_nothing(
    place: Path | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even what it did before it failed; the store is of the revision it was."""
    in_store(place, nothing)
    before = schema_of(place)
    scripts = tmp_path / "migrations"
    shutil.copytree(migrate.MIGRATIONS, scripts)
    (scripts / "versions" / "r9999_fails.py").write_text(
        "from alembic import op\n"
        f"revision, down_revision = '9999', '{NEWEST_REVISION}'\n"
        "def upgrade():\n"
        "    op.execute('CREATE TABLE more (x INTEGER)')\n"
        "    op.execute('CREATE TABLE profile (x INTEGER)')\n"
    )
    monkeypatch.setattr(migrate, "MIGRATIONS", scripts)
    with pytest.raises(StoreError, match=r'profile"? already exists'):
        migrate.upgrade(system_at(place))
    assert schema_of(place) == before
    assert revision_of(place) == NEWEST_REVISION


def test_what_an_older_store_holds_counts_as_used_when_it_comes_up(
    empty_place: Path | str,
) -> None:
    """Nobody knows better, and nothing of it is to go on the first day."""
    made_at(empty_place, "0001")
    fill(empty_place)

    async def work(store: Store) -> None:
        now_s = time.time()
        assert await store.forget_unused(now_s - 3600) == 0
        assert await store.forget_unused(now_s + DAY_S + 1) == 3

    in_store(empty_place, work)


@pytest.mark.slow
def test_processes_that_come_together_make_one_store(empty_place: Path | str) -> None:
    """All eight of them find it whole."""
    at_once(open_new, [(empty_place,)] * 8)
    assert differences(empty_place) == []
