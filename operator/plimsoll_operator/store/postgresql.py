"""The one place that knows PostgreSQL: its engine, its locks, its error codes.

In: the address of a server. Out: a `DatabaseSystem`: engines on a database of it, and
errors that say what to do and never show the password. Called by `places`.

Transactions that write take turns by an advisory lock of the database: what one looks
up is still so when it inserts, in however many processes, and none ever loses to
another. Those that read see the database as it was at their first statement.

Nothing hangs for ever. The server ends a statement that takes too long, and a
transaction whose process is frozen and would keep its turn; the kernel ends a
connection to a machine that is gone; the client ends a transaction when the server
itself is frozen. Prepared statements are not kept, and settings belong to a
transaction, so that a pooler such as PgBouncer may stand in between.
"""

from __future__ import annotations

from collections.abc import Mapping

import psycopg
from sqlalchemy import (
    URL,
    Connection,
    Engine,
    NullPool,
    create_engine,
    event,
    inspect,
    make_url,
    text,
)
from sqlalchemy.exc import ArgumentError
from sqlalchemy.exc import TimeoutError as NoConnectionError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from plimsoll_operator.errors import (
    StoreBusyError,
    StoreDamagedError,
    StoreDownError,
    StoreError,
    StoreFullError,
    StorePathError,
    StoreVersionError,
)
from plimsoll_operator.store.system import (
    REVISION_TABLE,
    WRITING,
    DatabaseSystem,
    writes,
)

