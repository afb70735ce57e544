"""Rehearsals at home, for real: they fit, run out of memory, and are killed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

pytest.importorskip("torch")

from plimsoll_cli.errors import ExitCode
from plimsoll_operator.api.status import Condition, ConditionType, Status, Truth
from plimsoll_operator.rules.observed_state import Ending
from tests.support.home_runs import (
    DEVICES,
    EIGHT,
    ROOT,
    STEPS,
    Ended,
    HomeRun,
    kill_now,
    wait_until_gone,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
BEGAN = "plans/*/children/rehearsal-*/began.json"
KEPT = "plans/*/logs/rehearsal-*"


def write(run: HomeRun, extra: str = "") -> None:
    """Write the manifest of the own model."""
    run.write(entrypoint="own:workload", args="{}", extra=extra)


def certified(status: Status) -> Condition:
    """What is said of Certified."""
    found = status.condition(ConditionType.CERTIFIED)
    assert found is not None
    return found


def test_a_plan_is_rehearsed_and_trained(run: HomeRun, code: Path) -> None:
    """The fullest rank held what was predicted; that is said, and trained after it."""
    write(run)
    ended = run.run(*DEVICES, "--rehearse", code=code)
    assert ended.code == ExitCode.DONE, ended.err
    said = certified(ended.status)
    assert (said.status, said.reason) == (Truth.TRUE, "Rehearsed")
    assert " alone on a device, predicted " in said.message
    assert ended.status.attempt == 1
    assert sorted(run.losses()) == list(range(1, STEPS + 1))
    [log] = run.home.root.glob(KEPT)
    assert '"kind": "Rehearsal"' in (log / "0.out").read_text()
    assert wait_until_gone(run) == {}


def test_a_device_with_less_than_it_says_is_planned_around_before_a_launch(
    on_eight: tuple[HomeRun, str], code: Path, tmp_path: Path
) -> None:
    """No attempt is lost: the first one trains by a plan that fits."""
    known, less = on_eight
    run = known.copy(tmp_path)
    limit = "runPolicy: {oomReplanLimit: 4, replanOnline: false}\n  "
    write(run, f"{limit}launch: {{rehearse: Always}}")
    ended = run.run(*EIGHT, "--real-device-memory", less, code=code)
    assert ended.code == ExitCode.DONE, ended.err
    assert (ended.status.attempt, ended.status.failures.out_of_memory) == (1, 0)
    said = certified(ended.status)
    assert said.reason == "Rehearsed"
    assert "the plan before ran out of memory when it was rehearsed, on " in (
        said.message
    )
    assert [one.ending for one in run.attempts()] == [Ending.DONE]


def test_what_may_not_be_planned_around_is_a_failure_with_its_bytes(
    on_eight: tuple[HomeRun, str], code: Path, tmp_path: Path
) -> None:
    """Nothing is launched, and nothing is left over."""
    known, less = on_eight
    run = known.copy(tmp_path)
    write(run, "runPolicy: {oomReplanLimit: 0}\n  launch: {rehearse: Always}")
    ended = run.run(*EIGHT, "--real-device-memory", less, code=code)
    assert ended.code == ExitCode.FAILED
    said = certified(ended.status)
    assert (said.status, said.reason) == (Truth.FALSE, "RehearsalOOM")
    assert "ran out of memory in " in said.message
    assert "runPolicy.oomReplanLimit lets 0 other plans be looked for" in said.message
    assert run.attempts() == ()
    assert wait_until_gone(run) == {}


def kill_in_rehearsal(run: HomeRun, code: Path, *, all_of_it: bool) -> None:
    """Kill the command while a rank is rehearsed, with its processes or without."""
    command = run.start(*DEVICES, "--rehearse", code=code)
    while not any(run.home.root.glob(BEGAN)):
        assert command.poll() is None, command.communicate()
        time.sleep(0.02)
    others = [one for some in run.processes().values() for one in some]
    kill_now([psutil.Process(command.pid), *(others if all_of_it else [])])
    command.communicate()


@pytest.mark.parametrize(
    "all_of_it", [pytest.param(False, marks=pytest.mark.nightly), True]
)
def test_a_run_that_is_killed_while_it_rehearses_goes_on(
    all_of_it: bool, run: HomeRun, code: Path
) -> None:
    """By the same command; with the rank that goes on, or a new one."""
    write(run)
    kill_in_rehearsal(run, code, all_of_it=all_of_it)
    ended = run.run(*DEVICES, "--rehearse", code=code)
    assert ended.code == ExitCode.DONE, ended.err
    assert certified(ended.status).reason == "Rehearsed"
    assert ended.status.attempt == 1
    assert wait_until_gone(run) == {}


def test_a_run_that_dies_after_each_thing_it_does_rehearses_once(
    run: HomeRun, code: Path, tmp_path: Path
) -> None:
    """And trains once; whatever was written down by then."""
    write(run, "launch: {rehearse: Always}")
    done = tmp_path / "done"
    words = run.words()[run.words().index("run") :]
    while True:
        died = subprocess.run(
            (sys.executable, "-m", "tests.support.disturbed_run", "die", done, *words),
            cwd=code,
            env={**psutil.Process().environ(), "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        if died.returncode >= 0:
            break
    ended = Ended(died.returncode, died.stdout, died.stderr)
    assert ended.code == ExitCode.DONE, ended.err
    counts = Counter(done.read_text().split())
    assert counts["StartRehearsal"] == counts["StoreRehearsal"] == 1
    assert counts["RecordPlan"] == counts["StartTraining"] == 1
    assert certified(ended.status).reason == "Rehearsed"
