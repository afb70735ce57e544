"""Runs the gates side by side and prints one summary. Called by make and by CI.

    lint    format, ruff, mypy, pyright, imports
    check   lint, and the quick unit tests: the inner loop
    test    lint, all tests but the long ones, and the lab, which is prepared first
    nodes   the long ones: whole plans on real nodes

Two lines of work share the two cores: lint and unit tests on one, the lab and the tests
that wait for it on the other. What a part prints is shown when it fails, and at the end
for tests, whose skips and coverage people want to read.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
IN_CI = os.environ.get("CI", "").lower() in {"1", "true"}
IN_LAB = "control_plane or nodes"
LONG = "long"
"""Whole plans on real nodes, and a crash at each effect: too long for each change."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One command."""

    name: str
    command: tuple[str, ...]
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

    @property
    def word(self) -> str:
        """For the summary."""
        if self.exit_code == 0:
            return "ok"
        return "not here" if self.part.may_fail else "FAILED"

    @property
    def num_skipped(self) -> int:
        """Tests that were skipped; their reasons are in the output."""
        found = re.search(r"(\d+) skipped", self.output)
        return int(found[1]) if found else 0


def tool(name: str) -> str:
    """Return the path of a tool of this environment."""
    return str(BIN / name)


LINT = (
    Part(name="format", command=(tool("ruff"), "format", "--check", ".")),
    Part(name="ruff", command=(tool("ruff"), "check", ".")),
    Part(name="imports", command=(tool("lint-imports"),)),
    Part(name="mypy", command=(tool("mypy"),)),
    Part(name="pyright", command=(tool("pyright"), "--pythonpath", sys.executable)),
)


def pytest(name: str, *arguments: str) -> Part:
    """Return a part that runs some of the tests."""
    command = (sys.executable, "-m", "pytest", "-q", *arguments)
    return Part(name=name, command=command, is_shown=True)


UNIT_TESTS = pytest(
    "unit tests", "-m", f"not ({IN_LAB} or wheel)", "--cov", "--cov-report=term"
)
QUICK_TESTS = pytest("unit tests", "-m", f"not ({IN_LAB} or wheel or slow)")
WHEEL_TESTS = pytest("wheel", "-m", "wheel")
LAB_TESTS = pytest("lab tests", "-m", f"({IN_LAB}) and not {LONG}")
LONG_TESTS = pytest("long tests", "-m", LONG)
LAB = Part(
    name="lab",
    command=(sys.executable, "-m", "tests.lab", "prepare"),
    is_shown=True,
    may_fail=not IN_CI,
)
LINES = {
    "lint": (LINT,),
    "check": (LINT, (QUICK_TESTS,)),
    "test": ((*LINT, UNIT_TESTS), (LAB, LAB_TESTS, WHEEL_TESTS)),
    "nodes": ((LAB, LONG_TESTS),),
}
"""For each gate the lines of work; lines run side by side, parts of a line in turn."""

printing = threading.Lock()


def run_part(part: Part) -> Outcome:
    """Run one command and say that it is done."""
    started_s = time.monotonic()
    done = subprocess.run(  # noqa: S603 - the commands above
        part.command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    outcome = Outcome(
        part=part,
        exit_code=done.returncode,
        output=done.stdout,
        wall_s=time.monotonic() - started_s,
    )
    with printing:
        print(f"{part.name:<12}{outcome.word:<10}{outcome.wall_s:6.1f} s", flush=True)
    return outcome


def run_line(parts: Sequence[Part]) -> list[Outcome]:
    """Run parts in turn, all of them, so that one run tells everything."""
    return [run_part(part) for part in parts]


def show(outcomes: Iterable[Outcome]) -> None:
    """Print what people want to read: failures last, where they are seen."""
    wanted = [o for o in outcomes if o.exit_code or o.part.is_shown]
    for outcome in sorted(wanted, key=lambda outcome: outcome.exit_code != 0):
        print(f"\n== {outcome.part.name} ==\n{outcome.output.rstrip()}")


def main(gate: str) -> int:
    """Run one gate; 0 when nothing failed."""
    started_s = time.monotonic()
    with ThreadPoolExecutor() as pool:
        lines = list(pool.map(run_line, LINES[gate]))
    outcomes = [outcome for line in lines for outcome in line]
    show(outcomes)
    failed = [o.part.name for o in outcomes if o.word == "FAILED"]
    print(f"\n== make {gate}: {time.monotonic() - started_s:.0f} s ==")
    for outcome in outcomes:
        skipped = f"  {outcome.num_skipped} skipped" if outcome.num_skipped else ""
        line = f"{outcome.part.name:<12}{outcome.word:<10}{outcome.wall_s:6.1f} s"
        print(line + skipped)
    if failed:
        print("FAILED: " + ", ".join(failed))
    elif any(outcome.num_skipped or outcome.exit_code for outcome in outcomes):
        print("passed, but not everything ran: the commands that enable it are above")
    else:
        print("all gates passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
