"""Skips: each names a command, and in CI only one for want of a GPU is no failure."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.sample_suites import run_sample

SAMPLE = """\
import pytest

@pytest.mark.gpu
@pytest.mark.skipif(True, reason="needs a GPU")
def test_for_a_gpu():
    pass

@pytest.mark.skipif({other}, reason="needs promtool: apt-get install prometheus")
def test_for_promtool():
    pass
"""
WHOLE = "import pytest\npytest.importorskip('no_such_module')\n"


def run(folder: Path, text: str, in_ci: str) -> subprocess.CompletedProcess[str]:
    """Run a file of tests under the rules of the suite."""
    sample = folder / "gpu" / "test_sample.py"  # that name makes no test one for a GPU
    sample.parent.mkdir()
    return run_sample(sample, text, "tests.conftest", CI=in_ci)


@pytest.mark.parametrize("other", [True, False])
def test_in_ci_a_test_for_a_gpu_alone_may_be_skipped(
    other: bool, tmp_path: Path
) -> None:
    """It is counted apart."""
    done = run(tmp_path, SAMPLE.format(other=other), "true")
    assert "\n1 need a GPU\n" in done.stdout
    assert done.returncode == int(other)
    failure = "in CI a skip is a failure: Skipped: needs promtool"
    assert (failure in done.stdout) is other


def test_a_file_without_its_library_names_a_command(tmp_path: Path) -> None:
    """Whatever `importorskip` says."""
    done = run(tmp_path, WHOLE, "")
    assert "'no_such_module': run `make test`, which adds it" in done.stdout
