"""Transactions: whole or not at all, and on what was opened."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import select

from plimsoll_operator.errors import (
    StoreBusyError,
    StoreDamagedError,
    StoreLostError,
    StoreVersionError,
)
from plimsoll_operator.store import postgresql, sqlite
from plimsoll_operator.store.database import Database, open_database
from plimsoll_operator.store.rows import ProfileRow
from plimsoll_operator.store.store import Store, open_store
from tests.support.builders import DIGEST, a_profile
from tests.support.stores import (
    a_row,
    by_hand,
    in_database,
    in_store,
    nothing,
    schema_of,
)


def delete(path: Path) -> None:
    """Remove the store and what lies beside it."""
    for file in path.parent.iterdir():
        file.unlink()


def move_folder(path: Path) -> None:
    """Give the store's folder another name."""
    path.parent.rename(path.parent.with_name("elsewhere"))


def replace_by_another(path: Path) -> None:
    """Put another store in its place."""
    other = path.with_name("other.db")
    with closing(sqlite3.connect(path)) as file:
        file.execute("VACUUM INTO ?", [str(other)])
    other.replace(path)


@pytest.mark.parametrize("lose", [delete, move_folder, replace_by_another])
def test_a_store_that_goes_away_is_noticed(
    lose: Callable[[Path], None], tmp_path: Path
) -> None:
    """Neither a write nor a read is said to have worked, and no new file appears."""
    path = tmp_path / "folder" / "store.db"
    path.parent.mkdir()

    async def work(store: Store) -> None:
        await store.profiles.save(a_profile(), 1.0)
        lose(path)
        for _ in range(2):
            with pytest.raises(StoreLostError, match="was deleted or replaced while"):
                await store.profiles.save(a_profile(), 2.0)
            several = (store.profiles.find(DIGEST) for _ in range(3))
            found = await asyncio.gather(*several, return_exceptions=True)
            assert [type(one) for one in found] == [StoreLostError] * 3

    in_store(path, work)
    assert path.exists() == (lose is replace_by_another)


def test_what_raises_inside_leaves_nothing(place: Path | str) -> None:
    """Not the rows before the error either; the next transaction works."""

    async def work(database: Database) -> list[str]:
        with contextlib.suppress(ZeroDivisionError):
            async with database.write() as session:
                session.add(a_row("a"))
                await session.flush()
                raise ZeroDivisionError
        return await keys_with(database, "b")

    assert in_database(place, work) == ["b"]


def test_who_is_cancelled_leaves_nothing(place: Path | str) -> None:
    """In the middle of a write; the next one needs not wait."""

    async def work(database: Database) -> list[str]:
        is_in = asyncio.Event()

        async def stay() -> None:
            async with database.write() as session:
                session.add(a_row("a"))
                await session.flush()
                is_in.set()
                await asyncio.sleep(600)

        task = asyncio.create_task(stay())
        await is_in.wait()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return await keys_with(database, "b")

    assert in_database(place, work) == ["b"]


async def keys_with(database: Database, key: str) -> list[str]:
    """Save a profile row, and return the keys of all that there are."""
    async with database.write() as session:
        session.add(a_row(key))
    async with database.read() as session:
        return list(await session.scalars(select(ProfileRow.request_key)))


