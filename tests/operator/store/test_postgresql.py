"""A server: one that goes away, refuses us, hangs, and one that is not ours alone."""

from __future__ import annotations

import asyncio
import signal
import time
import traceback
from collections.abc import Generator

import psutil
import pytest
from psycopg import errors
from sqlalchemy import select, text

from plimsoll_operator.errors import (
    StoreBusyError,
    StoreDamagedError,
    StoreDownError,
    StoreError,
    StoreFullError,
    StorePathError,
)
from plimsoll_operator.store import postgresql
from plimsoll_operator.store.database import Database, open_database
from plimsoll_operator.store.places import system_at
from plimsoll_operator.store.profiles import Profiles
from plimsoll_operator.store.rows import ProfileRow
from plimsoll_operator.store.store import Store
from tests.support.builders import DIGEST, a_profile
from tests.support.postgresql import PASSWORD, TEMPLATE, USER, Server, a_server
from tests.support.stores import (
    a_row,
    by_hand,
    in_database,
    in_store,
    nothing,
    schema_of,
)


@pytest.fixture
def url(server: Server) -> Generator[str]:
    """The address of an empty store."""
    name = server.make(TEMPLATE)
    yield server.url(name)
    server.drop(name)


@pytest.fixture(scope="module")
def own_server() -> Generator[Server]:
    """A server that tests may stop and freeze."""
    with a_server() as server:
        server.make_template()
        yield server


def test_a_server_that_comes_back_is_used_again(own_server: Server) -> None:
    """By a store that stays open, whatever it was asked meanwhile."""

    async def work(store: Store) -> None:
        await store.profiles.save(a_profile(), 1.0)
        await asyncio.gather(*(store.profiles.find(DIGEST) for _ in range(4)))
        own_server.stop()
        for _ in range(2):
            with pytest.raises(StoreDownError, match=r" is down \(.*wait until it ans"):
                await store.profiles.find(DIGEST)
            with pytest.raises(StoreDownError):
                await store.profiles.save(a_profile(), 2.0)
        own_server.start()
        found = await asyncio.gather(*(store.profiles.find(DIGEST) for _ in range(8)))
        assert [one.made_s for one in found if one] == [1.0] * 8
        own_server.stop()
        own_server.start()
        await store.profiles.save(a_profile(), 3.0)  # nobody has noticed anything

    in_store(own_server.url(TEMPLATE), work)


def test_a_server_that_stops_within_a_transaction_leaves_nothing(
    own_server: Server,
) -> None:
    """Who was in it is told; started again the server knows nothing of it."""

    async def work(database: Database) -> None:
        async def lose() -> None:
            async with database.write() as session:
                session.add(a_row("unsaved"))
                await session.flush()
                own_server.stop()
                await session.execute(select(ProfileRow))

        with pytest.raises(StoreDownError, match="terminating connection due to admin"):
            await lose()
        own_server.start()
        async with database.read() as session:
            assert await session.get(ProfileRow, "unsaved") is None

    in_database(own_server.url(TEMPLATE), work)


def test_a_server_that_is_down_opens_no_store(own_server: Server) -> None:
    """It is said to be down, and what a person can do."""
    own_server.stop()
    try:
        with pytest.raises(StoreDownError, match=r"/migrated is down \(.*: start it"):
            in_store(own_server.url(TEMPLATE), nothing)
    finally:
        own_server.start()


