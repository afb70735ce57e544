"""The rehearsal as a process: one document on stdout, or one line that says why not."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch

from plimsoll_planner.exit_codes import ExitCode
from plimsoll_planner.records.document import from_text, save
from plimsoll_planner.records.model_profile import DeviceKind, Precision
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.rehearsal import Rehearsal
from plimsoll_profiler.__main__ import main
from plimsoll_profiler.errors import BusyDeviceError
from plimsoll_profiler.ranks import rehearsal, rehearser
from plimsoll_trainer.devices.device import Device
from plimsoll_trainer.errors import DeviceFullError
from tests.support.builders import MIB, a_peak, a_profile, an_offer
from tests.support.plans import plan_for

GPT = "tests.support.workloads:a_gpt"
ROOT = Path(__file__).parents[3]
BF16 = '{"depth": 2, "precision": "bf16"}'


def a_small_plan(memory_bytes: int = 64 * MIB) -> HybridPlan:
    """Put a GPT of four layers on two emulated devices; the second is the fullest."""
    plan = plan_for((0, 2, 4), entrypoint=GPT, arguments=BF16)
    offer = replace(plan.offers[0], device_memory_bytes=memory_bytes)
    stages = tuple(
        replace(stage, peaks=(a_peak(upper_bytes=(place + 1) * MIB),))
        for place, stage in enumerate(plan.stages)
    )
    return replace(plan, offers=(offer,), stages=stages)


def rehearsed(
    folder: Path, plan: HybridPlan, *options: str
) -> subprocess.CompletedProcess[str]:
    """Start the process on a plan."""
    recipe = replace(a_profile().recipe, gradient_precision=Precision.FP32)
    profile = a_profile(fingerprint=plan.fingerprint, recipe=recipe)
    save(folder / "plan.json", plan)
    save(folder / "profile.json", profile)
    words = (
        *(sys.executable, "-m", "plimsoll_profiler", "rehearse", "--entrypoint", GPT),
        *("--plan", "plan.json", "--profile", "profile.json", *options),
    )
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        words, cwd=folder, env=env, capture_output=True, text=True, check=False
    )


@pytest.fixture(autouse=True)
def at_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entry points of these tests are found from the root of the tree."""
    monkeypatch.chdir(ROOT)


@pytest.mark.slow
def test_the_fullest_rank_is_rehearsed_unless_another_is_named(tmp_path: Path) -> None:
    """As one line of JSON, on a device that has what the plan says."""
    plan = a_small_plan()
    for options, rank in (((), 1), (("--rank", "0"), 0)):
        done = rehearsed(tmp_path, plan, *options)
        assert done.returncode == ExitCode.DONE, done.stderr
        [line] = done.stdout.splitlines()
        found = from_text(line, Rehearsal)
        assert found.observation.rank == rank
        assert (found.fits, found.other_bytes) == (True, 0)
        assert found.capacity_bytes == 64 * MIB


@pytest.mark.slow
def test_a_device_with_less_memory_is_a_verdict(tmp_path: Path) -> None:
    """The process ends well, and says where the rank ran out."""
    done = rehearsed(tmp_path, a_small_plan(), "--device-memory", str(MIB // 4))
    assert done.returncode == ExitCode.DONE, done.stderr
    found = from_text(done.stdout, Rehearsal)
    assert found.full_device is not None
    assert found.full_device.rank == 1
    assert found.capacity_bytes == MIB // 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "options", "code", "message"),
    [
        ({}, ("--rank", "2"), ExitCode.FAILED, "there is no rank 2: the plan has"),
        (
            {"device_kind": DeviceKind.CUDA},
            (),
            ExitCode.FAILED,
            "the plan is for GPUs, and local rank 0 finds",
        ),
    ],
)
def test_what_cannot_be_rehearsed_is_one_line(
    change: dict[str, DeviceKind],
    options: tuple[str, ...],
    code: ExitCode,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On stderr; nothing on stdout, and no traceback."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    plan = a_small_plan()
    if change:
        plan = replace(plan, offers=(an_offer(devices_per_node=2, **change),))
    done = rehearsed(tmp_path, plan, *options)
    assert done.returncode == code
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert message in done.stderr


@pytest.mark.slow
def test_other_code_than_was_profiled_ends_with_its_own_code(tmp_path: Path) -> None:
    """So that it is profiled anew."""
    plan = a_small_plan()
    other = replace(plan.fingerprint, source_digest="sha256:" + "0" * 64)
    done = rehearsed(tmp_path, replace(plan, fingerprint=other))
    assert done.returncode == ExitCode.FOREIGN_FINGERPRINT
    assert "the source is not" in done.stderr


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_holds_more_than_tensors_and_only_what_is_the_ranks(
    tmp_path: Path,
) -> None:
    """The use by others was read before torch has touched it."""
    plan = replace(a_small_plan(), offers=(an_offer(devices_per_node=2),))
    done = rehearsed(tmp_path, plan)
    assert done.returncode == ExitCode.DONE, done.stderr
    found = from_text(done.stdout, Rehearsal)
    assert found.fits
    assert found.other_bytes is not None
    for peak in found.observation.peaks:
        assert 0 < peak.allocated_bytes <= peak.reserved_bytes < peak.device_bytes


def test_a_device_that_others_fill_says_nothing_before_the_first_step_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a context finds no room: not the plan's fault, with a code of its own."""

    def full(*_: object, **__: object) -> Device:
        raise torch.OutOfMemoryError("CUDA out of memory")

    plan = replace(a_small_plan(), offers=(an_offer(devices_per_node=2),))
    recipe = replace(a_profile().recipe, gradient_precision=Precision.FP32)
    save(tmp_path / "plan.json", plan)
    save(
        tmp_path / "profile.json",
        a_profile(fingerprint=plan.fingerprint, recipe=recipe),
    )
    options = rehearser.parser().parse_args(
        [
            *("--plan", str(tmp_path / "plan.json")),
            *("--profile", str(tmp_path / "profile.json"), "--entrypoint", GPT),
        ]
    )
    monkeypatch.setattr(rehearsal, "open_device", full)
    monkeypatch.setattr(rehearser, "other_process_bytes", lambda: 5 * 2**30)
    with pytest.raises(BusyDeviceError, match=r"have 5\.00 GiB of the device") as error:
        rehearser.rehearse_here(options)
    assert error.value.exit_code is ExitCode.DEVICE_BUSY
    monkeypatch.setattr(rehearser, "other_process_bytes", lambda: 0)
    with pytest.raises(DeviceFullError):
        rehearser.rehearse_here(options)


@pytest.mark.parametrize("given", ["-5", "1GiB"])
def test_bytes_are_a_whole_number(
    given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the name of the option."""
    words = ["rehearse", "--plan", "p", "--profile", "q", "--entrypoint", GPT]
    with pytest.raises(SystemExit):
        main([*words, f"--device-memory={given}"])
    assert "--device-memory: " in capsys.readouterr().err


def test_a_plan_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Before torch is loaded."""
    (tmp_path / "plan.json").write_text("{")
    words = ("--entrypoint", GPT, "--plan", "plan.json", "--profile", "p.json")
    done = subprocess.run(
        (sys.executable, "-m", "plimsoll_profiler", "rehearse", *words),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == ExitCode.FAILED
    assert "plan.json: " in done.stderr
