"""Places for stores: a file, and a database of a server; every test has its own."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.postgresql import TEMPLATE, Server, a_server


@pytest.fixture(scope="session")
def server() -> Generator[Server]:
    """Server that runs for the whole session."""
    with a_server() as server:
        server.make_template()
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Path | str]:
    """Where a store can be opened; it costs less to copy one than to make it."""
    if request.param == "sqlite":
        yield tmp_path / "store.db"
        return
    server: Server = request.getfixturevalue("server")
    name = server.make(TEMPLATE)
    yield server.url(name)
    server.drop(name)


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_place(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Generator[Path | str]:
    """Where no store is yet."""
    if request.param == "sqlite":
        yield tmp_path / "store.db"
        return
    server: Server = request.getfixturevalue("server")
    name = server.make()
    yield server.url(name)
    server.drop(name)
