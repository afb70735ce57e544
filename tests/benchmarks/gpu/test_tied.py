"""A process that is tied to its parent ends when that one is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[3]
GONE_S = 60.0
PARENT = """
import os, subprocess, sys
words = (sys.executable, "-m", "benchmarks.gpu.tied", str(os.getpid()))
with subprocess.Popen((*words, "tests.benchmarks.gpu.sleeper")) as child:
    pass
"""


def test_a_killed_parent_takes_it_along() -> None:
    """With no time to end it."""
    with subprocess.Popen(
        (sys.executable, "-c", PARENT), cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        assert child.ppid() == parent.pid
        parent.kill()
        child.wait(GONE_S)


def test_without_its_parent_it_does_not_begin() -> None:
    """That one was killed before the kernel was asked."""
    words = (sys.executable, "-m", "benchmarks.gpu.tied", "1", "tests.nothing")
    assert subprocess.run(words, cwd=ROOT, check=False).returncode == 1
