"""make, run by tests as a person with a clean environment would run it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def clean_environment(**more: str) -> dict[str, str]:
    """Environment without variables that the Makefile reads, or an outer make sets.

    Args:
        more: on top of it.
    """
    read = set(re.findall(r"\$\(([A-Z_]+)\)", (ROOT / "Makefile").read_text()))
    handed_on = re.compile(r"(GNU)?MAKE.*|MFLAGS")
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in read and not handed_on.fullmatch(name)
    }
    return kept | more


def make(
    *arguments: str, cwd: Path = ROOT, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run make in the checkout, or in another folder."""
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=cwd,
        env=clean_environment(**environment),
        capture_output=True,
        text=True,
        check=False,
    )