def test_a_frozen_server_does_not_freeze_us(
    own_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those who wait behind a transaction give up with it; thawed it is used again."""
    monkeypatch.setitem(vars(postgresql), "CONNECTING", {"connect_timeout": 10})

    async def work(store: Store) -> None:
        await store.profiles.save(a_profile(), 1.0)
        first = psutil.Process(own_server.pid)
        frozen = [first, *first.children()]
        signal_all(frozen, signal.SIGSTOP)
        begun_s = time.monotonic()
        try:
            with monkeypatch.context() as impatient:
                impatient.setattr(postgresql.PostgresqlServer, "patience_s", 0.5)
                asked = (store.profiles.save(a_profile(), 2.0) for _ in range(3))
                told = await asyncio.gather(*asked, return_exceptions=True)
        finally:
            signal_all(frozen, signal.SIGCONT)
        assert [type(one) for one in told] == [StoreDownError] * 3
        assert time.monotonic() - begun_s < 30
        await store.profiles.save(a_profile(), 3.0)

    in_store(own_server.url(TEMPLATE), work)


def signal_all(processes: list[psutil.Process], number: signal.Signals) -> None:
    """Send a signal to processes, some of which may have ended."""
    for process in processes:
        if process.is_running():
            process.send_signal(number)


def test_who_freezes_while_writing_loses_its_turn(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other replicas go on; it is told when it wakes."""

    async def work(database: Database) -> None:
        async def freeze() -> None:
            async with database.write() as frozen:
                frozen.add(a_row("frozen"))
                with monkeypatch.context() as impatient:
                    impatient.setattr(postgresql, "IDLE_S", 1.0)
                    await frozen.flush()
                async with open_database(url) as others, others.write() as session:
                    session.add(a_row("others"))
                await frozen.scalars(select(ProfileRow))

        with pytest.raises(StoreDownError, match=r"idle-in-transaction.*try again"):
            await freeze()
        async with database.read() as session:
            keys = (await session.scalars(select(ProfileRow.request_key))).all()
        assert keys == ["others"]

    in_database(url, work)


def test_a_statement_that_takes_too_long_is_ended(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the server, and the connection is used again."""

    async def work(database: Database) -> None:
        with monkeypatch.context() as impatient:
            impatient.setattr(postgresql, "STATEMENT_S", 0.5)
            with pytest.raises(
                StoreDownError, match=r"is too slow \(.*statement timeout"
            ):
                async with database.read() as session:
                    await session.execute(text("SELECT pg_sleep(60)"))
        async with database.read() as session:
            assert await session.scalar(text("SELECT 1")) == 1

    in_database(url, work)


def test_a_lock_of_somebody_else_is_waited_for_in_vain(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person who has locked a table keeps us busy, not hanging."""
    monkeypatch.setattr(postgresql, "BUSY_S", 0.2)

    async def work(database: Database) -> None:
        async with open_database(url) as others, others.read() as session:
            await session.execute(text("LOCK TABLE profile IN ACCESS SHARE MODE"))
            with pytest.raises(StoreBusyError, match=r"is busy \(.*lock timeout"):
                async with database.write() as mine:
                    await mine.execute(text("ALTER TABLE profile ADD COLUMN x INTEGER"))

    in_database(url, work)


def test_more_readers_than_connections_wait(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a while; then they are told why."""
    monkeypatch.setattr(postgresql, "NUM_CONNECTIONS", 1)

    async def take_turns(database: Database) -> None:
        profiles = Profiles(database)
        await asyncio.gather(*(profiles.find(DIGEST) for _ in range(20)))

    async def stay(database: Database) -> None:
        async with database.read() as session:
            await session.execute(text("SELECT 1"))
            with pytest.raises(StoreBusyError, match="all 1 connections are in use"):
                await Profiles(database).find(DIGEST)

    in_database(url, take_turns)
    monkeypatch.setattr(postgresql, "BUSY_S", 0.3)
    in_database(url, stay)


def test_readers_see_one_state_and_change_nothing(url: str) -> None:
    """That of their first statement, whoever writes meanwhile."""

    async def work(database: Database) -> None:
        keys = select(ProfileRow.request_key)
        async with database.read() as session:
            assert (await session.scalars(keys)).all() == []
            async with database.write() as writer:
                writer.add(a_row("new"))
            assert (await session.scalars(keys)).all() == []

        async def change() -> None:
            async with database.read() as session:
                session.add(a_row("mine"))
                await session.flush()

        with pytest.raises(StoreError, match="read-only transaction"):
            await change()
        async with database.read() as session:
            assert (await session.scalars(keys)).all() == ["new"]

    in_database(url, work)


@pytest.mark.parametrize(
    ("user", "password", "database", "why"),
    [
        (USER, "wr0ng-%40#", TEMPLATE, "refuses us (.*password authentication failed"),
        ("nobody", "wr0ng-%40#", TEMPLATE, "refuses us (.*authentication failed"),
        (USER, "", TEMPLATE, "refuses us (.*no password supplied"),
        (USER, PASSWORD, "other", 'is not there (.*"other" does not exist'),
        (USER, PASSWORD, "migrated?x=1", 'is no address (.*connection option "x"'),
        (USER, PASSWORD, "migrated?sslmode=require", "has no TLS (.*SSL was required"),
    ],
)
def test_whom_a_server_refuses_is_told_why(
    server: Server, user: str, password: str, database: str, why: str
) -> None:
    """And nobody else is told the password, by message, cause or name."""
    between = f":{password}" if password else ""
    address = f"postgresql://{user}{between}@127.0.0.1:{server.port}/{database}"
    with pytest.raises(StorePathError, match=why.replace("(", r"\(")) as refused:
        in_store(address, nothing)
    text = "".join(traceback.format_exception(refused.value))
    shown = [text, system_at(address).name, repr(vars(system_at(address)))]
    for secret in filter(None, (password, password.replace("%40", "@"))):
        assert all(secret not in one for one in shown)


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://plimsoll:s3cr3t@here@host/database",
        "postgresql://plimsoll:s3cr3t@host:port/database",
        "postgresql://plimsoll:s3cr3t@host",
        "postgresql://plimsoll:s3cr3t@",
    ],
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    """In words that say how one is written, and show nothing of it."""
    with pytest.raises(StorePathError, match="user:password@host:port/data") as refused:
        in_store(address, nothing)
    assert "s3cr3t" not in str(refused.value)
    assert "here" not in str(refused.value)


def test_a_user_without_rights_is_refused(server: Server) -> None:
    """A database that others own: PostgreSQL 15 lets them make no tables there."""
    name = server.make()
    server.do("CREATE ROLE {} LOGIN PASSWORD 'x'", "guest")
    address = f"postgresql://guest:x@127.0.0.1:{server.port}/{name}"
    try:
        with pytest.raises(StorePathError, match=r"refuses us \(permission denied for"):
            in_store(address, nothing)
    finally:
        server.drop(name)
        server.do("DROP ROLE {}", "guest")


def test_a_database_of_something_else_is_left_alone(server: Server) -> None:
    """One with tables of its own, whatever they are called."""
    name = server.make()
    by_hand(server.url(name), "CREATE TABLE plan (x INTEGER)")
    before = schema_of(server.url(name))
    with pytest.raises(StoreDamagedError, match="is a database of something else: nam"):
        in_store(server.url(name), nothing)
    assert schema_of(server.url(name)) == before
    server.drop(name)


def test_a_schema_of_its_own_may_be_named(server: Server) -> None:
    """In the address, as libpq reads it; other schemas are not looked at."""
    name = server.make()
    by_hand(server.url(name), "CREATE TABLE plan (x INTEGER)")
    by_hand(server.url(name), "CREATE SCHEMA ours")
    address = f"{server.url(name)}?options=-csearch_path%3Dours"

    async def work(store: Store) -> None:
        await store.profiles.save(a_profile(), 1.0)

    in_store(address, work)
    found = by_hand(server.url(name), "SELECT request_key FROM ours.profile")
    assert found == [(DIGEST,)]
    server.drop(name)


def test_what_the_address_asks_of_the_driver_counts(url: str) -> None:
    """It goes before what we would ask."""

    async def name(database: Database) -> object:
        async with database.read() as session:
            return await session.scalar(text("SHOW application_name"))

    assert in_database(url, name) == "plimsoll"
    assert in_database(f"{url}?application_name=other", name) == "other"


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("40001", StoreBusyError),  # a serialization failure
        ("40P01", StoreBusyError),  # a deadlock
        ("53100", StoreFullError),
        ("53300", StoreDownError),  # too many connections
        ("57P03", StoreDownError),  # it starts or shuts down
        ("08006", StoreDownError),
        ("XX001", StoreDamagedError),
        ("23505", StoreError),
    ],
)
def test_what_a_state_means(state: str, kind: type[StoreError]) -> None:
    """What is worth another try is told from what a person has to mend."""
    with pytest.raises(StoreError) as said, system_at("postgresql:///x").explaining():
        raise errors.lookup(state)("words")
    assert type(said.value) is kind
    assert str(said.value).startswith("postgresql:///x ")
    assert "(words): " in str(said.value)
