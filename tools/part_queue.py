"""Commands that a few workers take from one queue, and what became of each.

In: parts, some of which wait for others. Out: their outcomes, with wall and CPU time.
Called by `gates`. Ctrl-C and SIGTERM end what runs, and nothing else is started.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
NUM_WORKERS = 3
"""One more than the cores of CI, as some parts wait more than they compute."""
NOT_HERE = 69
"""Exit code, of sysexits.h: what it needs is not on this machine."""
NOT_INHERITED = re.compile(
    r"PYTEST_.*|PYTHON(PATH|OPTIMIZE)|PLIMSOLL_(DRAWS|KILLS|FUZZ_SEED)|MAKE.*|MFLAGS"
)
"""Variables of the caller by which other tests would run, or fewer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One command."""

    name: str
    command: tuple[str, ...]
    after: tuple[str, ...] = ()
    """Names of parts that it waits for, and that must not fail."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that its environment has on top."""
    is_shown: bool = False
    """Its output is shown also when it passes."""
    may_fail: bool = False
    """If it ends with `NOT_HERE`, that only takes something away, and it says what."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """Result of a part."""

    part: Part
    exit_code: int
    output: str
    wall_s: float
    cpu_s: float
    """Of all its processes (`tools.counted`)."""

    was_run: bool = True
    """False if a part that it needs had failed."""
    was_stopped: bool = False
    """True if a signal ended the gate before it."""

    @property
    def word(self) -> str:
        """For the summary."""
        if self.exit_code == 0:
            return "ok"
        if self.was_stopped:
            return "stopped"
        if not self.was_run:
            return "NOT RUN"
        is_here = self.exit_code != NOT_HERE or not self.part.may_fail
        return "FAILED" if is_here else "not here"

    @property
    def is_fault(self) -> bool:
        """Whether the gate fails with it."""
        return self.word in {"FAILED", "NOT RUN"}

    @property
    def num_skipped(self) -> int:
        """Tests that were skipped, each with its reason, but not for want of a GPU."""
        found = re.search(r"(\d+) skipped", self.output)
        return int(found[1]) - self.num_for_gpu if found else 0

    @property
    def num_for_gpu(self) -> int:
        """Tests that need a GPU, which few machines have (`tests/conftest.py`)."""
        found = re.search(r"^(\d+) need a GPU$", self.output, re.MULTILINE)
        return int(found[1]) if found else 0

    @property
    def line(self) -> str:
        """For the summary: name, word, wall and CPU time."""
        costs = f"{self.wall_s:7.1f} s {self.cpu_s:7.1f} s of CPU"
        return f"{self.part.name:<22}{self.word:<10}{costs}"


class Queue:
    """The parts that nobody has taken yet, those that run, and what became of each."""

    def __init__(self, parts: Sequence[Part]) -> None:
        """Begin with all of them; parts that are not of the gate are not waited for."""
        self._waiting = list(parts)
        self._undone = {part.name for part in parts}
        self._faults: set[str] = set()
        self._running: set[int] = set()
        self._changed = threading.Condition()
        self.outcomes: list[Outcome] = []
        self.stopped_by = 0
        """Number of the signal that ended it early; 0 if none did."""

    def work(self) -> None:
        """Run part after part, until none is left."""
        while (part := self.take()) is not None:
            missing = self._faults.intersection(part.after)
            try:
                outcome = not_run(part, missing) if missing else self.run(part)
            except Exception as error:  # noqa: BLE001 - others wait for its outcome
                outcome = failed_to_run(part, error)
            with self._changed:
                if self.stopped_by:
                    outcome = replace(outcome, was_stopped=True)
                if outcome.is_fault:
                    self._faults.add(part.name)
                self.outcomes.append(outcome)
                self._undone.discard(part.name)
                self._changed.notify_all()
                print(outcome.line, flush=True)

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

    def run(self, part: Part) -> Outcome:
        """Outcome of one command."""
        started_s = time.monotonic()
        with tempfile.TemporaryFile() as output:
            with self._changed:  # so that a signal finds each process, or stops it here
                if self.stopped_by:
                    return not_run(part, ())
                process = subprocess.Popen(  # noqa: S603 - the commands of `gates`
                    (sys.executable, "-m", "tools.counted", *part.command),
                    cwd=ROOT,
                    env=environment_of(part),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
                self._running.add(process.pid)
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            with self._changed:  # its number may be another's as soon as it is let go
                self._running.discard(process.pid)
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

    def stop(self, number: int, _frame: FrameType | None) -> None:
        """Handle a signal: start nothing else, and end what runs, at once if again."""
        with self._changed:
            self.stopped_by = number
            self._waiting.clear()
            for process in self._running:
                os.kill(process, signal.SIGTERM)
            self._changed.notify_all()


def environment_of(part: Part) -> dict[str, str]:
    """Environment of a part: nothing that makes it run other tests, or fewer."""
    kept = {n: v for n, v in os.environ.items() if not NOT_INHERITED.fullmatch(n)}
    return kept | dict(part.environment)


def not_run(part: Part, missing: Iterable[str]) -> Outcome:
    """Outcome of a part that needs others which failed."""
    text = f"not run, because it needs: {', '.join(sorted(missing))}"
    return Outcome(
        part=part, exit_code=1, output=text, wall_s=0.0, cpu_s=0.0, was_run=False
    )


def failed_to_run(part: Part, error: Exception) -> Outcome:
    """Outcome of a part that could not be started, or not be waited for."""
    text = f"{type(error).__name__}: {error}"
    return Outcome(part=part, exit_code=1, output=text, wall_s=0.0, cpu_s=0.0)


def run_all(parts: Sequence[Part]) -> Queue:
    """Run all parts, whichever fail, so that one run tells everything.

    Returns:
        The queue at its end, or as a signal left it.
    """
    queue = Queue(parts)
    before = {n: signal.signal(n, queue.stop) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        with ThreadPoolExecutor(NUM_WORKERS) as pool:
            for worker in [pool.submit(queue.work) for _ in range(NUM_WORKERS)]:
                worker.result()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return queue
