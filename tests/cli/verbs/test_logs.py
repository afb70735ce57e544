"""`plimsoll logs --follow` ends when no more output can come."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Generator
from functools import partial
from pathlib import Path

import pytest

from plimsoll_cli.__main__ import main
from plimsoll_cli.errors import ExitCode
from plimsoll_cli.verbs.logs import begun_s
from plimsoll_operator.rules.observed_state import TaskKind
from tests.support.home_plans import NAME, HomePlan, a_home_plan

TALKS = "import time; print('here', flush=True); time.sleep({seconds})"


@pytest.fixture
def plan(tmp_path: Path) -> Generator[HomePlan]:
    """A plan with an attempt."""
    made = a_home_plan(tmp_path / "home")
    made.attempt(1, {})
    shutil.rmtree(made.tasks.logs(TaskKind.TRAIN, "1"))
    yield made
    made.tasks.end_all()


def follow(plan: HomePlan) -> ExitCode | int:
    """Follow the logs to their end."""
    return main(["logs", NAME, "--follow", "--home", str(plan.root)])


def wait_for_output(folder: Path) -> None:
    """Wait until a rank has printed something."""
    while not (folder / "0.out").exists() or not (folder / "0.out").stat().st_size:
        time.sleep(0.02)


def test_logs_of_ranks_that_were_killed_end(
    plan: HomePlan, capsys: pytest.CaptureFixture[str]
) -> None:
    """With their supervisor, so that nobody writes down that they have ended."""
    folder = plan.train(TALKS.format(seconds=600))
    wait_for_output(folder)
    killing, begin_s = threading.Timer(1.5, plan.tasks.end_all), time.monotonic()
    killing.start()
    assert follow(plan) == ExitCode.DONE
    assert time.monotonic() - begin_s > killing.interval
    killing.join()
    assert capsys.readouterr().out == "[0] here\n"


def test_logs_are_followed_to_where_they_are_kept(
    plan: HomePlan, capsys: pytest.CaptureFixture[str]
) -> None:
    """A task that is cleared away; no line is lost, and none comes twice."""
    folder = plan.train(TALKS.format(seconds=600))
    wait_for_output(folder)
    clearing = threading.Timer(1.0, plan.tasks.clear, (TaskKind.TRAIN, "1"))
    clearing.start()
    assert follow(plan) == ExitCode.DONE
    assert capsys.readouterr().out == "[0] here\n"


def test_a_task_that_is_cleared_away_while_it_is_read_is_read_to_its_end(
    plan: HomePlan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At whatever moment: its lines are there, once."""
    folder = plan.train("print('here')")
    plan.wait_for_end(folder)
    kept = plan.tasks.logs(TaskKind.TRAIN, "1")
    folder.rename(tmp_path / "ended")
    for delay_ms in range(0, 60, 10):
        shutil.copytree(tmp_path / "ended", folder)
        shutil.rmtree(kept, ignore_errors=True)
        clear = partial(plan.tasks.clear, TaskKind.TRAIN, "1")
        clearing = threading.Timer(delay_ms / 1000, clear)
        clearing.start()
        assert follow(plan) == ExitCode.DONE
        assert capsys.readouterr() == ("[0] here\n", "")
        clearing.join()


def test_a_folder_that_is_gone_is_older_than_any(tmp_path: Path) -> None:
    """It was listed just before; where it lies now is listed as well."""
    assert begun_s(tmp_path / "gone") < begun_s(tmp_path)
