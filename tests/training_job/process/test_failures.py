"""Whatever ends a rank is one line that says where, what and what to do."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist

from plimsoll_planner.exit_codes import ExitCode
from plimsoll_planner.records.plan import Phase
from plimsoll_trainer.errors import (
    DeviceFullError,
    LostRankError,
    TrainerError,
    WorkloadError,
)
from plimsoll_trainer.process.failures import explain
from tests.support.builders import an_offer
from tests.support.jobs import Job, texts

CPU_TEXT = (
    "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate "
    "memory: you tried to allocate 4096 bytes. Error code 12 (Cannot allocate memory)"
)


def wrapped(cause: Exception, text: str) -> RuntimeError:
    """Wrap an error as the pipeline runtime does."""
    error = RuntimeError(text)
    error.__cause__ = cause
    return error


def test_a_full_device_is_seen_through_the_runtimes_own_error() -> None:
    """Emulated or GPU, in forward or backward."""
    error = wrapped(RuntimeError(CPU_TEXT), "Failed to run stage backward: x")
    found = explain(error, Phase.FORWARD, None)
    assert isinstance(found, DeviceFullError)
    assert str(found).startswith("out of device memory in backward: 4096 bytes more")
    assert found.exit_code is ExitCode.DEVICE_OUT_OF_MEMORY
    gpu = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.50 GiB. GPU")
    text = str(explain(gpu, Phase.OPTIMIZER_STEP, None))
    assert text.startswith("out of device memory in optimizer-step: 1610612736 bytes")


NCCL = (
    "NCCL error in: ProcessGroupNCCL.cpp:3699, unhandled cuda error (run with "
    "NCCL_DEBUG=INFO for details), NCCL version 2.27.3\n"
    "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
)


@pytest.mark.parametrize(
    "text",
    [
        "CUDA error: out of memory\nCUDA kernel errors might be reported later",
        "CUDA driver error: out of memory",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    ],
)
def test_a_full_gpu_is_seen_in_what_libraries_say(text: str) -> None:
    """CUDA and its libraries allocate beside torch, and raise plain errors."""
    found = explain(RuntimeError(text), Phase.FORWARD, None)
    assert isinstance(found, DeviceFullError)
    assert "out of device memory in forward: more asked for" in str(found)


@pytest.mark.parametrize(
    ("last", "asked"),
    [
        ("Cuda failure 2 'out of memory'", "more"),
        ("Cuda failure 'out of memory'", "more"),
        ("Failed to CUDA calloc async 6291456 bytes", "6291456 bytes more"),
    ],
)
def test_a_full_gpu_is_no_lost_rank(last: str, asked: str) -> None:
    """A communicator that finds no memory fails like one whose other end is gone."""
    found = explain(dist.DistBackendError(NCCL + last), Phase.BUILD, None)
    assert isinstance(found, DeviceFullError)
    assert f"in build: {asked} asked for" in str(found)
    other = dist.DistBackendError(NCCL + "Cuda failure 999 'unknown error'")
    assert isinstance(explain(other, Phase.BUILD, None), LostRankError)


def test_what_was_dealt_with_does_not_count() -> None:
    """Code that ran out of memory, went on and hid that, failed for another reason."""
    error = ValueError("other")
    error.__context__ = torch.OutOfMemoryError("CUDA out of memory.")
    assert type(explain(error, Phase.BUILD, None)) is DeviceFullError
    error.__suppress_context__ = True  # raise .. from None
    assert type(explain(error, Phase.BUILD, None)) is TrainerError


def test_a_lost_rank_points_at_the_first_failure() -> None:
    """The one that was left says so, and does not look like the culprit."""
    text = "[pair.cc:553] Connection closed by peer [127.0.0.1]:4711. Good luck! GLHF"
    error = RuntimeError(text)
    found = explain(error, Phase.GRADIENT_NORM, None)
    assert isinstance(found, LostRankError)
    assert str(found) == (
        "another rank went away in gradient-norm: the first rank that failed says why "
        "(Connection closed by peer)"
    )


def test_what_is_explained_already_stays() -> None:
    """Our own errors say all there is to say."""
    error = WorkloadError("x")
    assert explain(error, Phase.BUILD, None) is error
    assert type(explain(KeyError("x"), Phase.BUILD, None)) is TrainerError


def test_an_error_of_the_workload_is_told_with_its_line(job: Job) -> None:
    """The innermost error, where it was raised, and in which phase."""
    ends = job.try_to_run((0, 2, 5), 3, entrypoint="tiny_model:fails_in_backward")
    (line,) = [text for text in texts(ends) if "no gradient" in text]
    assert re.match(
        r"TrainerError: backward: ValueError: no gradient of this at .*:\d+; --debug",
        line,
    )


def peaks_of(report: Path) -> dict[int, int]:
    """The most that each rank held at once, in bytes."""
    found = [json.loads(line) for line in report.read_text().splitlines()]
    return {
        line["rank"]: max(p["device_bytes"] for p in line["observation"]["peaks"])
        for line in found
        if line["event"] == "observation"
    }


def test_what_the_entry_point_keeps_is_the_hosts(job: Job) -> None:
    """As beside a GPU: 4 MiB of data in its module change no rank's peak."""
    for name in ("workload", "with_data"):
        entrypoint = f"tiny_model:{name}"
        ends = job.run((0, 2, 5), 2, entrypoint=entrypoint, report=name)
        assert set(ends) == {ExitCode.DONE}
    plain, with_data = (peaks_of(job.report(n)) for n in ("workload", "with_data"))
    assert with_data == pytest.approx(plain, abs=64)


@pytest.mark.parametrize("depth", [3, 6])
def test_every_rank_under_its_cap_or_dead_with_the_bytes(depth: int, job: Job) -> None:
    """A cap just under the peak of a rank kills that rank, by name and phase.

    64 bytes to either side, for gloo's threads let a scalar go late at times.
    """
    args = json.dumps({"depth": depth})
    cuts = (0, 2, depth + 2)
    job.run(cuts, 3, args=args, report="free")
    peaks = peaks_of(job.report("free"))
    caps = [peaks[0] + 64, peaks[1] + 64]
    assert job.try_to_run(cuts, 3, args=args, caps_bytes=caps) == [0, 0]
    ends = job.try_to_run(cuts, 3, args=args, caps_bytes=[caps[0], peaks[1] - 64])
    lines = [text for text in texts(ends) if "DeviceFullError" in text]
    assert len(lines) == 1
    assert re.search(
        rf"in [a-z-]+: \d+ bytes more .* of {peaks[1] - 64}: plan", lines[0]
    )


def test_a_plan_for_gpus_never_trains_on_the_cpu(job: Job) -> None:
    """If there is none, that is the line."""
    offer = an_offer(devices_per_node=4096)
    ends = job.try_to_run((0, 5), 3, plan={"offers": (offer,)}, local_rank=4095)
    (line,) = texts(ends)
    assert line.startswith(
        "NoGpuError: the plan is for GPUs, and local rank 4095 finds"
    )
