"""`plimsoll report`: a page, with memory against speed if it is asked for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("numpy")

from plimsoll_cli.__main__ import main
from plimsoll_cli.errors import ExitCode
from plimsoll_cli.state.gather import keep_answer
from plimsoll_cli.state.state_dir import open_existing
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Solution
from tests.cli.state.test_gather import put
from tests.support.grids import with_whole_grid
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


def test_a_grid_is_searched_when_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that is in the answer is shown unasked, unless it is not wanted."""
    plan, page = a_home_plan(tmp_path / "home"), tmp_path / "page.html"
    asked = ["report", NAME, "--home", str(plan.root), "--html", str(page)]
    assert main([*asked, "--grid"]) == ExitCode.DONE
    assert "no answer yet: other counts and micro" in capsys.readouterr().out
    problem = a_question(900)
    asyncio.run(put(plan, 0, problem))
    assert main(asked) == ExitCode.DONE
    assert "What if" not in page.read_text()
    assert main([*asked, "--grid"]) == ExitCode.DONE
    assert "What if" in page.read_text()
    assert main(asked) == ExitCode.DONE
    assert "What if" not in page.read_text()
    asyncio.run(keep(plan.root, problem, with_whole_grid(problem)))
    assert main(asked) == ExitCode.DONE
    assert "What if" in page.read_text()
    assert main([*asked, "--no-grid"]) == ExitCode.DONE
    assert "What if" not in page.read_text()


async def keep(root: Path, problem: Problem, answer: Solution) -> None:
    """Put an answer in the place of one that is kept."""
    async with open_existing(root) as home:
        await keep_answer(home.store, problem, answer)
