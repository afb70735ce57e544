"""The self-check: replay against two processes, and one line for what goes wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

import psutil

from plimsoll_planner.exit_codes import ExitCode
from plimsoll_profiler.errors import ReplayDisagreesError
from plimsoll_profiler.ranks import self_check, toy
from plimsoll_profiler.ranks.rank_replay import ReplayJob
from plimsoll_trainer.errors import IncompatibleError
from plimsoll_trainer.torch_internals.pipeline import cap_in_flight
from tests.support.fake_torch import fake_torch

SLEEPS = "import time; time.sleep(300)"
DIES = "import sys; print('a warning'); sys.exit('RuntimeError: no such name')"


@pytest.fixture(scope="module")
def real_peaks() -> list[int]:
    """Run the toy of the self-check once, in two processes of its own."""
    return self_check.real_peaks()


@pytest.mark.slow
def test_the_self_check_holds_on_this_torch(
    real_peaks: list[int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Both ranks of the toy agree with their replay, and the release is named."""
    monkeypatch.setattr(self_check, "real_peaks", lambda: real_peaks)
    assert self_check.check() is ExitCode.DONE
    *_, line = capsys.readouterr().out.splitlines()
    assert line == f"torch {version('torch')}: replay and ranks agree"
    for real, replayed in self_check.self_check():
        assert abs(real - replayed) <= self_check.TOLERANCE_BYTES


def disagree(job: ReplayJob, stage: int) -> dict[str, int]:
    """Replay something else."""
    del job
    return {"backward": 10**9 + stage}


@pytest.mark.slow
def test_the_self_check_names_torch_when_it_fails(
    real_peaks: list[int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A replay that holds other bytes is refused, and the version is named."""
    monkeypatch.setattr(self_check, "real_peaks", lambda: real_peaks)
    monkeypatch.setattr(toy, "replay_stage", disagree)
    with pytest.raises(ReplayDisagreesError, match="are not to be trusted"):
        self_check.self_check()
    assert self_check.check() is ExitCode.FAILED
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"torch {version('torch')}: rank 0 of a toy held ")


def test_a_torch_without_the_name_that_caps_is_refused() -> None:
    """By that name, as its ranks cannot run a plan that has caps."""
    with pytest.raises(IncompatibleError, match=r"has no SimpleNamespace\._num_stages"):
        cap_in_flight(SimpleNamespace(), 0, 1)


@pytest.mark.parametrize(
    ("codes", "timeout_s", "message"),
    [
        ((SLEEPS, DIES), 300, "rank 1 of a toy ended with exit status 1: Runtime"),
        ((DIES, SLEEPS), 300, "rank 0 of a toy ended with exit status 1: Runtime"),
        ((SLEEPS, SLEEPS), 0.2, "2 ranks of a toy did not end within 0.2 s"),
        (("pass", "raise SystemExit(3)"), 300, "with exit status 3: it said nothing"),
    ],
)
def test_a_rank_that_dies_or_hangs_ends_the_other(
    codes: tuple[str, str],
    timeout_s: float,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which would wait for it for half an hour; its last line says why."""
    monkeypatch.setattr(self_check, "TIMEOUT_S", timeout_s)
    monkeypatch.setattr(
        self_check, "command_of", lambda rank, _: (sys.executable, "-c", codes[rank])
    )
    begun_s = time.monotonic()
    with pytest.raises(ReplayDisagreesError, match=message):
        self_check.real_peaks()
    assert time.monotonic() - begun_s < 200
    below = psutil.Process().children()
    assert not [one for one in below if SLEEPS in one.cmdline()]


def test_a_torch_that_does_not_load_is_one_line(tmp_path: Path) -> None:
    """As one that was built for another driver."""
    fake_torch(tmp_path, "2.99.0", "raise OSError('libcudart.so: not found')")
    done = subprocess.run(
        (sys.executable, "-m", "plimsoll_profiler.ranks.self_check"),
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == ExitCode.FAILED
    error = "the check failed: OSError: libcudart.so: not found"
    assert done.stderr == f"torch 2.99.0: {error}\n"
