"""Whatever a run does when it dies or is asked to stop: nothing is lost or left."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psutil
import pytest

pytest.importorskip("torch")

from plimsoll_cli.__main__ import main
from plimsoll_cli.errors import ExitCode
from plimsoll_operator.api.status import ConditionType
from plimsoll_operator.rules import actions
from plimsoll_operator.rules.observed_state import Ending
from tests.support.home_runs import (
    LARGE,
    NAME,
    ROOT,
    STEPS,
    Ended,
    HomeRun,
    kill_now,
    wait_for_steps,
    wait_until_gone,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
EFFECTS = {
    *(actions.StartProfile, actions.StoreProfile, actions.Solve),
    *(actions.StartReplay, actions.StoreReplay, actions.RecordPlan),
    *(actions.StartTraining, actions.RecordEnding, actions.Clear),
}
"""Of a run that nobody stops."""
STOPPABLE = {effect.__name__ for effect in EFFECTS} - {"Clear"}
"""That one belongs each time to a run that was asked to stop already."""
SOON_S = 30.0
"""On a machine that others use as well; a search takes minutes."""
PROFILING = "plans/*/children/profile-*/began.json"
DRY = "search: {maxGPUs: 64}\n  launch: {policy: PlanOnly}"
MANY = ("--device", "cpu", "--devices", "64", "--device-memory", "1100KiB")
"""So many small devices that it takes minutes to find the fewest."""


def test_a_run_that_dies_after_each_thing_it_does_ends_like_any_other(
    undisturbed: tuple[HomeRun, float], tmp_path: Path
) -> None:
    """One attempt, the same losses, nothing done twice; also from an empty home."""
    model, run = undisturbed[0], HomeRun(tmp_path).write()
    done = tmp_path / "done"
    while (ended := disturbed(run, "die", done)).code == -signal.SIGKILL:
        pass
    assert ended.code == ExitCode.DONE, ended.err
    counts = Counter(done.read_text().split())
    assert set(counts) - {"Revise"} == {effect.__name__ for effect in EFFECTS}
    assert counts["StartTraining"] == counts["RecordPlan"] == 1
    assert counts["StartProfile"] == counts["RecordEnding"] == 1
    assert run.losses() == model.losses()
    assert [one.ending for one in run.attempts()] == [Ending.DONE]
    assert wait_until_gone(run) == {}


def test_ctrl_c_in_the_middle_of_anything_leaves_nothing_running(
    undisturbed: tuple[HomeRun, float], tmp_path: Path
) -> None:
    """Also of what is being started just then; the next run goes on each time.

    Its plan stays: one that is revised as it ends is done before it can stop.
    """
    stays = "runPolicy: {replanOnline: false}"
    model, run = undisturbed[0], HomeRun(tmp_path).write(extra=stays)
    done = tmp_path / "done"
    done.touch()
    while (ended := disturbed(run, "stop", done)).code == ExitCode.INTERRUPTED:
        assert run.processes() == {}, done.read_text()
        assert "Traceback" not in ended.err
    assert ended.code == ExitCode.DONE, ended.err
    assert set(done.read_text().split()) >= STOPPABLE
    assert run.losses() == model.losses()
    assert run.attempts()[-1].ending is Ending.DONE


def disturbed(run: HomeRun, how: str, done: Path) -> Ended:
    """Run the command as `tests.support.disturbed_run` does."""
    words = run.words()[run.words().index("run") :]
    ended = subprocess.run(
        (sys.executable, "-m", "tests.support.disturbed_run", how, str(done), *words),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def wait_for(command: subprocess.Popen[str], is_there: Callable[[], bool]) -> None:
    """Wait until a command has come to something."""
    while not is_there():
        assert command.poll() is None, command.communicate()
        time.sleep(0.02)


def test_ctrl_c_in_a_proof_ends_it(run: HomeRun, code: Path) -> None:
    """What was trained stays, and no rank is left; asked again, the proof is shown."""
    words = run.spoken()
    command = subprocess.Popen(
        [*words, "--prove"],
        cwd=code,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    began = "plans/*/proof/children/train-*/began.json"
    wait_for(command, lambda: any(run.home.root.glob(began)))
    command.send_signal(signal.SIGINT)
    begin_s = time.monotonic()
    _, err = command.communicate()
    assert command.returncode == ExitCode.INTERRUPTED, err
    assert "the proof was stopped" in err
    assert "Traceback" not in err
    assert time.monotonic() - begin_s < SOON_S
    assert wait_until_gone(run) == {}
    assert sorted(run.losses()) == list(range(1, STEPS + 1))
    before = run.plan()
    again = subprocess.run(
        [*words, "--prove"], cwd=code, capture_output=True, text=True, check=False
    )
    assert again.returncode == ExitCode.DONE, again.stderr
    assert "out of device memory in " in again.stderr
    after = run.plan()
    assert before is not None
    assert after is not None
    assert before.uid == after.uid
    assert len(run.attempts()) == 1


def test_a_proof_needs_something_that_runs(run: HomeRun, code: Path) -> None:
    """A dry run is refused before anything of it is begun."""
    run.write(entrypoint="own:workload", args="{}", extra="launch: {policy: PlanOnly}")
    ended = run.run("--prove", code=code)
    assert ended.code == ExitCode.BAD_INPUT
    assert "--prove" in ended.err
    assert "launch.policy" in ended.err


@pytest.fixture(scope="module")
def deep_model(tmp_path_factory: pytest.TempPathFactory) -> HomeRun:
    """So many layers that a search takes minutes; nothing but the profile is known."""
    run = HomeRun(tmp_path_factory.mktemp("deep"))
    run.write(args="{depth: 200, width: 64}", batch=1024, extra=DRY)
    command = run.start(*MANY)
    wait_for(command, lambda: state_of(run) == "Solving")
    command.send_signal(signal.SIGINT)
    command.communicate()
    words = ["delete", NAME, "--yes", "--home", str(run.home.root)]
    assert main(words) == ExitCode.DONE
    return run


@pytest.mark.parametrize("asks", ["ctrl-c", "cancel"])
def test_a_search_that_takes_minutes_is_given_up_at_once(
    asks: str, deep_model: HomeRun, tmp_path: Path
) -> None:
    """Whoever asks, here or from another command; the next run searches again."""
    run = deep_model.copy(tmp_path)
    command = run.start(*MANY)
    wait_for(command, lambda: state_of(run) == "Solving")
    begin_s = time.monotonic()
    if asks == "ctrl-c":
        command.send_signal(signal.SIGINT)
    else:
        assert main(["cancel", NAME, "--home", str(run.home.root)]) == ExitCode.DONE
    _, err = command.communicate()
    assert time.monotonic() - begin_s < SOON_S
    asked = ExitCode.INTERRUPTED if asks == "ctrl-c" else ExitCode.STOPPED
    assert command.returncode == asked, err
    plan = run.plan()
    assert plan is not None
    assert plan.status.plan is None


def state_of(run: HomeRun) -> str:
    """Reason of Planned; empty before there is one."""
    plan = run.plan() if run.home.store.exists() else None
    planned = plan.status.condition(ConditionType.PLANNED) if plan else None
    return planned.reason if planned else ""


def test_a_clock_that_is_set_back_lets_no_profile_grow_old(
    run: HomeRun, code: Path
) -> None:
    """A plan of the future, as it seems then, is profiled once, and counts it."""
    run.write(entrypoint="own:workload", args="{}", extra="profile: {policy: Always}")
    command = run.start(*LARGE, code=code)
    wait_for(command, lambda: any(run.home.root.glob(PROFILING)))
    kill_now([psutil.Process(command.pid)])
    command.communicate()
    with closing(sqlite3.connect(run.home.store)) as file, file:
        file.execute("UPDATE plan SET created_s = created_s + 3600")
    ended = run.run(*LARGE, code=code)
    assert ended.code == ExitCode.DONE, ended.err
    assert len(list(run.home.root.glob("plans/*/logs/profile-*"))) == 1
    plan = run.plan()
    assert plan is not None
    assert plan.status.condition(ConditionType.PROFILED).reason == "Measured"  # type: ignore[union-attr]


def test_who_cancels_starts_nothing(run: HomeRun, code: Path) -> None:
    """Also where a run took the wish back, and died before anybody else had a turn."""
    run.write(entrypoint="own:workload", args="{}", steps=1_000_000)
    command = run.start(*LARGE, code=code)
    wait_for_steps(run, command, steps=3)
    kill_now([psutil.Process(command.pid)])
    command.communicate()
    with run.home.locked(NAME):
        words = ("cancel", NAME, "--home", str(run.home.root))
        cancel = subprocess.Popen(
            [sys.executable, "-m", "plimsoll_cli", *words], text=True
        )
        wait_for(cancel, lambda: is_suspended(run))
        with closing(sqlite3.connect(run.home.store)) as file, file:
            file.execute("UPDATE plan SET is_suspended = 0")
    assert cancel.wait() == ExitCode.DONE
    assert wait_until_gone(run) == {}
    assert [one.ending for one in run.attempts()] == [Ending.CHECKPOINTED]


def is_suspended(run: HomeRun) -> bool:
    """Whether somebody wants the plan to stop."""
    plan = run.plan()
    return plan is not None and plan.is_suspended


def test_plans_that_share_a_folder_of_checkpoints_have_one_each(
    run: HomeRun, code: Path, tmp_path: Path
) -> None:
    """A later one begins anew; attempts of the one before take nothing over from it."""
    shared = tmp_path / "shared"
    manifest = run.manifest
    run.write(entrypoint="own:workload", args="{}")
    text = manifest.read_text()
    manifest.write_text(
        text.replace("{everySteps: 5}", f"{{everySteps: 5, path: {shared}}}")
    )
    for _ in range(2):
        ended = run.run(*LARGE, code=code)
        assert ended.code == ExitCode.DONE, ended.err
        assert sorted(run.losses()) == list(range(1, STEPS + 1))
    plan = run.plan()
    assert plan is not None
    folders = [path.name for path in shared.iterdir()]
    assert len(folders) == 2
    assert plan.uid in folders
