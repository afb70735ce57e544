"""What there is of a plan: of all attempts, what counts in the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll_cli.__main__ import main
from plimsoll_cli.errors import ExitCode
from tests.support.home_plans import NAME, HomePlan, a_home_plan


def trained(plan: HomePlan, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what is said of the steps that were trained."""
    assert main(["describe", NAME, "--home", str(plan.root)]) == ExitCode.DONE
    lines = capsys.readouterr().out.splitlines()
    return next((line for line in lines if line.startswith("trained ")), "")


def test_steps_that_were_lost_are_not_told_as_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An attempt that is killed loses what came after its last checkpoint.

    The next one trains that again from there; it may come less far, and its losses
    count. One that came to no step has lost nothing more.
    """
    plan = a_home_plan(tmp_path / "home")
    assert trained(plan, capsys) == ""
    plan.attempt(1, {step: 10.0 - step for step in range(1, 10)})
    assert trained(plan, capsys) == "trained 9 steps, loss 9 -> 1"
    plan.attempt(2, {5: 5.5, 6: 4.5})
    assert trained(plan, capsys) == "trained 6 steps, loss 9 -> 4.5"
    plan.attempt(3, {})
    assert trained(plan, capsys) == "trained 6 steps, loss 9 -> 4.5"
    plan.attempt(4, {1: 8.0})
    assert trained(plan, capsys) == "trained 1 step, loss 8 -> 8"
