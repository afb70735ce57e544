"""Migrations: from any revision to the newest, all or nothing."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from plimsoll_operator.errors import StoreError
from plimsoll_operator.store import migrate
from plimsoll_operator.store.database import NEWEST_REVISION
from plimsoll_operator.store.rows import Base
from plimsoll_operator.store.sqlite import (
    REVISION_TABLE,
    migration_engine_for,
    prepare,
)
from tests.support.stores import at_once, in_store, nothing, open_new

REVISIONS = [
    script.revision
    for script in ScriptDirectory(str(migrate.MIGRATIONS)).walk_revisions()
]
"""The newest first."""


def differences(path: Path) -> list[object]:
    """Return in what a store is not as the classes say."""
    engine = migration_engine_for(path)
    with engine.connect() as connection:
        options = {"version_table": REVISION_TABLE}
        context = MigrationContext.configure(connection, opts=options)
        found = list(compare_metadata(context, Base.metadata))
    engine.dispose()
    return found


def schema(path: Path) -> list[tuple[str, str]]:
    """Return every table and index with its SQL."""
    with closing(sqlite3.connect(path)) as file:
        return file.execute("SELECT name, sql FROM sqlite_master ORDER BY 1").fetchall()


def test_revisions_count_upwards() -> None:
    """So that a newer one is told from an older one; the constant is the newest."""
    assert REVISIONS[0] == NEWEST_REVISION
    assert [f"{n:04}" for n in range(len(REVISIONS), 0, -1)] == REVISIONS


def test_a_new_store_is_as_the_classes_say(tmp_path: Path) -> None:
    """Alembic finds no difference, and would find one."""
    path = tmp_path / "store.db"
    in_store(path, nothing)
    assert differences(path) == []
    with closing(sqlite3.connect(path)) as file:
        file.execute("ALTER TABLE profile DROP COLUMN made_s")
    assert len(differences(path)) == 1


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_store_of_any_revision_comes_up(revision: str, tmp_path: Path) -> None:
    """It becomes what a new one is, with all of its rows."""
    path, new = tmp_path / "store.db", tmp_path / "new.db"
    prepare(path)
    migrate.upgrade(path, revision)
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("INSERT INTO profile VALUES ('key', 'digest', 1.5, '{}')")
    in_store(path, nothing)
    in_store(new, nothing)
    assert schema(path) == schema(new)
    with closing(sqlite3.connect(path)) as file:
        found = file.execute("SELECT * FROM profile").fetchall()
    assert found == [("key", "digest", 1.5, "{}")]


def test_a_migration_that_fails_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even what it did before it failed; the store is of the revision it was."""
    path = tmp_path / "store.db"
    in_store(path, nothing)
    before = schema(path)
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
    with pytest.raises(StoreError, match=r"store\.db: table profile already exists"):
        migrate.upgrade(path)
    assert schema(path) == before
    assert prepare(path) == NEWEST_REVISION


@pytest.mark.slow
def test_processes_that_come_together_make_one_store(tmp_path: Path) -> None:
    """All eight of them find it whole."""
    path = tmp_path / "store.db"
    at_once(open_new, [(path,)] * 8)
    assert differences(path) == []
