"""Training jobs for the tests of the trainer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.jobs import Job


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job in a folder of its own."""
    from tests.support.jobs import Job  # noqa: PLC0415 - needs torch

    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "tiny_model", raising=False)
    return Job(tmp_path)
