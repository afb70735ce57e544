"""`make gpu` on an emulated device: the code path of a GPU, with smaller numbers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from benchmarks.gpu.device import ask_gpu
from benchmarks.gpu.page import page
from benchmarks.gpu.results import Results, results_from
from plimsoll_planner.records.rehearsal import MeasuredRanks
from plimsoll_trainer.errors import NoGpuError

ROOT = Path(__file__).parents[3]
MODEL = "own-residual-fp32"
SCALARS_BYTES = 64


def make_gpu(*words: str, python: str = sys.executable) -> Any:
    """Run the command as make does."""
    rooms = ("planner", "training_job", "profiler_job", ".")
    return subprocess.run(
        (python, "-m", "benchmarks.gpu", *words),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": ":".join(rooms)},
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of one small model and two plans."""
    made = tmp_path_factory.mktemp("gpu")
    options = ("--device", "cpu", "--models", MODEL, "--plans", "2")
    done = make_gpu(*options, "--out", str(made))
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture(scope="module")
def results(folder: Path) -> Results:
    """What was written."""
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
    options = ("--device", "cpu", "--models", MODEL, "--out", str(folder))
    done = make_gpu(*options)
    assert done.returncode == 0
    assert "measured before" in done.stderr
    again = results_from(json.loads((folder / "gpu.json").read_text()))
    assert again == results


@pytest.mark.slow
def test_the_page_shows_every_rank(folder: Path, results: Results) -> None:
    """A row for each, and the version of torch."""
    text = (folder / "gpu.md").read_text()
    assert text == page(results)
    for row in results.models[MODEL].ranks:
        assert f"| {row.plan} | {row.rank} |" in text
    assert f"torch {results.versions['torch']}" in text


@pytest.mark.slow
def test_ranks_can_be_learned_from(results: Results) -> None:
    """All that fit, the near side of the edge included; each once."""
    ranks = MeasuredRanks.from_json(results.observed, "observed").ranks
    assert len(ranks) == len(results.models[MODEL].ranks) + 1


def test_the_committed_page_is_that_of_the_committed_results() -> None:
    """docs/gpu.md is never edited by hand."""
    kept = ROOT / "docs" / "gpu.json"
    results = results_from(json.loads(kept.read_text())) if kept.exists() else None
    assert (ROOT / "docs" / "gpu.md").read_text() == page(results)


@pytest.mark.slow
def test_without_a_gpu_one_line_says_what_to_do() -> None:
    """Also where the GPU is gone in the middle, which the same question finds."""
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU: run make gpu")
    with pytest.raises(NoGpuError, match="make gpu DEVICE=cpu"):
        ask_gpu()
    done = make_gpu("--device", "cuda", "--models", MODEL)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1


def test_a_model_that_is_not_there_is_named() -> None:
    """With those that are."""
    done = make_gpu("--device", "cpu", "--models", "gpt9")
    assert done.returncode == 3
    assert "no gpt9" in done.stderr
    assert MODEL in done.stderr
