"""`make gpu` on an emulated device: the code path of a GPU, with smaller numbers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import psutil

from benchmarks.gpu.device import ask_gpu
from benchmarks.gpu.page import page
from benchmarks.gpu.results import Results, results_from
from plimsoll_trainer.errors import NoGpuError
from tests.support.fake_torch import fake_torch
from tests.support.make import make

ROOT = Path(__file__).parents[3]
MODEL = "own-residual-fp32"
OPTIONS = ("--device", "cpu", "--models", MODEL, "--plans", "2")
SCALARS_BYTES = 64
ROOMS = ("planner", "training_job", "profiler_job", ".")
ENVIRONMENT = os.environ | {"PYTHONPATH": ":".join(ROOMS)}
REHEARSER = "rehearser"
"""Word of its command line: the name of the process."""
GONE_S = 60.0
"""At most, until a killed process is gone."""


def make_gpu(*words: str, **environment: str) -> Any:
    """Run the command as make does."""
    return subprocess.run(
        (sys.executable, "-m", "benchmarks.gpu", *words),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT | environment,
    )


def words(process: psutil.Process) -> list[str]:
    """The command line of a process; none if it has ended meanwhile."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of one small model and two plans."""
    made = tmp_path_factory.mktemp("gpu")
    done = make_gpu(*OPTIONS, "--out", str(made))
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture(scope="module")
def results(folder: Path) -> Results:
    """Files that were written."""
    return results_from(json.loads((folder / "gpu.json").read_text()))


@pytest.mark.slow
def test_predictions_hold_the_measured_ranks(results: Results) -> None:
    """Tensors of every rank lie in the range predicted without running anything."""
    rows = results.models[MODEL].ranks
    assert [(row.plan[:3], row.rank) for row in rows] == [
        ("P=1", 0),
        ("P=2", 0),
        ("P=2", 1),
    ]
    for row in rows:
        assert not row.full_phase
        assert row.allocated[0] <= row.peak[0] <= row.allocated[2]
        assert row.device[0] <= row.peak[2] <= row.device[2]
        assert len(row.step_s) == 2


@pytest.mark.slow
def test_one_sample_more_than_fits_runs_out_of_memory(results: Results) -> None:
    """On the far side of the edge, and not on the near one."""
    near, far = results.models[MODEL].edge
    assert (near.predicted, near.ran) == ("fits", True)
    assert (far.predicted, far.ran) == ("fails", False)
    assert far.micro_batch == near.micro_batch + 1


@pytest.mark.slow
def test_a_trace_equals_a_measurement_on_an_emulated_device(results: Results) -> None:
    """Workspaces of kernels included; but for the scalars of an optimizer's step."""
    lines = results.models[MODEL].profile
    assert max(abs(line.largest_error_bytes) for line in lines) <= SCALARS_BYTES
    assert {line.quantity for line in lines} >= {"saved", "parameters", "boundary"}


@pytest.mark.slow
def test_what_was_measured_is_kept(folder: Path, results: Results) -> None:
    """The same command goes on where it was, and measures nothing twice."""
    done = make_gpu(*OPTIONS, "--out", str(folder))
    assert done.returncode == 0
    assert "measured before" in done.stderr
    again = results_from(json.loads((folder / "gpu.json").read_text()))
    assert again == results


@pytest.mark.slow
def test_the_page_shows_every_rank(folder: Path, results: Results) -> None:
    """A row for each, and the version of torch."""
    text = (folder / "gpu.md").read_text()
    assert text == page(results, str(folder / "gpu.json"))
    for row in results.models[MODEL].ranks:
        assert f"| {row.plan} | {row.rank} |" in text
    assert f"torch {results.models[MODEL].versions['torch']}" in text


@pytest.mark.slow
def test_ranks_can_be_learned_from(results: Results) -> None:
    """All that fit, the near side of the edge included; each once."""
    assert len(results.observed.ranks) == len(results.models[MODEL].ranks) + 1


def test_the_committed_page_is_that_of_the_committed_results() -> None:
    """docs/gpu.md is never edited by hand."""
    kept = ROOT / "docs" / "gpu.json"
    results = results_from(json.loads(kept.read_text())) if kept.exists() else None
    assert (ROOT / "docs" / "gpu.md").read_text() == page(results, "docs/gpu.json")


@pytest.mark.slow
def test_without_a_gpu_one_line_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where the GPU is gone in the middle, which the same question finds."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(NoGpuError, match="make gpu DEVICE=cpu"):
        ask_gpu()
    done = make_gpu("--device", "cuda", "--models", MODEL, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status", "text"),
    [
        (signal.SIGINT, 130, "interrupted: the same command goes on where it was\n"),
        (signal.SIGKILL, -signal.SIGKILL, ""),
    ],
)
def test_a_signal_leaves_no_process(
    tmp_path: Path, number: signal.Signals, status: int, text: str
) -> None:
    """Ctrl-C reaches all processes and ends in one line; a kill reaches the first."""
    with subprocess.Popen(
        (sys.executable, "-m", "benchmarks.gpu", *OPTIONS, "--out", str(tmp_path)),
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        next(line for line in process.stderr if line.endswith("rank 0\n"))
        first = psutil.Process(process.pid)
        while not (children := [p for p in first.children() if REHEARSER in words(p)]):
            time.sleep(0.01)
        if number is signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            for child in children:
                child.suspend()  # else it ends by itself, seconds later
            process.kill()
        left = process.stderr.read()
    assert (process.returncode, left) == (status, text)
    _, alive = psutil.wait_procs(children, timeout=GONE_S)
    for child in alive:
        child.kill()
    assert alive == []


@pytest.mark.parametrize(
    ("version", "content", "message"),
    [
        (None, "", "and {} has no torch: profile and train"),
        (
            "2.10.0",
            "raise AssertionError('loaded')",
            "and {} has torch 2.10.0: profile",
        ),
        (
            "2.14.1",
            "raise OSError('no libcudart.so')",
            "torch 2.14.1 of {} does not load",
        ),
    ],
    ids=["missing", "too old", "broken"],
)
def test_without_a_torch_that_works_one_line_says_what_to_do(
    version: str | None, content: str, message: str, tmp_path: Path
) -> None:
    """Before anything imports it; so does a machine without numpy."""
    if version:
        fake_torch(tmp_path, version, content)
        options: tuple[str, ...] = ()
    else:
        options = ("-S",)  # without the libraries of this environment
    path = f"{tmp_path}:{ENVIRONMENT['PYTHONPATH']}"
    done = subprocess.run(
        (sys.executable, *options, "-m", "benchmarks.gpu", *OPTIONS),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT | {"PYTHONPATH": path},
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert message.format(sys.executable) in line


def test_make_keeps_the_path_of_the_caller(tmp_path: Path) -> None:
    """A torch that only `PYTHONPATH` finds is found."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$PYTHONPATH" "$@"\n')
    python.chmod(0o755)
    for path, rest in (("/opt/torch", ":/opt/torch"), ("", "")):
        done = make("gpu", f"PYTHON={python}", "GPU=--plans 1", PYTHONPATH=path)
        words = r"-m benchmarks.gpu.tied \d+ benchmarks.gpu --device cuda --plans 1"
        assert re.fullmatch(f"{':'.join(ROOMS)}{rest} {words}\n", done.stdout)
