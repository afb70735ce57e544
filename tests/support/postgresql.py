"""A PostgreSQL server of the tests' own: Debian's, on a free port, forgotten at exit.

In: nothing. Out: a `Server`, with databases by the number. Used by the fixtures of
tests/operator/store. It refuses to run as root, so that root starts it as the user that
comes with the package. Nothing is written for good, and the kernel ends it with us.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
from psycopg import sql

from plimsoll_operator.store.database import open_database
from tests.lab import packages
from tests.lab.prepare import may_prepare
from tests.support.ports import LOOPBACK, free_ports

PACKAGE = "postgresql"
SYSTEM_USER = "postgres"
USER, PASSWORD = "plimsoll", "s3cr3t-%40#"
"""The password as it stands in an address: %40 is an @."""
STOPS_WITH_US = ("setpriv", "--pdeathsig", "INT")
READY_S, POLL_S = 180.0, 0.02
TEMPLATE = "migrated"
FAST = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "shared_buffers": "16MB",
}
"""Nobody needs what it holds after the machine has lost power."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenTo:
    """Machines besides this one that may ask a server, with the password."""

    host: str
    """Our address in their network."""
    clients: str
    """Theirs, as a range."""


class Server:
    """One server, with its files in a folder of its own."""

    def __init__(self, folder: Path, binaries: Path, open_to: OpenTo | None) -> None:
        """Make its files."""
        self.folder, self._binaries = folder, binaries
        self._hosts = [LOOPBACK, *([open_to.host] if open_to else [])]
        [self.port] = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._num_databases = 0
        secret = folder / "password"
        secret.write_text(PASSWORD.replace("%40", "@"))
        if is_root():
            shutil.chown(folder, SYSTEM_USER)
            shutil.chown(secret, SYSTEM_USER)
        command = [
            *(*as_its_user(), str(binaries / "initdb"), str(folder / "data")),
            *("--username", USER, "--pwfile", str(secret), "--no-sync"),
            *("--auth", "scram-sha-256", "--no-locale", "--encoding", "UTF8"),
        ]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        if open_to:
            with (folder / "data" / "pg_hba.conf").open("a") as rules:
                rules.write(f"host all all {open_to.clients} scram-sha-256\n")

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = FAST | {
            "listen_addresses": ",".join(self._hosts),
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
        }
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(*as_its_user(), *STOPS_WITH_US),
                    *(
                        str(self._binaries / "postgres"),
                        "-D",
                        str(self.folder / "data"),
                    ),
                    *(f"--{name}={value}" for name, value in settings.items()),
                ],
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )
        until_s = time.monotonic() + READY_S
        while not self.answers():
            assert self._process.poll() is None, self.log
            assert time.monotonic() < until_s, self.log
            time.sleep(POLL_S)

    def answers(self) -> bool:
        """Whether it lets us in."""
        try:
            psycopg.connect(self.url("postgres")).close()
        except psycopg.OperationalError:
            return False
        return True

    @property
    def log(self) -> str:
        """Its log."""
        return (self.folder / "log").read_text()

    def stop(self) -> None:
        """Stop it as an administrator does who does not wait for clients."""
        if self._process is not None:
            self._process.send_signal(2)
            self._process.wait(READY_S)
            self._process = None

    @property
    def pid(self) -> int:
        """Of its first process."""
        assert self._process is not None
        return self._process.pid

    def url(self, database: str, *, password: str = PASSWORD) -> str:
        """Address of a database, for clients on this machine."""
        return f"postgresql://{USER}:{password}@{LOOPBACK}:{self.port}/{database}"

    def url_for_clients(self, database: str) -> str:
        """Address of a database, for those that the server is open to."""
        return (
            f"postgresql://{USER}:{PASSWORD}@{self._hosts[-1]}:{self.port}/{database}"
        )

    def make(self, template: str = "template0") -> str:
        """Make a database, and return its name."""
        self._num_databases += 1
        name = f"test_{self._num_databases}"
        self.do("CREATE DATABASE {} TEMPLATE {}", name, template)
        return name

    def drop(self, name: str) -> None:
        """Drop a database, whoever uses it."""
        self.do("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)

    def do(self, statement: LiteralString, *names: str, database: str = "") -> None:
        """Run a statement about some names."""
        made = sql.SQL(statement).format(*map(sql.Identifier, names))
        with psycopg.connect(self.url(database or "postgres"), autocommit=True) as us:
            us.execute(made)

    def make_template(self) -> None:
        """Make a database that is an empty store."""
        self.do("CREATE DATABASE {}", TEMPLATE)
        asyncio.run(open_once(self.url(TEMPLATE)))


async def open_once(place: str) -> None:
    """Open a store, so that it has its tables."""
    async with open_database(place):
        pass


@contextlib.contextmanager
def a_server(open_to: OpenTo | None = None) -> Generator[Server]:
    """Run a server; skip the test where PostgreSQL is not installed.

    Args:
        open_to: who may ask it besides this machine.
    """
    binaries = installed()
    with tempfile.TemporaryDirectory(prefix="plimsoll-pg-") as folder:
        server = Server(Path(folder), binaries, open_to)
        server.start()
        try:
            yield server
        finally:
            server.stop()


def installed() -> Path:
    """Folder of the newest server's binaries."""
    found = find()
    if found is None and may_prepare():  # then it is a failure, and no reason to skip
        packages.install([PACKAGE])
        found = find()
    if found is None:
        pytest.skip(
            f"PostgreSQL's server is not installed: run `sudo apt-get install {PACKAGE}"
            "` or `sudo make test`"
        )
    return found


def find() -> Path | None:
    """Folder that Debian puts it in, with the largest version."""
    found = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    versions = {int(path.parts[-3]): path.parent for path in found}
    return versions[max(versions)] if versions else None


def is_root() -> bool:
    """Whether we are root."""
    return os.geteuid() == 0


def as_its_user() -> tuple[str, ...]:
    """Words before a command of the server."""
    if not is_root():
        return ()
    return (
        "setpriv",
        f"--reuid={SYSTEM_USER}",
        f"--regid={SYSTEM_USER}",
        "--init-groups",
    )
