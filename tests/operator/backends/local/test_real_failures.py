"""Every row of the failure table that can happen without a cluster, for real."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

pytest.importorskip("torch")

from plimsoll_cli.errors import ExitCode
from plimsoll_operator.api.status import Condition, ConditionType
from tests.support.command_lines import an_offers_file
from tests.support.home_runs import (
    DEVICES,
    EIGHT,
    LARGE,
    STEPS,
    Ended,
    HomeRun,
    kill_now,
    rank_of,
    wait_for_steps,
    wait_until_gone,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
CGROUPS = (
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
    (Path("/sys/fs/cgroup"), "memory.max"),
)
"""Version 1 where it is mounted, else 2."""


def write(run: HomeRun, extra: str = "", **fields: str) -> None:
    """Write the manifest of the own model."""
    run.write(**{"entrypoint": "own:workload", "args": "{}", "extra": extra, **fields})  # type: ignore[arg-type]


def succeeded(ended: Ended) -> Condition:
    """Summary."""
    found = ended.status.condition(ConditionType.SUCCEEDED)
    assert found is not None
    return found


def test_an_error_of_the_application_is_tried_again_with_its_line(
    run: HomeRun, code: Path
) -> None:
    """What was trained before is not lost; the line says where it was raised."""
    (code / "raise_at").write_text("12")
    write(run, "runPolicy: {backoffLimit: 1}")
    command = run.start(*LARGE, code=code)
    while not list(run.home.root.glob("plans/*/logs/train-1/0.err")):
        assert command.poll() is None
        time.sleep(0.05)
    (code / "raise_at").unlink()
    out, err = command.communicate()
    ended = Ended(command.returncode, out, err)
    assert ended.code == ExitCode.DONE, err
    assert ended.status.failures.application == 1
    assert ended.status.attempt == 2
    assert sorted(run.losses()) == list(range(1, STEPS + 1))


def test_an_error_that_stays_fails_after_its_limit(run: HomeRun, code: Path) -> None:
    """With the root cause: what was raised, and where in the user's own code.

    Once that is mended, the next run goes on from the last checkpoint.
    """
    (code / "raise_at").write_text("12")
    write(run, "runPolicy: {backoffLimit: 0}")
    ended = run.run(*LARGE, code=code)
    assert ended.code == ExitCode.FAILED
    assert succeeded(ended).reason == "AppError"
    message = succeeded(ended).message
    assert "ValueError: no sample of this step at " in message
    assert "own.py:" in message
    assert message.endswith("; `plimsoll logs chain` shows the traceback")
    [log] = run.home.root.glob("plans/*/logs/train-1/0.err")
    assert "Traceback (most recent call last):" in log.read_text()
    assert wait_until_gone(run) == {}
    (code / "raise_at").unlink()
    again = run.run(*LARGE, code=code)
    assert again.code == ExitCode.DONE, again.err
    assert (again.status.attempt, again.status.failures.application) == (2, 0)
    assert sorted(run.losses()) == list(range(1, STEPS + 1))
    [report] = run.home.root.glob("plans/*/logs/train-2/report-0.jsonl")
    assert '"event": "resumed"' in report.read_text()


def test_a_device_with_less_than_it_says_is_planned_around(
    on_eight: tuple[HomeRun, str], code: Path, tmp_path: Path
) -> None:
    """The bound is widened in the store, a new plan fits, and training goes on."""
    known, less = on_eight
    run = known.copy(tmp_path)
    write(run, "runPolicy: {oomReplanLimit: 4, replanOnline: false}")
    ended = run.run(*EIGHT, "--real-device-memory", less, code=code)
    assert ended.code == ExitCode.DONE, ended.err
    status = ended.status
    assert status.failures.out_of_memory >= 1
    assert status.attempt == 1 + status.failures.out_of_memory
    assert status.observed is not None
    assert status.observed.peak_bytes <= int(less.removesuffix("KiB")) * 2**10
    assert sorted(run.losses()) == list(range(1, STEPS + 1))


def test_what_the_search_cannot_judge_is_refused(
    run: HomeRun, code: Path, tmp_path: Path
) -> None:
    """Each time it is run, in one line, and in the status as well."""
    write(run, "launch: {policy: PlanOnly}")
    offers = an_offers_file(tmp_path, device_product="Other")
    for _ in range(2):
        ended = run.run("--offers", offers, code=code)
        assert ended.code == ExitCode.BAD_INPUT
        [line] = [text for text in ended.err.splitlines() if "plimsoll: " in text]
        assert "no fp32 rate" in line
        assert "state the rate in the offers" in line
        plan = run.plan()
        assert plan is not None
        accepted = plan.status.condition(ConditionType.ACCEPTED)
        assert accepted is not None
        assert accepted.reason == "InvalidSpec"
        assert accepted.message in line


def test_an_entry_point_that_fills_the_device_is_not_planned_around(
    run: HomeRun, code: Path
) -> None:
    """It is tried once, and teaches nothing of the device: plans stay as small."""
    write(run)
    (code / "fill").touch()
    ended = run.run(*LARGE, code=code)
    assert ended.code == ExitCode.FAILED
    assert succeeded(ended).reason == "EntryPointOutOfMemory"
    assert "own:workload: it needs more memory for itself" in succeeded(ended).message
    assert ended.status.attempt == 1
    assert ended.status.plan is not None
    (code / "fill").unlink()
    again = run.run(*LARGE, code=code)
    assert again.code == ExitCode.DONE, again.err
    assert again.status.plan is not None
    assert again.status.plan.gpus == ended.status.plan.gpus


def test_running_out_of_memory_is_planned_around_only_so_often(
    run: HomeRun, code: Path
) -> None:
    """Then it fails, saying which rank, in which phase, and by how much."""
    write(run, "runPolicy: {oomReplanLimit: 0}")
    ended = run.run(*DEVICES, "--real-device-memory", "1MiB", code=code)
    assert ended.code == ExitCode.FAILED
    assert succeeded(ended).reason == "GPUOutOfMemory"
    assert "out of device memory in " in succeeded(ended).message


def test_what_a_person_fixed_is_not_planned_around(run: HomeRun, code: Path) -> None:
    """It runs out of memory once, and the message says what to change."""
    fixed = "override: {gpus: 2, pipeline: 2, data: 1}"
    write(run, f"{fixed}\n  runPolicy: {{replanOnline: false}}")
    ended = run.run(*DEVICES, "--real-device-memory", "1MiB", code=code)
    assert ended.code == ExitCode.FAILED
    assert succeeded(ended).reason == "GPUOutOfMemory"
    assert "spec.override" in succeeded(ended).message
    assert ended.status.attempt == 1


def test_a_killed_rank_is_a_disruption_that_counts_against_no_limit(
    run: HomeRun, code: Path
) -> None:
    """The gang begins again from its last checkpoint."""
    write(run, "runPolicy: {backoffLimit: 0}")
    command = started_up_to(12, run, code)
    kill_rank(run, 1, code)
    out, err = command.communicate()
    ended = Ended(command.returncode, out, err)
    assert ended.code == ExitCode.DONE, err
    assert ended.status.failures.disruption == 1
    assert ended.status.failures.application == 0


def test_ctrl_c_saves_and_the_next_run_goes_on(run: HomeRun, code: Path) -> None:
    """Nothing runs meanwhile, and no step is trained twice but those not saved."""
    write(run)
    command = started_up_to(5, run, code)
    command.send_signal(signal.SIGINT)
    while summary_of(run) != "Suspending":
        assert command.poll() is None
        time.sleep(0.05)
    (code / "wait_at").unlink()
    _, err = command.communicate()
    assert command.returncode == ExitCode.INTERRUPTED, err
    assert wait_until_gone(run, seconds=2) == {}
    ended = run.run(code=code)
    assert ended.code == ExitCode.DONE, ended.err
    assert ended.status.attempt == 2
    assert ended.status.failures.disruption == 0
    assert sorted(run.losses()) == list(range(1, STEPS + 1))


def test_changed_code_is_profiled_again(run: HomeRun, code: Path) -> None:
    """A cached profile of other code is found out before anything is launched."""
    change(code)
    write(run)
    ended = run.run(*LARGE, code=code)
    assert ended.code == ExitCode.DONE, ended.err
    assert ended.status.profile is not None
    assert not ended.status.profile.is_cached
    assert ended.status.attempt == 1


@pytest.mark.nightly  # each day, one that goes on changing
def test_code_that_changes_under_a_job_is_profiled_again_once(
    run: HomeRun, code: Path
) -> None:
    """The next attempt finds other code than was planned for; it is not trained."""
    write(run)
    command = started_up_to(12, run, code, LARGE)
    change(code)
    kill_rank(run, 0, code)
    out, err = command.communicate()
    ended = Ended(command.returncode, out, err)
    assert ended.code == ExitCode.DONE, err
    assert ended.status.attempt == 3  # killed, foreign, done
    assert ended.status.failures.disruption == 1


def test_code_that_goes_on_changing_is_given_up(run: HomeRun, code: Path) -> None:
    """It is profiled again once, and not for ever."""
    write(run)
    command = started_up_to(12, run, code, LARGE)
    change(code)
    kill_rank(run, 0, code)
    while not list(run.home.root.glob("plans/*/children/train-3")):
        assert command.poll() is None
        time.sleep(0.01)
    change(code)  # before its ranks have loaded torch
    out, err = command.communicate()
    ended = Ended(command.returncode, out, err)
    assert ended.code == ExitCode.FAILED, err
    assert succeeded(ended).reason == "ForeignFingerprint"
    assert ended.status.attempt == 3


def started_up_to(
    step: int, run: HomeRun, code: Path, devices: Sequence[str] = DEVICES
) -> subprocess.Popen[str]:
    """A run whose ranks wait before a step, so that none of them can end meanwhile."""
    (code / "wait_at").write_text(str(step))
    command = run.start(*devices, code=code)
    wait_for_steps(run, command, steps=step - 2)
    return command


def summary_of(run: HomeRun) -> str:
    """Reason of Succeeded, as the store has it."""
    plan = run.plan()
    assert plan is not None
    found = plan.status.condition(ConditionType.SUCCEEDED)
    return found.reason if found else ""


def kill_rank(run: HomeRun, rank: int, code: Path) -> None:
    """Kill one rank of the gang that trains, and let the others go on."""
    processes = [p for found in run.processes().values() for p in found]
    assert kill_now([p for p in processes if rank_of(p) == rank]) == 1
    (code / "wait_at").unlink()


def change(code: Path) -> None:
    """Edit the own model, which trains the same."""
    text = (code / "own.py").read_text()
    (code / "own.py").write_text(text + "\n# changed\n")


def test_a_checkpoint_of_another_model_is_not_gone_on_from(
    run: HomeRun, code: Path
) -> None:
    """It is told once, in words of the manifest; what was saved is still there."""
    (code / "raise_at").write_text("12")
    write(run, "runPolicy: {backoffLimit: 0}")
    assert succeeded(run.run(*LARGE, code=code)).reason == "AppError"
    (code / "raise_at").unlink()
    mended = (code / "own.py").read_text()
    (code / "own.py").write_text(mended.replace("192", "160"))
    ended = run.run(*LARGE, code=code)
    assert ended.code == ExitCode.FAILED
    assert succeeded(ended).reason == "UnusableCheckpoint"
    message = succeeded(ended).message
    assert " is for another model: " in message
    assert message.endswith("it was trained with, or begin anew with --anew")
    assert ended.status.attempt == 2
    (code / "own.py").write_text(mended)
    again = run.run(*LARGE, code=code)
    assert again.code == ExitCode.DONE, again.err
    assert sorted(run.losses()) == list(range(1, STEPS + 1))


def test_a_workload_that_breaks_the_contract_is_not_tried_again(
    run: HomeRun, code: Path
) -> None:
    """One line says what it returned."""
    write(run, entrypoint="own:no_workload")
    ended = run.run(*LARGE, code=code)
    assert ended.code == ExitCode.FAILED
    assert succeeded(ended).reason == "BadWorkload"
    assert "own:no_workload" in succeeded(ended).message


def test_a_job_may_take_only_so_long(run: HomeRun, code: Path) -> None:
    """It is asked to save first."""
    write(run, "runPolicy: {runningSeconds: 1}", steps=100_000)  # type: ignore[arg-type]
    ended = run.run(*LARGE, code=code)
    assert ended.code == ExitCode.FAILED
    assert succeeded(ended).reason == "DeadlineExceeded"


def test_profiling_may_take_only_so_long(run: HomeRun, code: Path) -> None:
    """The message says so, and nothing of it is left."""
    write(run, "profile: {policy: Always, timeoutSeconds: 1}")
    ended = run.run(code=code)
    assert ended.code == ExitCode.FAILED
    assert succeeded(ended).reason == "ProfileTimeout"
    assert wait_until_gone(run) == {}


@contextmanager
def memory_limit(num_bytes: int) -> Generator[Path]:
    """Make a control group with so much memory."""
    root, name = next((r, n) for r, n in CGROUPS if r.exists())
    group = root / f"plimsoll-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / name).write_text(str(num_bytes))
    except OSError as error:
        pytest.skip(f"no control group of memory can be made here: {error}")
    try:
        yield group
    finally:
        end_s = time.monotonic() + 10
        while (
            left := (group / "cgroup.procs").read_text()
        ) and time.monotonic() < end_s:
            for line in left.split():
                with suppress(ProcessLookupError):
                    os.kill(int(line), signal.SIGKILL)
            time.sleep(0.1)
        group.rmdir()


def test_a_full_machine_is_told_from_a_disruption(run: HomeRun, code: Path) -> None:
    """A rank that the kernel kills for memory counts as the application's."""
    (code / "eat_at").write_text("3")
    write(run, "runPolicy: {backoffLimit: 0}")
    with memory_limit(3 * 2**30) as group:
        in_group = ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"']
        command = subprocess.Popen(
            [*in_group, "sh", *run.words(*LARGE)],
            cwd=code,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        out, err = command.communicate()
    ended = Ended(command.returncode, out, err)
    assert ended.code == ExitCode.FAILED, err
    assert succeeded(ended).reason == "HostOOMKilled"


def test_two_runs_of_one_plan_do_not_meet(run: HomeRun, code: Path) -> None:
    """The second is refused in one line; the first does not notice."""
    write(run, steps="1000000")
    first = run.start(*LARGE, code=code)
    wait_for_steps(run, first, steps=1)
    second = run.run(*LARGE, code=code)
    assert second.code == ExitCode.FAILED
    assert f"is being run by process {first.pid}" in second.err
    assert len(second.err.splitlines()) == 1
    first.send_signal(signal.SIGINT)
    _, err = first.communicate()
    assert first.returncode == ExitCode.INTERRUPTED, err
