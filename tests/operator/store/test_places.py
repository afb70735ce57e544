"""Which database system a place means."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll_operator.errors import StorePathError
from plimsoll_operator.store.places import system_at
from tests.support.stores import in_store, nothing


def test_a_file_may_be_named_in_text(tmp_path: Path) -> None:
    """As a variable of the environment names it."""
    path = tmp_path / "store.db"
    in_store(str(path), nothing)
    assert path.is_file()


def test_a_path_is_never_taken_for_an_address(tmp_path: Path) -> None:
    """Whatever its folders are called."""
    folder = tmp_path / "postgresql:" / "x"
    folder.mkdir(parents=True)
    in_store(folder / "store.db", nothing)
    assert (folder / "store.db").is_file()


def test_the_short_scheme_means_postgresql() -> None:
    """As libpq reads it; its name is the same."""
    names = {
        system_at(f"{scheme}://us@db/x").name for scheme in ("postgres", "postgresql")
    }
    assert names == {"postgresql://us@db/x"}


def test_another_database_system_is_refused() -> None:
    """In words that say what can be named, and show nothing else of the address."""
    with pytest.raises(
        StorePathError, match=r"'mysql'.*name a file, or postgresql://u"
    ):
        system_at("mysql://plimsoll:s3cr3t@host/database")
