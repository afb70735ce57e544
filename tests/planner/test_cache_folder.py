"""The folder for what can be made again."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll_planner.cache_folder import cache_folder


def test_the_variable_comes_before_the_cache_of_the_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And the desktop's own variable before the folder in the home."""
    for name in ("PLIMSOLL_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert cache_folder() == Path("/home/somebody/.cache/plimsoll")
    monkeypatch.setenv("XDG_CACHE_HOME", "/user")
    assert cache_folder() == Path("/user/plimsoll")
    monkeypatch.setenv("PLIMSOLL_CACHE", "/chosen")
    assert cache_folder() == Path("/chosen")
