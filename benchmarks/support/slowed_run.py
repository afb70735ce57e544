"""A run of two ranks, each on a core of its own, one of which gets a busy neighbour.

In: a manifest, the step from which on the neighbour is there. Out: seconds of the steps
and the revisions. Called by `benchmarks.online`. The neighbour computes on the core of
rank 1, so that it has half of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.frame import ROOT

SLOWED = 1
"""The rank with the neighbour."""
POLL_S = 0.02
STARTED_S = 120.0
"""For the ranks to start, profile and replay included."""
BUSY = "while True: pass"


@dataclass(frozen=True, kw_only=True, slots=True)
class SlowedRun:
    """Result of a run."""

    step_s: tuple[float, ...]
    """Of each step, from the first on."""
    slowed_from: int
    """Steps that were finished when the neighbour came."""
    revised_after: tuple[int, ...]
    """Steps that were finished at each revision."""
    attempts: int


def slowed_run(manifest: Path, home: Path, options: list[str], step: int) -> SlowedRun:
    """Run a manifest; after a step, the neighbour comes and stays."""
    words = [sys.executable, "-m", "plimsoll_cli", "run", str(manifest)]
    words += ["--home", str(home), *options, "--output", "json"]
    known = set(home.glob("plans/*"))
    command = subprocess.Popen(  # noqa: S603 - our own modules
        words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        report = started_report(home, known, command)
        for rank, process in ranks_of(report.parent).items():
            pin(process, rank)
        while command.poll() is None and len(lines_of(report, "step")) < step:
            time.sleep(POLL_S)
        slowed_from = len(lines_of(report, "step"))
        with busy_neighbour():
            out, err = command.communicate()
    finally:
        command.kill()
    if command.returncode:
        raise RuntimeError(f"the run ended with {command.returncode}: {err[-2000:]}")
    logs = sorted(home.glob(f"plans/{report.parts[-4]}/logs/train-*/report-0.jsonl"))
    return SlowedRun(
        step_s=tuple(line["step_s"] for line in lines_of(logs[-1], "step")),
        slowed_from=slowed_from,
        revised_after=tuple(int(one["step"]) for one in lines_of(logs[-1], "revised")),
        attempts=json.loads(out)["attempt"],
    )


def started_report(
    home: Path, known: set[Path], command: subprocess.Popen[str]
) -> Path:
    """Report of rank 0 of a new plan, once it has finished a step."""
    end_s = time.monotonic() + STARTED_S
    while command.poll() is None and time.monotonic() < end_s:
        for path in home.glob("plans/*/children/train-1/report-0.jsonl"):
            if path.parents[2] not in known and lines_of(path, "step"):
                return path
        time.sleep(POLL_S)
    raise RuntimeError(f"no rank has started: {command.communicate()}")


def lines_of(path: Path, event: str) -> list[dict[str, float]]:
    """Lines of one kind in a report."""
    if not path.exists():
        return []
    whole = path.read_text().rpartition("\n")[0]
    lines = [json.loads(line) for line in whole.splitlines()]
    return [line for line in lines if line["event"] == event]


def ranks_of(folder: Path) -> dict[int, psutil.Process]:
    """Training processes of a task."""
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        try:
            words, variables = process.cmdline(), process.environ()
        except (psutil.Error, OSError):
            continue
        is_ours = any(word.startswith(str(folder)) for word in words)
        if is_ours and "plimsoll_trainer" in words and "RANK" in variables:
            found[int(variables["RANK"])] = process
    return found


def pin(process: psutil.Process, core: int) -> None:
    """Let all threads of a process run on one core."""
    for thread in process.threads():
        os.sched_setaffinity(thread.id, {core})


@contextmanager
def busy_neighbour() -> Iterator[None]:
    """Compute on the core of the rank that is slowed."""
    busy = subprocess.Popen([sys.executable, "-c", BUSY])  # noqa: S603 - as above
    os.sched_setaffinity(busy.pid, {SLOWED})
    try:
        yield
    finally:
        busy.kill()
        busy.wait()
