"""Rehearses a rank of a plan, in a process that is the device and ends with this one.

In: a plan and its profile. Out: a `Rehearsal`. Called by `measuring`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.gpu.models import ENTRYPOINT
from plimsoll_planner.errors import PlimsollError
from plimsoll_planner.records.document import from_text, save
from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.rehearsal import Rehearsal

TIMEOUT_S = 600.0


class RehearsalError(PlimsollError):
    """A rehearsal ended without a verdict; the text is its last line."""


def rehearse(plan: HybridPlan, planned: ModelProfile, rank: int) -> Rehearsal:
    """Rehearse a rank.

    Raises:
        RehearsalError: it ended without a verdict.
        InvalidInputError: the verdict cannot be read.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = Path(folder) / "plan.json", Path(folder) / "profile.json"
        save(paths[0], plan)
        save(paths[1], planned)
        try:
            done = subprocess.run(  # noqa: S603 - our own modules
                (
                    *(sys.executable, "-m", "benchmarks.gpu.tied", str(os.getpid())),
                    *("plimsoll_profiler", "rehearse"),
                    *("--plan", paths[0], "--profile", paths[1]),
                    *("--entrypoint", ENTRYPOINT, "--rank", str(rank)),
                ),
                capture_output=True,
                text=True,
                check=False,
                timeout=TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            raise RehearsalError(f"no end after {TIMEOUT_S:g} s") from None
    answer = done.stdout.splitlines()
    if done.returncode or not answer:
        silent = f"it printed nothing, exit status {done.returncode}"
        raise RehearsalError((done.stderr.strip().splitlines() or [silent])[-1])
    return from_text(answer[-1], Rehearsal)
