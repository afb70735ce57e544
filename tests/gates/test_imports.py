"""Who may import whom: the contracts hold, and each of them bites when broken."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINTER = Path(sys.executable).parent / "lint-imports"
ROOTS = ("planner", "training_job", "profiler_job", "operator", "cli")
PLANTED = [
    ("planner/plimsoll_planner", "import torch", "the planner is pure"),
    ("planner/plimsoll_planner", "import sqlalchemy", "the planner is pure"),
    ("planner/plimsoll_planner", "import plimsoll_cli.output", "imports point down"),
    ("training_job/plimsoll_trainer", "import plimsoll_profiler", "imports point down"),
    ("operator/plimsoll_operator", "import plimsoll_trainer", "the operator starts"),
    ("operator/plimsoll_operator", "import torch", "the operator starts"),
    ("profiler_job/plimsoll_profiler", "import kopf", "trainer and profiler travel"),
    ("planner/plimsoll_planner/records", "import numpy", "records need the standard"),
]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the packages, to plant an import in."""
    folder = tmp_path_factory.mktemp("tree")
    shutil.copy(ROOT / "pyproject.toml", folder)
    for root in ROOTS:
        skipped = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / root, folder / root, ignore=skipped)
    return folder


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the contracts over the packages below a folder."""
    path = ":".join(str(folder / root) for root in ROOTS)
    return subprocess.run(
        [LINTER, "--no-cache"],
        cwd=folder,
        env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_contracts_hold(copy: Path) -> None:
    """The packages as they are import only what they may."""
    done = lint(copy)
    assert done.returncode == 0, done.stdout
    assert "0 broken" in done.stdout


@pytest.mark.parametrize(("package", "statement", "contract"), PLANTED)
def test_a_planted_import_breaks_its_contract(
    package: str, statement: str, contract: str, copy: Path
) -> None:
    """The contract is named, with the file and line that broke it."""
    planted = copy / package / "planted.py"
    planted.write_text(f'"""Planted."""\n\n{statement}\n')
    try:
        done = lint(copy)
    finally:
        planted.unlink()
    assert done.returncode != 0
    broken = [line for line in done.stdout.splitlines() if line.endswith("BROKEN")]
    assert any(line.startswith(contract) for line in broken), done.stdout
    assert "planted" in done.stdout
    assert "l.3" in done.stdout
