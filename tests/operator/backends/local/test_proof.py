"""A proof is shown by running it: the planned count runs, one fewer does not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

pytest.importorskip("torch")

from plimsoll_cli.errors import ExitCode
from tests.support.home_runs import STEPS, HomeRun, wait_until_gone

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_one_device_fewer_runs_out_of_memory(
    own_model: tuple[HomeRun, Path], tmp_path: Path
) -> None:
    """Every mesh of the count below; what the job itself has told stays as it was."""
    model, code = own_model
    run = model.copy(tmp_path)
    words = run.spoken()
    done = subprocess.run(
        [*words, "--prove"], cwd=code, capture_output=True, text=True, check=False
    )
    assert done.returncode == ExitCode.DONE, done.stderr
    [mesh] = [line for line in done.stderr.splitlines() if "stage x" in line]
    assert "out of device memory in " in mesh
    assert sorted(run.losses()) == list(range(1, STEPS + 1))
    assert wait_until_gone(run) == {}
