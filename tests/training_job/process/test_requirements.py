"""A Python whose torch or numpy is too old is refused, in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from plimsoll_planner.exit_codes import ExitCode
from plimsoll_trainer.errors import IncompatibleError
from plimsoll_trainer.process import requirements
from plimsoll_trainer.process.requirements import require_supported
from tests.support.fake_torch import fake_torch


def having(**versions: str) -> Callable[[str], str | None]:
    """Installed packages by their versions, newest ones if nothing is given."""
    newest = {"torch": "2.15.0+cu132", "numpy": "2.5.2"}
    return (newest | versions).get


@pytest.mark.parametrize(
    "versions",
    [
        {},
        {"torch": "2.11.0+cu130", "numpy": "2.1.3"},
        {"torch": "2.11.0a0+eb65b36914.nv26.02"},
        {"torch": "3.0"},
    ],
)
def test_what_is_supported_passes(versions: dict[str, str]) -> None:
    """From the oldest on, whatever stands behind the numbers."""
    require_supported(having(**versions))


@pytest.mark.parametrize(
    ("versions", "message"),
    [
        ({"torch": "2.10.0+cu128"}, "torch 2.11 or newer, and {} has torch 2.10.0+cu1"),
        ({"torch": "2.9"}, "torch 2.11 or newer, and {} has torch 2.9: profile and"),
        ({"torch": ""}, "torch 2.11 or newer, and {} has no torch: profile and train"),
        ({"numpy": "1.26.4"}, "numpy 2.1 or newer, and {} has numpy 1.26.4: profile"),
    ],
)
def test_what_is_too_old_is_refused(versions: dict[str, str], message: str) -> None:
    """The version found, the one needed, and the exit code of what no retry mends."""
    with pytest.raises(IncompatibleError) as caught:
        require_supported(having(**versions))
    assert f"Plimsoll needs {message.format(sys.executable)}" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code is ExitCode.INCOMPATIBLE


COMMANDS = {
    "profiler": "plimsoll_profiler profile --entrypoint any:thing --device emulated "
    "--source traced --out profile.json",
    "self-check": "plimsoll_profiler.ranks.self_check",
    "trainer": "plimsoll_trainer --plan plan.json --entrypoint any:thing --steps 1",
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_processes_refuse_an_old_torch_before_they_load_it(
    command: str, tmp_path: Path
) -> None:
    """The one of the profiling pod, and a rank: one line, and exit code 88."""
    fake_torch(tmp_path, "2.10.0")
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", *command.split()],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == ExitCode.INCOMPATIBLE
    (line,) = done.stderr.splitlines()
    assert f"Plimsoll needs torch 2.11 or newer, and {sys.executable} has" in line


def test_what_runs_here_is_supported() -> None:
    """The versions are those of the packages that are installed, if torch is."""
    pytest.importorskip("torch")
    require_supported()
    assert set(requirements.OLDEST) == {"torch", "numpy"}
