"""The verbs of plans while ranks train, as somebody in a second terminal uses them."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

pytest.importorskip("torch")

from plimsoll_cli.__main__ import main
from plimsoll_cli.errors import ExitCode
from tests.support.home_runs import (
    LARGE,
    NAME,
    HomeRun,
    kill_now,
    wait_for_room,
    wait_for_steps,
    wait_until_gone,
)
from tests.support.stores import on_own_mount

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
Training = tuple[HomeRun, "subprocess.Popen[str]"]
MANY_STEPS = 1_000_000


def write(run: HomeRun, extra: str = "", **fields: str | int) -> None:
    """Write the manifest of the own model."""
    run.write(**{"entrypoint": "own:workload", "args": "{}", "extra": extra} | fields)  # type: ignore[arg-type]


@pytest.fixture
def training(run: HomeRun, code: Path) -> Generator[Training]:
    """A run that trains, and would for hours."""
    write(run, steps=MANY_STEPS)
    command = run.start(*LARGE, code=code)
    wait_for_steps(run, command, steps=3)
    yield run, command
    command.kill()
    command.communicate()
    kill_now([one for found in run.processes().values() for one in found])


def plimsoll(run: HomeRun, *words: str) -> int:
    """Run another command on the same home."""
    return main([*words, "--home", str(run.home.root)])


def test_cancel_lets_the_ranks_of_another_command_save(
    training: Training, code: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """That command ends with a code of its own; logs that are followed end too."""
    run, command = training
    follow = subprocess.Popen(
        [
            *(sys.executable, "-m", "plimsoll_cli", "logs", NAME, "--follow"),
            *("--rank", "0", "--home", str(run.home.root)),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert follow.stdout is not None
    first = follow.stdout.readline()
    assert plimsoll(run, "cancel", NAME) == ExitCode.DONE
    said = capsys.readouterr().out
    assert said == "chain is stopped, and nothing of it runs; `plimsoll run` goes on\n"
    out, _ = command.communicate()
    assert command.returncode == ExitCode.STOPPED
    assert wait_until_gone(run, seconds=2) == {}
    followed, _ = follow.communicate(timeout=120)
    assert "[0] step " in first + followed
    assert json.loads(out)["attempt"] == 1
    assert plimsoll(run, "get", "-o", "json") == ExitCode.DONE
    [told] = json.loads(capsys.readouterr().out)
    assert told["metadata"]["name"] == NAME
    again = run.start(code=code)
    wait_for_steps(run, again, steps=3)
    again.send_signal(signal.SIGINT)
    out, _ = again.communicate()
    assert again.returncode == ExitCode.INTERRUPTED
    assert json.loads(out)["attempt"] == 2


def test_cancel_stops_ranks_whose_command_was_killed(
    training: Training, capsys: pytest.CaptureFixture[str]
) -> None:
    """They save and leave, though nobody was there to ask them; none is deleted."""
    run, command = training
    command.kill()
    command.wait()
    assert run.processes() != {}
    assert plimsoll(run, "delete", NAME, "--yes") == ExitCode.FAILED
    assert f"`plimsoll cancel {NAME}` lets them save" in capsys.readouterr().err
    assert run.processes() != {}
    assert plimsoll(run, "cancel", NAME) == ExitCode.DONE
    assert wait_until_gone(run, seconds=2) == {}
    assert "attempt 1 has saved and left" in capsys.readouterr().err


def test_ranks_whose_code_is_gone_can_be_stopped(
    run: HomeRun, code: Path, tmp_path: Path
) -> None:
    """As when the folder that a killed command was started in is removed."""
    there = shutil.copytree(code, tmp_path / "there")
    write(run, steps=MANY_STEPS)
    command = run.start(*LARGE, code=there)
    wait_for_steps(run, command, steps=3)
    command.kill()
    command.communicate()
    shutil.rmtree(there)
    assert plimsoll(run, "cancel", NAME) == ExitCode.DONE
    assert wait_until_gone(run, seconds=2) == {}
    assert plimsoll(run, "delete", NAME, "--yes") == ExitCode.DONE


def test_what_cannot_be_done_while_ranks_train_is_one_line(
    training: Training, code: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another run, a deletion; logs of an attempt and a rank that are not there."""
    run, command = training
    second = run.run("--device", "cpu", "--anew", code=code)
    assert second.code == ExitCode.FAILED
    assert f"is being run by process {command.pid}" in second.err
    for words, said in (
        (("delete", NAME, "--yes"), f"is being run by process {command.pid}"),
        (("logs", NAME, "--attempt", "2"), "no attempt 2 of chain; the latest is 1"),
        (("logs", NAME, "--rank", "2"), "attempt 1 has no rank 2, its last is 0"),
        (("describe", "chian"), "no plan chian in "),
        (("describe", "chian"), "did you mean chain?"),
    ):
        assert plimsoll(run, *words) == ExitCode.FAILED
        captured = capsys.readouterr()
        assert captured.out == ""
        assert said in captured.err
        assert captured.err.count("\n") == 1
    assert plimsoll(run, "describe", NAME, "--output", "json") == ExitCode.DONE
    assert json.loads(capsys.readouterr().out)["metadata"]["name"] == NAME
    assert command.poll() is None


