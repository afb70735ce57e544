"""Surroundings of all tests of the command line."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Width is that of a pipe: `readline`, which pytest imports, may have set one."""
    monkeypatch.delenv("COLUMNS", raising=False)
