"""`plimsoll report`: a page, with memory against speed if it is asked for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("numpy")

from plimsoll_cli.__main__ import main
from plimsoll_cli.errors import ExitCode
from tests.cli.state.test_gather import put
from tests.support.home_plans import NAME, a_home_plan
from tests.support.questions import a_question


def test_memory_against_speed_is_searched_when_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the stored question; before there is an answer a line says what is left."""
    plan, page = a_home_plan(tmp_path / "home"), tmp_path / "page.html"
    asked = ["report", NAME, "--home", str(plan.root), "--html", str(page)]
    assert main([*asked, "--frontier"]) == ExitCode.DONE
    assert "no plan yet: memory against speed is left" in capsys.readouterr().out
    asyncio.run(put(plan, 0, a_question(900)))
    assert main(asked) == ExitCode.DONE
    assert "Memory against speed" not in page.read_text()
    assert main([*asked, "--frontier"]) == ExitCode.DONE
    assert capsys.readouterr().out.endswith(f"written to {page}\n")
    assert "Memory against speed" in page.read_text()
