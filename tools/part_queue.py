"""Commands that a few workers take from one queue, and what became of each.

In: parts, some of which wait for others. Out: their outcomes, with wall and CPU time.
Called by `gates`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NUM_WORKERS = 3
"""One more than the cores of CI, as some parts wait more than they compute."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One command."""

    name: str
    command: tuple[str, ...]
    after: tuple[str, ...] = ()
    """Names of parts that it waits for, and that must not fail."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """What its environment has on top."""
    is_shown: bool = False
    """Its output is shown also when it passes."""
    may_fail: bool = False
    """Its failure only takes something away, and the output says what."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What became of a part."""

    part: Part
    exit_code: int
    output: str
    wall_s: float
    cpu_s: float
    """Of all its processes (`tools.counted`)."""

    was_run: bool = True
    """False if a part that it needs had failed."""

    @property
    def word(self) -> str:
        """For the summary."""
        if self.exit_code == 0:
            return "ok"
        if not self.was_run:
            return "NOT RUN"
        return "not here" if self.part.may_fail else "FAILED"

    @property
    def is_fault(self) -> bool:
        """Whether the gate fails with it."""
        return self.word in {"FAILED", "NOT RUN"}

    @property
    def num_skipped(self) -> int:
        """Tests that were skipped; their reasons are in the output."""
        found = re.search(r"(\d+) skipped", self.output)
        return int(found[1]) if found else 0

    @property
    def line(self) -> str:
        """For the summary: name, word, wall and CPU time."""
        costs = f"{self.wall_s:7.1f} s {self.cpu_s:7.1f} s of CPU"
        return f"{self.part.name:<22}{self.word:<10}{costs}"


class Queue:
    """The parts that nobody has taken yet."""

    def __init__(self, parts: Sequence[Part]) -> None:
        """Begin with all of them; parts that are not of the gate are not waited for."""
        self._waiting = list(parts)
        self._undone = {part.name for part in parts}
        self._faults: set[str] = set()
        self._changed = threading.Condition()
        self.outcomes: list[Outcome] = []

    def work(self) -> None:
        """Run part after part, until none is left."""
        while (part := self.take()) is not None:
            missing = self._faults.intersection(part.after)
            outcome = not_run(part, missing) if missing else run_part(part)
            with self._changed:
                if outcome.is_fault:
                    self._faults.add(part.name)
                print(outcome.line, flush=True)
                self.outcomes.append(outcome)
                self._undone.discard(part.name)
                self._changed.notify_all()

    def take(self) -> Part | None:
        """Wait for the next part that waits for nothing; None where none is left."""
        with self._changed:
            while self._waiting:
                for part in self._waiting:
                    if self._undone.isdisjoint(part.after):
                        self._waiting.remove(part)
                        return part
                self._changed.wait()
        return None


def not_run(part: Part, missing: Iterable[str]) -> Outcome:
    """Outcome of a part that needs others which failed."""
    text = f"not run, because it needs: {', '.join(sorted(missing))}"
    return Outcome(
        part=part, exit_code=1, output=text, wall_s=0.0, cpu_s=0.0, was_run=False
    )


def run_part(part: Part) -> Outcome:
    """Outcome of one command."""
    started_s = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(  # noqa: S603 - the commands of `gates`
            (sys.executable, "-m", "tools.counted", *part.command),
            cwd=ROOT,
            env=os.environ | part.environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode(errors="replace")
    return Outcome(
        part=part,
        exit_code=process.returncode,
        output=text,
        wall_s=time.monotonic() - started_s,
        cpu_s=used.ru_utime + used.ru_stime,
    )


def run_all(parts: Sequence[Part]) -> list[Outcome]:
    """Run all parts, whichever fail, so that one run tells everything."""
    queue = Queue(parts)
    with ThreadPoolExecutor(NUM_WORKERS) as pool:
        for worker in [pool.submit(queue.work) for _ in range(NUM_WORKERS)]:
            worker.result()
    return queue.outcomes