def test_readers_do_not_wait_for_a_writer(
    place: Path | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They see what was there before; another writer gives up after its patience."""
    for system in (sqlite, postgresql):
        monkeypatch.setattr(system, "BUSY_S", 0.2)

    async def work(store: Store) -> None:
        async with open_database(place) as others, others.write() as session:
            session.add(a_row("theirs"))
            await session.flush()
            assert await store.profiles.find("theirs") is None
            with pytest.raises(StoreBusyError, match="try again"):
                await store.profiles.save(a_profile(), 1.0)
        await store.profiles.save(a_profile(), 1.0)
        assert await store.profiles.find(DIGEST) is not None

    in_store(place, work)


def test_tasks_of_one_process_take_turns(place: Path | str) -> None:
    """A hundred writes and reads at once all succeed."""

    async def work(store: Store) -> None:
        keys = [f"sha256:{place:064}" for place in range(100)]
        await asyncio.gather(
            *(store.profiles.save(a_profile(request_key=key), 1.0) for key in keys),
            *(store.profiles.find(key) for key in keys),
        )
        found = await asyncio.gather(*map(store.profiles.find, keys))
        assert None not in found

    in_store(place, work)


def test_writers_that_wait_keep_no_reader_waiting(place: Path | str) -> None:
    """However many of this process stand behind one that writes."""

    async def work(database: Database) -> None:
        async def write(key: str) -> None:
            async with database.write() as session:
                session.add(a_row(key))

        async with asyncio.TaskGroup() as tasks, database.write():
            for number in range(40):
                tasks.create_task(write(str(number)))
            await asyncio.sleep(0.1)
            async with asyncio.timeout(60), database.read() as session:
                assert await session.get(ProfileRow, "0") is None

    in_database(place, work)


def test_two_new_stores_open_at_once(tmp_path: Path) -> None:
    """Each is made in full, though both are made by one process."""

    async def use(path: Path) -> None:
        async with open_store(path) as store:
            await store.profiles.save(a_profile(), 1.0)

    async def both() -> None:
        await asyncio.gather(*(use(tmp_path / name) for name in ("a.db", "b.db")))

    asyncio.run(both())


def test_a_store_of_a_development_version_is_refused(place: Path | str) -> None:
    """It says that it is of this revision, and lacks a column."""
    in_store(place, nothing)
    by_hand(place, "ALTER TABLE plan DROP COLUMN was_told")

    async def look(store: Store) -> None:
        await store.plans.all()

    with pytest.raises(StoreVersionError, match=r"was_told.*, or name another "):
        in_store(place, look)


def test_a_newer_store_is_refused(place: Path | str) -> None:
    """With its revision and what to do; nothing in it is changed."""
    in_store(place, nothing)
    by_hand(place, "UPDATE plimsoll_revision SET version_num = '0107'")
    by_hand(place, "CREATE TABLE newer (x INTEGER)")
    before = schema_of(place)
    with pytest.raises(
        StoreVersionError,
        match=r" was written by a newer version of Plimsoll \(revision 0107\): "
        r"update plimsoll, or name another ",
    ):
        in_store(place, nothing)
    assert schema_of(place) == before
    assert by_hand(place, "SELECT * FROM plimsoll_revision") == [("0107",)]


def test_a_damaged_store_says_so(tmp_path: Path) -> None:
    """Pages that were overwritten, and a document that is none."""
    path, other = tmp_path / "store.db", tmp_path / "other.db"

    async def save(store: Store) -> None:
        await store.profiles.save(a_profile(), 1.0)

    async def find(store: Store) -> None:
        await store.profiles.find(DIGEST)

    in_store(path, save)
    shutil.copy(path, other)
    with path.open("r+b") as raw:
        raw.seek(4096)
        raw.write(b"\xff" * (path.stat().st_size - 4096))
    with pytest.raises(StoreDamagedError, match=r"store\.db is no store, or it is dam"):
        in_store(path, find)
    with closing(sqlite3.connect(other)) as file, file:
        file.execute("""UPDATE profile SET document = '{"kind": "ModelProfile"}'""")
    with pytest.raises(StoreDamagedError, match=r"ModelProfile\.schema_version"):
        in_store(other, find)


OPEN_AND_SAY = """
import asyncio, pathlib, sys
from plimsoll_operator.store.store import open_store
async def work():
    async with open_store(pathlib.Path(sys.argv[1])):
        print("alembic" in sys.modules, "psycopg" in sys.modules)
asyncio.run(work())
"""


def test_a_store_that_is_up_to_date_opens_without_alembic(tmp_path: Path) -> None:
    """It is needed for a new one alone; its import takes longer than all the rest.

    No home needs PostgreSQL's driver, which is not installed there.
    """
    command = [sys.executable, "-c", OPEN_AND_SAY, str(tmp_path / "store.db")]
    said = [subprocess.check_output(command, text=True).strip() for _ in range(2)]
    assert said == ["True False", "False False"]
