"""A file of tests as a suite of its own, under one of our plugins of pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_sample(
    sample: Path, text: str, plugin: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Write a file of tests and run it, with some variables in the environment."""
    sample.write_text(text)
    plugins = ("-p", plugin, "-p", "no:cacheprovider")
    project = ("-c", str(ROOT / "pyproject.toml"))
    return subprocess.run(
        (sys.executable, "-m", "pytest", "-q", "-s", *plugins, *project, str(sample)),
        cwd=sample.parent,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
