"""`plimsoll get` and `describe`: where a plan stands, whoever was killed meanwhile."""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest

from plimsoll_cli.__main__ import main
from plimsoll_cli.errors import ExitCode
from plimsoll_operator.api.status import Truth
from tests.support.home_plans import ENDS, NAME, RUNNING, SLEEPS, HomePlan, a_home_plan
from tests.support.reports import a_status

NOT_SOUND = a_status("InvalidSpec", "Waiting", truth=Truth.UNKNOWN)
NOT_SOUND = replace(
    NOT_SOUND,
    conditions=(
        replace(NOT_SOUND.conditions[0], status=Truth.FALSE),
        *NOT_SOUND.conditions[1:],
    ),
)


def test_a_home_that_is_a_file_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder in which nothing was ever run has no plans."""
    home = tmp_path / "home"
    assert main(["get", "--home", str(home)]) == ExitCode.DONE
    assert "no plans in " in capsys.readouterr().out
    assert not home.exists()
    home.touch()
    for words in (["get"], ["describe", NAME]):
        assert main([*words, "--home", str(home)]) == ExitCode.FAILED
        assert "is no folder; name another --home" in capsys.readouterr().err


@pytest.fixture
def plan(tmp_path: Path) -> Generator[HomePlan]:
    """A plan that was running when its command was killed."""
    made = a_home_plan(tmp_path / "home")
    yield made
    made.tasks.end_all()


def state(plan: HomePlan, capsys: pytest.CaptureFixture[str]) -> tuple[str, bool]:
    """State and whether it is run, alike from `get` and `describe`."""
    home = ("--home", str(plan.root))
    assert main(["get", *home, "-o", "json"]) == ExitCode.DONE
    [document] = json.loads(capsys.readouterr().out)
    assert main(["describe", NAME, *home, "-o", "json"]) == ExitCode.DONE
    assert json.loads(capsys.readouterr().out) == document
    assert main(["get", *home]) == ExitCode.DONE
    assert document["home"]["state"] in capsys.readouterr().out
    assert set(document) == {"metadata", "spec", "status", "home"}
    return document["home"]["state"], document["home"]["isRun"]


def page(plan: HomePlan, capsys: pytest.CaptureFixture[str]) -> str:
    """Output of `describe` for people."""
    words = ["describe", NAME, "--home", str(plan.root)]
    assert main(words) == ExitCode.DONE
    return capsys.readouterr().out


def test_a_plan_of_which_all_was_killed_is_interrupted(
    plan: HomePlan, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody is left to write that down; the output names the next command."""
    plan.train(SLEEPS)
    plan.tasks.end_all()
    assert state(plan, capsys) == ("Interrupted", False)
    text = page(plan, capsys)
    assert text.startswith("chain: Interrupted  (uid ")
    assert "nothing of it runs: `plimsoll run` goes on\n" in text


def test_ranks_whose_command_was_killed_run_unwatched(
    plan: HomePlan, capsys: pytest.CaptureFixture[str]
) -> None:
    """Looking ends none of them."""
    folder = plan.train(SLEEPS)
    for _ in range(2):
        assert state(plan, capsys) == ("Running, unwatched", False)
    text = page(plan, capsys)
    assert "unwatched: its processes run, and `plimsoll run` finds them\n" in text
    assert plan.tasks.alive() == {folder}


def test_ranks_that_ended_with_nobody_there_are_not_told_as_killed(
    plan: HomePlan, capsys: pytest.CaptureFixture[str]
) -> None:
    """They may have trained to their end."""
    folder = plan.train(ENDS)
    plan.wait_for_end(folder)
    assert state(plan, capsys) == ("Ended, unwatched", False)
    text = page(plan, capsys)
    assert "unwatched: its ranks have ended, and `plimsoll run` says how\n" in text


def test_a_plan_that_a_command_runs_is_where_its_status_says(
    plan: HomePlan, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing else is printed of it."""
    with plan.home.locked(NAME):
        assert state(plan, capsys) == ("Running", True)
        assert "plimsoll run" not in page(plan, capsys)


def test_a_plan_that_waits_for_a_person_says_for_what(
    plan: HomePlan, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody stopped it, or must mend its manifest; or it is over."""
    plan.say(RUNNING, is_suspended=True)
    assert state(plan, capsys) == ("Suspended", False)
    plan.say(NOT_SOUND)
    assert state(plan, capsys) == ("InvalidSpec", False)
    plan.say(a_status())
    assert state(plan, capsys) == ("Trained", False)
    assert "plimsoll run" not in page(plan, capsys)
