"""The command as users start it: under torchrun, and alone."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from plimsoll_planner.exit_codes import ExitCode
from plimsoll_planner.records.model_profile import DeviceKind
from tests.support.builders import an_offer
from tests.support.jobs import Job, events, losses

pytestmark = pytest.mark.slow
TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2")
TRAINER = "plimsoll_trainer"
TIMEOUT_S = 120.0


def output_of(process: subprocess.Popen[str]) -> tuple[list[str], str]:
    """Wait for the end; return the lines of the trainer and all of its output."""
    out, err = process.communicate(timeout=TIMEOUT_S)
    return [line for line in err.splitlines() if line.startswith("plimsoll: ")], out


def wait_for_step(report: Path, step: int) -> None:
    """Wait until a step is reported."""
    end_s = time.monotonic() + TIMEOUT_S
    while not report.exists() or step not in losses(report):
        assert time.monotonic() < end_s
        time.sleep(0.05)


def test_torchrun_saves_when_it_is_asked_to_stop(job: Job) -> None:
    """It passes SIGTERM on to both ranks, which save; the job then goes on."""
    options = job.options((0, 2, 5), 100_000, report="begun", saves=True)
    process = job.command([*TORCHRUN, "-m", TRAINER], options)
    wait_for_step(job.report("begun"), 2)
    process.send_signal(signal.SIGTERM)
    (line,), _ = output_of(process)
    assert re.fullmatch(
        r"plimsoll: rank 0: stopped after step \d+ as asked, and saved: start again "
        "with the same --checkpoint-dir to go on",
        line,
    )
    ends = events(job.report("begun"), "end")
    assert [end["exit_code"] for end in ends] == [ExitCode.CHECKPOINTED] * 2
    done = max(losses(job.report("begun")))
    options = job.options((0, 5), done + 2, report="resumed", saves=True)
    (line,), _ = output_of(job.command([TRAINER], options))
    assert line.startswith(f"plimsoll: rank 0: resumes after step {done}, from ")
    assert sorted(losses(job.report("resumed"))) == [done + 1, done + 2]


def test_a_stop_without_a_place_to_save_in_is_one_line(job: Job) -> None:
    """Also where tracebacks are wanted: it was asked for, so there is no fault."""
    options = job.options((0, 5), 100_000, report="begun")
    process = job.command([TRAINER, "--debug"], options)
    wait_for_step(job.report("begun"), 2)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == ExitCode.FAILED
    [line] = err.splitlines()
    assert " as asked, and nothing is saved: give --checkpoint-dir to " in line


def test_a_loss_that_is_no_number_is_told_once(job: Job) -> None:
    """Training goes on, as torch's own would, where that is asked for.

    What learns nothing is named, too.
    """
    options = job.options(
        (0, 5),
        3,
        entrypoint="tiny_model:idle",
        args='{"stops_at_nan": false}',
    )
    process = job.command([TRAINER], options)
    (idle, line), _ = output_of(process)
    assert process.returncode == ExitCode.DONE
    assert idle == (
        "plimsoll: rank 0: frozen, for no gradient comes back to them: "
        "embedding.unused.bias, embedding.unused.weight"
    )
    assert line.startswith("plimsoll: rank 0: the loss of step 1 is nan, and will ")


def test_alone_it_trains_until_the_device_is_full(job: Job) -> None:
    """A single rank needs no launcher; what does not fit ends it with 83 and a line.

    The traceback has what torch raised, and where.
    """
    options = job.options((0, 5), 5, args='{"width": 16}')
    process = job.command([TRAINER, "--debug"], options, cap_bytes=400_000)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == ExitCode.DEVICE_OUT_OF_MEMORY
    traceback, line = err.strip().rsplit("\n", 1)
    assert "DefaultCPUAllocator: " in traceback
    assert line.startswith("plimsoll: rank 0: out of device memory in ")
    assert " bytes more asked for with " in line
    assert "in use of 400000: plan with this device's real memory, or " in line
    assert out.startswith("step 1/5  loss ")
    (failure,) = events(job.report("report"), "failure")
    assert failure["exit_code"] == ExitCode.DEVICE_OUT_OF_MEMORY


def test_it_becomes_the_device_that_the_plan_is_for(job: Job) -> None:
    """With the memory of the plan's offer, unless another is given."""
    offer = an_offer(
        device_kind=DeviceKind.EMULATED,
        device_product="process",
        device_memory_bytes=300 * 2**10,
        devices_per_node=1,
    )
    options = job.options((0, 5), 2, plan={"offers": (offer,)})
    process = job.command([TRAINER], options)
    (line,), _ = output_of(process)
    assert process.returncode == ExitCode.DEVICE_OUT_OF_MEMORY
    assert f" in use of {300 * 2**10}: plan with" in line
    process = job.command([TRAINER, "--device-memory", "64MiB"], options)
    assert output_of(process)[0] == []
    assert process.returncode == ExitCode.DONE


def test_a_world_of_another_size_is_refused(job: Job) -> None:
    """A plan for two ranks does not run alone: one line, no traceback."""
    process = job.command([TRAINER], job.options((0, 2, 5), 5))
    lines, out = output_of(process)
    assert process.returncode == ExitCode.FAILED
    assert out == ""
    assert lines == [
        "plimsoll: rank 0: the plan is for 2 ranks, but there are 1: start 2 (torchrun "
        "--nproc-per-node), or plan for 1"
    ]


@pytest.mark.parametrize("words", [[], ["--debug"]])
def test_a_foreign_fingerprint_is_refused(words: list[str], job: Job) -> None:
    """Other code ends with the reserved code; the traceback only on demand."""
    options = job.options((0, 5), 5)
    plan = json.loads(options.plan.read_text())
    plan["fingerprint"]["source_digest"] = "sha256:" + "0" * 64
    options.plan.write_text(json.dumps(plan))
    process = job.command([TRAINER, *words], options)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == ExitCode.FOREIGN_FINGERPRINT
    *above, line = err.splitlines()
    assert re.fullmatch(
        "plimsoll: rank 0: the source is not what was planned for: of the Python files "
        rf"that tiny_model in {job.folder} imports \(3, its own included\), these were "
        r"written last: tiny_model\.py(, tests/support/(workloads|streams)\.py){2}; "
        "undo what has changed, or profile and plan again",
        line,
    )
    assert above[:1] == (["Traceback (most recent call last):"] if words else [])
