"""The cache makes a folder once, whole or not at all, and says when it cannot."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.lab import cache
from tests.lab.errors import LabError


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty cache folder of the test's own."""
    monkeypatch.setenv("PLIMSOLL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_cache_is_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """PLIMSOLL_CACHE comes first, then XDG_CACHE_HOME, then ~/.cache."""
    monkeypatch.setenv("PLIMSOLL_CACHE", "/chosen")
    monkeypatch.setenv("XDG_CACHE_HOME", "/desktop")
    monkeypatch.setenv("HOME", "/home/user")
    found = [cache.root()]
    for name in ("PLIMSOLL_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name)
        found.append(cache.root())
    chosen = ["/chosen", "/desktop/plimsoll", "/home/user/.cache/plimsoll"]
    assert [str(path) for path in found] == chosen


def test_two_at_once_make_a_folder_once() -> None:
    """Of two that need the same folder one makes it, and both get it whole."""
    both_are_here = threading.Barrier(2)
    made = []

    def fill(folder: Path) -> None:
        made.append(folder)
        (folder / "content").write_text("whole")

    def make() -> str:
        both_are_here.wait(timeout=120)
        return (cache.make_once("thing", fill).folder / "content").read_text()

    with ThreadPoolExecutor(2) as pool:
        assert [each.result() for each in [pool.submit(make), pool.submit(make)]] == [
            "whole",
            "whole",
        ]
    assert len(made) == 1


def test_a_failure_leaves_no_folder(cache_folder: Path) -> None:
    """A folder whose making failed is not there, and is made by the next attempt."""

    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise LabError("no more disk")

    with pytest.raises(LabError, match="no more disk"):
        cache.make_once("thing", fail)
    assert [path.name for path in cache_folder.iterdir()] == ["thing.lock"]
    # As a killed attempt leaves it.
    (cache_folder / "thing.part-1").mkdir()
    assert cache.find("thing*") is None
    assert cache.make_once("thing", Path.touch).made_in_s is not None
    assert cache.make_once("thing", fail).made_in_s is None
    assert not (cache_folder / "thing.part-1").exists()


def test_a_read_only_cache_is_explained(cache_folder: Path) -> None:
    """A cache folder that cannot be written to is named, with the way out."""
    cache_folder.touch()  # a file in its place stops root as well, unlike permissions
    with pytest.raises(LabError) as caught:
        cache.make_once("thing", Path.touch)
    message = str(caught.value)
    assert str(cache_folder) in message
    assert "set PLIMSOLL_CACHE to a folder that you can write to" in message
    assert "\n" not in message
