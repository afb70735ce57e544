"""The file of a store: where one can be, and what stands in the way."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from plimsoll_operator.errors import StoreDamagedError, StorePathError
from plimsoll_operator.store.sqlite import SqliteFile
from plimsoll_operator.store.store import Store
from tests.support.builders import DIGEST, a_profile
from tests.support.stores import (
    READ_ONLY,
    TMPFS,
    at_once,
    fill_disk,
    fill_quota,
    in_store,
    nothing,
    on_own_mount,
    print_refusal,
)


async def save(store: Store) -> None:
    """Save a profile."""
    await store.profiles.save(a_profile(), 1.0)


async def find(store: Store) -> bool:
    """Whether the profile is there."""
    return await store.profiles.find(DIGEST) is not None


def names_in(folder: Path) -> list[str]:
    """Names of all files in a folder."""
    return sorted(file.name for file in folder.iterdir())


@pytest.mark.parametrize(
    "name",
    ["store.db", "a b", "100%25?mode=ro#x", "\u00e4\u4e16", "\udcff.db", "a'\"\\b"],
)
def test_a_store_may_have_any_name(name: str, tmp_path: Path) -> None:
    """Nothing in it is taken for a part of an address; no other file is made."""
    path = tmp_path / name
    in_store(path, save)
    assert in_store(path, find)
    assert names_in(tmp_path) == [name]


def test_a_path_is_that_of_where_the_process_stood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative one stays the same file when the process moves."""
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)

    async def work(store: Store) -> None:
        monkeypatch.chdir(tmp_path / "other")
        await save(store)

    in_store(Path("store.db"), work)
    assert in_store(tmp_path / "store.db", find)


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    """As a crash just after it was made leaves it."""
    path = tmp_path / "store.db"
    path.touch()
    in_store(path, save)
    assert in_store(path, find)


def test_opening_waits_for_who_else_makes_the_store(tmp_path: Path) -> None:
    """Switching a file to WAL needs it alone for a moment."""
    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path, check_same_thread=False)) as other:
        other.execute("CREATE TABLE plimsoll_revision (version_num TEXT)")
        other.execute("BEGIN IMMEDIATE")
        ended = threading.Timer(0.3, other.rollback)
        ended.start()
        assert SqliteFile(path).prepare() == ""
        assert ended.finished.is_set()
        ended.join()


def test_where_no_file_can_be_is_refused(tmp_path: Path) -> None:
    """In one line that says why and what to do."""
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    for path, reason in (
        (tmp_path, "is a folder: name another --home"),
        (tmp_path / "a" / "store.db", f"there is no folder {tmp_path}/a: make it, or"),
        (tmp_path / "file" / "store.db", f"there is no folder {tmp_path}/file"),
        (tmp_path / "pipe", "is no file: name another --home"),
        (Path("/proc/store.db"), "cannot be written"),
        (tmp_path / ("x" * 300), "name another"),
    ):
        with pytest.raises(StorePathError) as refused:
            in_store(path, nothing)
        assert reason in str(refused.value)
    assert names_in(tmp_path) == ["file", "pipe"]


def test_a_folder_that_is_read_only_is_refused(tmp_path: Path) -> None:
    """Whether there is a store in it or not."""
    said = on_own_mount(READ_ONLY, tmp_path, print_refusal)
    assert said.startswith(f"StorePathError {tmp_path}/store.db cannot be written (")
    assert said.endswith("): name another --home")
    in_store(tmp_path / "store.db", save)
    said = on_own_mount(READ_ONLY, tmp_path, print_refusal)
    assert said.startswith(f"StorePathError {tmp_path}/store.db cannot be written (")


@pytest.mark.parametrize(
    "content", [b"hello", b"x" * 10_000, b"SQLite format 3\0" * 99]
)
def test_a_file_that_is_no_store_is_left_alone(content: bytes, tmp_path: Path) -> None:
    """Nothing is written to it, or beside it."""
    path = tmp_path / "store.db"
    path.write_bytes(content)
    with pytest.raises(StoreDamagedError, match=r"store\.db is no store, or it is dam"):
        in_store(path, nothing)
    assert path.read_bytes() == content
    assert names_in(tmp_path) == ["store.db"]


def test_a_database_of_something_else_is_left_alone(tmp_path: Path) -> None:
    """One with tables of its own."""
    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE plan (x INTEGER)")
    before = path.read_bytes()
    with pytest.raises(StoreDamagedError, match="is a database of something else: nam"):
        in_store(path, nothing)
    assert path.read_bytes() == before


def test_a_full_disk_loses_nothing_that_was_saved(tmp_path: Path) -> None:
    """What is there can be read, and with room again more is saved."""
    saved, more = map(int, on_own_mount(TMPFS, tmp_path, fill_disk).split())
    assert saved > 10
    assert more > 10


def test_a_quota_is_a_full_disk(tmp_path: Path) -> None:
    """A limit on the size of files ends in the same error."""
    [(saved, said)] = at_once(fill_quota, [(tmp_path / "store.db",)])
    assert saved > 10
    assert said == (
        f"{tmp_path}/store.db cannot grow: the disk is full, or a quota is used up: "
        "make room and try again"
    )