def test_another_spec_is_refused_while_a_job_is_launched(
    training: Training, code: Path
) -> None:
    """With the field and both values; what may change is taken up by the same job."""
    run, command = training
    command.kill()
    command.wait()
    write(run, steps=MANY_STEPS + 1)
    ended = run.run(*LARGE, code=code)
    assert ended.code == ExitCode.FAILED
    assert (
        f"chain was launched with spec.training.steps {MANY_STEPS}, which is "
        f"{MANY_STEPS + 1} now"
    ) in ended.err
    assert len(ended.err.splitlines()) == 1
    assert run.processes() != {}
    write(run, "runPolicy: {backoffLimit: 7}\n  suspend: true", steps=MANY_STEPS)
    stopped = run.run(*LARGE, code=code)
    assert stopped.code == ExitCode.STOPPED, stopped.err
    assert stopped.status.attempt == 1
    plan = run.plan()
    assert plan is not None
    assert plan.spec.run_policy.backoff_limit == 7


def test_beginning_anew_ends_what_is_under_way(training: Training, code: Path) -> None:
    """Ranks whose command was killed would train on where nobody sees them."""
    run, command = training
    command.kill()
    command.wait()
    assert run.processes() != {}
    write(run, "suspend: true")
    ended = run.run("--device", "cpu", "--anew", code=code)
    assert ended.code == ExitCode.STOPPED, ended.err
    assert ended.status.attempt == 0
    assert wait_until_gone(run, seconds=2) == {}


def test_what_was_not_launched_yet_takes_up_what_was_edited(
    run: HomeRun, code: Path
) -> None:
    """It stays the same plan, in another generation."""
    write(run, "suspend: true")
    assert run.run(code=code).code == ExitCode.STOPPED
    before = run.plan()
    write(run, "suspend: true", steps=41)
    assert run.run(code=code).code == ExitCode.STOPPED
    after = run.plan()
    assert before is not None
    assert after is not None
    assert after.uid == before.uid
    assert (after.generation, after.spec.training.steps) == (2, 41)


def test_a_lost_store_lets_the_ranks_save_and_leave(training: Training) -> None:
    """In one line; nothing goes on that nobody could find again."""
    run, command = training
    run.home.store.unlink()
    out, err = command.communicate()
    assert command.returncode == ExitCode.FAILED
    assert out == ""
    assert "plimsoll.db was deleted or replaced while it was open: put it b" in err
    assert err.count("\n") == 1
    assert wait_until_gone(run) == {}
    assert list(run.home.root.glob("plans/*/checkpoints/step-*"))


def test_a_full_disk_is_waited_out_while_the_ranks_train(
    run: HomeRun, code: Path, tmp_path: Path
) -> None:
    """The command says why it waits, and that it goes on; the attempt is the same."""
    write(run, steps=MANY_STEPS)
    (tmp_path / "code").write_text(str(code))
    place = tmp_path / "mount"
    place.mkdir()
    mount = 'mount -t tmpfs -o size=24m none "$1"'
    said = on_own_mount(mount, place, wait_for_room)
    assert "the disk is full" in said, said
    assert "✓ goes on" in said.rpartition("the disk is full")[2]
    assert said.count("the disk is full") == 1
    assert "attempt 1 has saved and left" in said
    assert "attempt 2" not in said
    assert said.splitlines()[-1] == f"exit {ExitCode.INTERRUPTED}"


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("nothing", "entry point own:nothing"),
        ("refuses", "ValueError: no data here"),
    ],
)
def test_an_entry_point_that_gives_no_workload_is_told(
    function: str, said: str, run: HomeRun, code: Path
) -> None:
    """One that is not there, or that raises; and it is not tried again."""
    own = code / "own.py"
    text = own.read_text()
    own.write_text(text + "\n\ndef refuses():\n    raise ValueError('no data here')\n")
    try:
        write(run, entrypoint=f"own:{function}")
        ended = run.run(code=code)
    finally:
        own.write_text(text)
    assert ended.code == ExitCode.FAILED
    assert said in ended.status.conditions[-1].message
    assert ended.status.attempt == 0
    assert wait_until_gone(run) == {}
