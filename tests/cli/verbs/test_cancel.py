"""`plimsoll cancel` where nothing is left to be stopped, and `plimsoll delete`."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll_cli.__main__ import main
from plimsoll_cli.errors import ExitCode
from tests.support.home_plans import ENDS, NAME, a_home_plan
from tests.support.reports import a_status

FAILS = "import sys; sys.exit('no data')"


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (ENDS, "chain had finished before it could be stopped\n"),
        (FAILS, "chain had failed before it could be stopped: AppError: no data\n"),
    ],
)
def test_a_job_that_ends_before_it_is_stopped_is_told_as_ended(
    program: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was under way when `cancel` began; `run` has nothing to go on with."""
    plan = a_home_plan(tmp_path / "home", runPolicy={"backoffLimit": 0})
    plan.attempt(1, {})
    plan.wait_for_end(plan.train(program))
    assert main(["cancel", NAME, "--home", str(plan.root)]) == ExitCode.DONE
    out = capsys.readouterr().out
    assert out.startswith(message)
    assert "plimsoll run" not in out


def test_a_plan_that_is_over_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is nothing to stop."""
    plan = a_home_plan(tmp_path / "home")
    plan.say(a_status())
    assert main(["cancel", NAME, "--home", str(plan.root)]) == ExitCode.DONE
    assert "is over: there is nothing to stop" in capsys.readouterr().out


def test_what_is_deleted_takes_its_checkpoints_along(tmp_path: Path) -> None:
    """Also those outside of the home; nobody could tell later whose they are."""
    plan = a_home_plan(tmp_path / "home", checkpoint={"path": str(tmp_path / "saved")})
    plan.say(a_status())
    saved = tmp_path / "saved" / plan.uid / "step-00000010"
    saved.mkdir(parents=True)
    other = tmp_path / "saved" / "other"
    other.mkdir()
    assert main(["delete", NAME, "--yes", "--home", str(plan.root)]) == ExitCode.DONE
    assert list((tmp_path / "saved").iterdir()) == [other]
    assert not plan.home.plan(plan.uid).root.exists()