CONNECT_S = 10
"""For each address of the server."""
BUSY_S = 30.0
"""Waited for other processes, whose transactions last milliseconds."""
STATEMENT_S = 40.0
"""More than `BUSY_S`, so that waiting for a turn ends as such."""
IDLE_S = 20.0
"""Between two statements of a transaction; nothing else is done between them."""
PATIENCE_S = 60.0
"""For a whole transaction, whatever the server does."""
NUM_CONNECTIONS = 8
"""Of one process: one that writes, and readers. A server allows 100 by default."""
TURN = 0x706C696D736F6C6C
"""The advisory lock of all that write: "plimsoll" in ASCII."""
CONNECTING: Mapping[str, object] = {
    "application_name": "plimsoll",
    "client_encoding": "utf8",
    "connect_timeout": CONNECT_S,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""Settings of libpq (in s, but the last in ms); what the address says goes before."""

Meaning = tuple[type[StoreError], str, str]
"""An error, what it says of the database, and what to do."""
MEANINGS: Mapping[str, Meaning] = {
    "40": (StoreBusyError, "is busy", "try again"),
    "55P03": (StoreBusyError, "is busy", "try again"),
    "08": (StoreDownError, "is down", "start it, or wait until it answers"),
    "25006": (StoreDownError, "takes no writes", "wait until it does"),
    "25P03": (StoreDownError, "has let go of us", "try again"),
    "53": (StoreDownError, "has no room for us", "give it more, or wait"),
    "53100": (StoreFullError, "cannot grow", "make room and try again"),
    "57": (StoreDownError, "is down", "start it, or wait until it answers"),
    "57014": (StoreDownError, "is too slow", "try again"),
    "28": (StorePathError, "refuses us", "correct user or password"),
    "3D": (StorePathError, "is not there", "make it, or name another database"),
    "3F": (StorePathError, "has no such schema", "make it, or name another database"),
    "42501": (StorePathError, "refuses us", "give its user the right to do it"),
    "42P01": (StoreVersionError, "lacks a table", "restore it, or name another one"),
    "42703": (StoreVersionError, "lacks a column", "restore it, or name another one"),
    "XX001": (StoreDamagedError, "is damaged", "restore it, or name another one"),
    "XX002": (StoreDamagedError, "is damaged", "restore it, or name another one"),
}
"""By SQLSTATE, or the class of it."""
BUSY, DOWN, SLOW = MEANINGS["40"], MEANINGS["08"], MEANINGS["57014"]
OTHER: Meaning = (StoreError, "did not do it", "try again, or name another database")
REFUSALS: Mapping[str, Meaning] = {
    "authentication failed": MEANINGS["28"],
    "no password": MEANINGS["28"],
    "no pg_hba.conf entry": MEANINGS["28"],
    "is not permitted to log in": MEANINGS["28"],
    "permission denied": MEANINGS["42501"],
    '" does not exist': MEANINGS["3D"],
    "connection option": (StorePathError, "is no address", "correct it"),
    "SSL was required": (StorePathError, "has no TLS", "set it up, or ask for none"),
    "certificate": (StorePathError, "is not trusted", "correct the certificates"),
}
"""The same for whom a server turns away: libpq keeps the words and drops the SQLSTATE.
One with another language is reported to be down, in its words."""


class PostgresqlServer(DatabaseSystem):
    """A store in a database of a server, which says itself that it is gone."""

    advice = "name another database"
    patience_s = PATIENCE_S
    driver_errors = (psycopg.Error, NoConnectionError, TimeoutError)

    def __init__(self, url: URL) -> None:
        """Remember the address."""
        self._url = url.set(drivername="postgresql+psycopg")
        shown = URL.create(
            "postgresql", url.username, None, url.host, url.port, url.database
        )
        self.name = str(shown)

    def prepare(self) -> str:
        """The revision of the tables; empty where there are none."""
        engine = self._engine_for_one()
        try:
            with self.explaining(), engine.connect() as connection:
                tables = inspect(connection).get_table_names()
                if REVISION_TABLE in tables:
                    found = text(f"SELECT version_num FROM {REVISION_TABLE}")  # noqa: S608 - a constant
                    return connection.scalar(found) or ""
        finally:
            engine.dispose()
        if tables:
            raise StoreDamagedError(
                f"{self.name} is a database of something else: name another one"
            )
        return ""

    def engine(self) -> AsyncEngine:
        """An engine whose connections are tried before each transaction."""
        engine = create_async_engine(
            self._url,
            connect_args=self._connect_args(),
            pool_pre_ping=True,
            pool_size=NUM_CONNECTIONS,
            max_overflow=0,
            pool_timeout=BUSY_S,
            use_native_hstore=False,
        )
        event.listen(engine.sync_engine, "begin", begin)
        return engine

    def migration_engine(self) -> Engine:
        """An engine for a thread that changes tables."""
        return self._engine_for_one().execution_options(**WRITING)

    def _engine_for_one(self) -> Engine:
        """An engine that keeps no connection."""
        engine = create_engine(
            self._url,
            connect_args=self._connect_args(),
            poolclass=NullPool,
            use_native_hstore=False,
        )
        event.listen(engine, "begin", begin)
        return engine

    def _connect_args(self) -> dict[str, object]:
        """Arguments of the driver besides the address."""
        ours = {k: v for k, v in CONNECTING.items() if k not in self._url.query}
        return ours | {"prepare_threshold": None}

    def explained(self, error: BaseException) -> StoreError:
        """The meaning of an error, and what to do next."""
        kind, what, advice = meaning_of(error)
        return kind(f"{self.name} {what} ({words_of(error)}): {advice}")


def server_at(address: str) -> PostgresqlServer:
    """The server of an address.

    Raises:
        StorePathError: it is none. It is not shown, for there may be a password in it.
    """
    try:
        url = make_url(address)
    except (ArgumentError, ValueError):
        url = None
    # A second @ belongs to a password, whose end would be taken for the host.
    if url is None or not url.database or address.count("@") > 1:
        raise StorePathError(
            "the store's address cannot be read: write "
            "postgresql://user:password@host:port/database, with every other sign than "
            "letters and digits of user and password as in %40"
        )
    return PostgresqlServer(url)


def begin(connection: Connection) -> None:
    """Set up a transaction; one that writes takes its turn before it reads."""
    limits = {
        "lock_timeout": BUSY_S,
        "statement_timeout": STATEMENT_S,
        "idle_in_transaction_session_timeout": IDLE_S,
    }
    first = [f"SET LOCAL {name} = '{1000 * s:.0f}ms'" for name, s in limits.items()]
    if writes(connection):
        first.insert(0, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        first.append(f"SELECT pg_advisory_xact_lock({TURN})")
    else:
        first.insert(0, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
    connection.exec_driver_sql("; ".join(first))


def meaning_of(error: BaseException) -> Meaning:
    """Meaning of an error."""
    if isinstance(error, NoConnectionError):
        return BUSY
    if isinstance(error, TimeoutError):
        return SLOW
    state = (error.sqlstate if isinstance(error, psycopg.Error) else None) or ""
    found = MEANINGS.get(state) or MEANINGS.get(state[:2])
    if found is not None:
        return found
    if not state:  # it was not the server that answered, or not to us yet
        refused = (means for words, means in REFUSALS.items() if words in str(error))
        lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        return next(refused, DOWN if lost else OTHER)
    return OTHER


def words_of(error: BaseException) -> str:
    """Text of an error in one line; its details may show documents."""
    if isinstance(error, psycopg.Error) and error.diag.message_primary:
        return error.diag.message_primary
    if isinstance(error, NoConnectionError):
        return f"all {NUM_CONNECTIONS} connections are in use"
    return " ".join(str(error).split()) or f"no answer for {PATIENCE_S:.0f} s"
