"""Measures, prints a table and writes JSON; the frame of every benchmark.

A benchmark is a module with a function `measure` that yields `Measurement`s. One value
is the median of several runs, with the spread beside it; peers are timed in turn within
the same run, because shared machines drift. `make bench-NAME` runs one and `make bench`
all that this machine can.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "bench"
NUM_CORES = 2
"""That a bar of seconds is stated for."""
PAGE_WIDTH = 120
"""Columns of a table that goes to a file or a pipe."""
LIBRARIES = ("plimsoll-train", "numpy", "torch", "kopf", "kubernetes", "sqlalchemy")


class CannotRunError(Exception):
    """This machine lacks what the benchmark needs; the text says what."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """A bar: the value must be at most, or at least, the bound."""

    at_most: float | None = None
    at_least: float | None = None

    def holds(self, value: float) -> bool:
        """Whether a value clears the bar."""
        if self.at_most is not None and value > self.at_most:
            return False
        return self.at_least is None or value >= self.at_least

    def __str__(self) -> str:
        if self.at_most is not None:
            return f"<= {self.at_most:g}"
        return f">= {self.at_least:g}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """One figure with all its runs, in `unit`."""

    name: str
    runs: tuple[float, ...]
    unit: str
    goal: Goal | None = None

    @property
    def value(self) -> float:
        """The figure to quote."""
        return statistics.median(self.runs)

    @property
    def holds(self) -> bool | None:
        """Whether the goal is met; None without one."""
        return None if self.goal is None else self.goal.holds(self.value)

    def to_json(self) -> dict[str, Any]:
        """One entry of the result file."""
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "goal": None if self.goal is None else str(self.goal),
            "holds": self.holds,
            "spread": {
                "minimum": min(self.runs),
                "maximum": max(self.runs),
                "runs": len(self.runs),
            },
        }


def seconds_of(
    *functions: Callable[[], object], runs: int = 5, warm_up: int = 1
) -> list[tuple[float, ...]]:
    """Time functions in turn, A B A B ..., so that a drift hits all alike.

    Returns:
        For each function the wall seconds of its counted runs.
    """
    times: list[list[float]] = [[] for _ in functions]
    for turn in range(warm_up + runs):
        for function, its_times in zip(functions, times, strict=True):
            started_s = time.perf_counter()
            function()
            taken_s = time.perf_counter() - started_s
            if turn >= warm_up:
                its_times.append(taken_s)
    return [tuple(its_times) for its_times in times]


@contextmanager
def few_cores() -> Iterator[None]:
    """Let processes that are started here have two cores, however many there are."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(cores)[:NUM_CORES])
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def start_python(statement: str) -> None:
    """Start an interpreter that runs one statement."""
    subprocess.run([sys.executable, "-c", statement], check=True)  # noqa: S603 - own


@dataclass(frozen=True, kw_only=True, slots=True)
class Circumstances:
    """Circumstances of a figure besides the code; part of every entry."""

    date: str
    versions: dict[str, str]
    machine: dict[str, str | int]


def circumstances() -> Circumstances:
    """Describe this machine and what is installed."""
    versions = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return Circumstances(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=versions,
        machine={
            "processor": processor(),
            "cores": len(os.sched_getaffinity(0)),
            "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
            "kernel": platform.release(),
        },
    )


def processor() -> str:
    """Name of the processor, from the kernel."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def write(name: str, measurements: Iterable[Measurement]) -> Path:
    """Write the result file of a benchmark and return its path."""
    around = asdict(circumstances())
    entries = [measurement.to_json() | around for measurement in measurements]
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(entries, indent=2) + "\n")
    return path


def table(name: str, measurements: Iterable[Measurement]) -> Table:
    """Draw the figures."""
    drawn = Table(title=f"bench-{name}", title_justify="left", box=None)
    drawn.add_column("FIGURE")
    for heading in ("MEDIAN", "MIN", "MAX", "RUNS", "UNIT", "GOAL", "HOLDS"):
        drawn.add_column(heading, justify="right")
    for m in measurements:
        figures = (f"{x:.4g}" for x in (m.value, min(m.runs), max(m.runs)))
        holds = {True: "yes", False: "NO", None: "-"}[m.holds]
        goal = "-" if m.goal is None else str(m.goal)
        drawn.add_row(m.name, *figures, str(len(m.runs)), m.unit, goal, holds)
    return drawn


def run(name: str, measure: Callable[[], Iterable[Measurement]]) -> int:
    """Run one benchmark; 0 when every goal holds, 3 when it cannot run here."""
    try:
        measurements = list(measure())
    except CannotRunError as error:
        print(f"bench-{name} cannot run here: {error}")
        return 3
    path = write(name, measurements)
    width = None if sys.stdout.isatty() else PAGE_WIDTH
    Console(highlight=False, width=width).print(table(name, measurements))
    print(f"written to {path.relative_to(ROOT)}")
    return 1 if any(measurement.holds is False for measurement in measurements) else 0


def main() -> int:
    """Run all benchmarks that this machine can; 0 when every goal holds."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("*.py"))
    codes = [
        run(name, importlib.import_module(f"benchmarks.{name}").measure)
        for name in names
        if name != "frame"
    ]
    return 1 if 1 in codes else 0


if __name__ == "__main__":
    sys.exit(main())
