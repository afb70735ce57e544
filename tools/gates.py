"""Runs the gates side by side and prints one summary. Called by make and by CI.

    lint    format, ruff, mypy, pyright, imports
    check   lint, and the quick unit tests: the inner loop
    test    lint, all tests but the long ones, and the lab, which is prepared first
    all     test with far more random instances, the long ones, every Python, the
            oldest torch: nightly
    nodes   the long ones alone: whole plans on real nodes

What a part prints is shown when it fails, and at the end for tests, whose skips people
want to read. The summary says what each part cost, and which tests were the slowest.
"""

from __future__ import annotations

import re
import signal
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from tools.bootstrap import locked, oldest
from tools.ci import IN_CI
from tools.part_queue import Outcome, Part, run_all

BIN = Path(sys.executable).parent
WHEEL = Path("build", "wheel")
"""An environment that holds what the wheel installs, on top of this one's libraries."""
IN_LAB = "control_plane or nodes"
NIGHTLY_UNIT = f"not ({IN_LAB} or wheel)"
UNIT = f"not ({IN_LAB} or wheel or nightly)"
IN_LAB_FOLDERS = ("tests/lab", "tests/charts", "tests/examples")
LONG = "long"
"""Whole plans on real nodes, and a crash at each effect: too long for each change."""
DRAWS = "PLIMSOLL_DRAWS"
"""How hard tests search: `tests/support/drawing.py`."""
NUM_SLOWEST = 20
SLOWEST = re.compile(r"^ *([0-9.]+)s (?:call|setup|teardown) +(.*)$", re.MULTILINE)
"""Lines of pytest's `--durations`."""
AROUND_SLOWEST = re.compile(
    r"^(=+ slowest \d+ durations =+|\(\d+ durations < [0-9.]+s hidden.*\)|)\n",
    re.MULTILINE,
)
"""Lines around those, and empty ones."""


def tool(name: str) -> str:
    """Path of a tool of this environment."""
    return str(BIN / name)


LINT = (
    Part(name="format", command=(tool("ruff"), "format", "--check", ".")),
    Part(name="ruff", command=(tool("ruff"), "check", ".")),
    Part(name="imports", command=(tool("lint-imports"),)),
    Part(name="mypy", command=(tool("mypy"),)),
    Part(name="pyright", command=(tool("pyright"), "--pythonpath", sys.executable)),
)


def pytest(name: str, *arguments: str, python: str = sys.executable) -> Part:
    """Part that runs some of the tests."""
    durations = (f"--durations={NUM_SLOWEST}", "--durations-min=1")
    command = (python, "-m", "pytest", "-q", *durations, *arguments)
    return Part(name=name, command=command, environment={DRAWS: "ci"}, is_shown=True)


def units(name: str, *rooms: str, without: str = "") -> Part:
    """Part that runs the unit tests of some rooms, on the installed wheel."""
    folders = [f"tests/{room}" for room in rooms]
    left_out = [f"--ignore=tests/{without}"] if without else []
    python = str(WHEEL / "bin" / "python")
    part = pytest(name, "-m", UNIT, *left_out, *folders, python=python)
    return replace(part, after=("installed wheel",))


INSTALLED = Part(
    name="installed wheel", command=(sys.executable, "-m", "tools.installed_wheel")
)
HOME = "operator/backends/local"
"""Whole runs, which wait for their processes more than they compute."""
# The longest first, else one of them runs alone at the end.
UNITS = (
    units("tests of home", HOME),
    units("tests of profiler", "profiler_job", "examples", "charts"),
    units("tests of trainer", "training_job"),
    units("tests of planner", "planner", "cli"),
    units("tests of operator", "operator", without=HOME),
)
BUILD = WHEEL.parent
COVERED_BY = "coverage."
"""Names of the data of each part begin so."""


def searching(part: Part) -> Part:
    """Unit tests that draw far more instances, and say what they cover."""
    data = str(BUILD / f"{COVERED_BY}{part.name.replace(' ', '-')}")
    words = (NIGHTLY_UNIT if word == UNIT else word for word in part.command)
    return replace(
        part,
        command=(*words, "--cov", "--cov-report="),
        environment={DRAWS: "nightly", "COVERAGE_FILE": data},
    )


COVERED = Part(
    name="coverage",
    command=(sys.executable, "-m", "tools.covered"),
    after=tuple(part.name for part in UNITS),
    is_shown=True,
)
TREE_TESTS = pytest(
    "tests of the tree",
    *("-m", f"not ({IN_LAB} or wheel)"),
    *("tests/gates", "tests/lab", "tests/benchmarks"),
)


def quick(name: str, *rooms: str) -> Part:
    """Part that runs the quick unit tests of some rooms, on the checkout."""
    folders = [f"tests/{room}" for room in rooms]
    part = pytest(name, "-m", f"not ({IN_LAB} or wheel or slow)", *folders)
    return replace(part, environment={DRAWS: "quick"})


QUICK_TESTS = (
    quick(
        "quick: trainer", "training_job", "profiler_job", "gates", "lab", "benchmarks"
    ),
    quick("quick: operator", "operator", "planner", "cli", "examples", "charts"),
)
WHEEL_TESTS = pytest("wheel", "-m", "wheel and not nightly", "tests/gates")
NIGHTLY_WHEEL_TESTS = pytest("every Python", "-m", "wheel and nightly", "tests/gates")
LAB = Part(
    name="lab",
    command=(sys.executable, "-m", "tests.lab", "prepare"),
    is_shown=True,
    may_fail=not IN_CI,
)
OLDEST_TORCH = Part(
    name="oldest torch",
    command=(
        *("make", "--no-print-directory", "test-torch"),
        *(f"TORCH={oldest('torch')}", f"PYTHON={sys.executable}"),
    ),
    environment={DRAWS: "ci"},
    is_shown=True,
)
LAB_TESTS = replace(
    pytest("lab tests", "-m", f"({IN_LAB}) and not {LONG}", *IN_LAB_FOLDERS),
    after=("lab",),
)
NIGHTLY_LAB_TESTS = replace(LAB_TESTS, environment={DRAWS: "nightly"})
LONG_TESTS = replace(pytest("long tests", "-m", LONG, "tests/lab"), after=("lab",))
REST = (WHEEL_TESTS, TREE_TESTS, *reversed(LINT))
GATES: dict[str, tuple[Part, ...]] = {
    "lint": LINT,
    "check": (*QUICK_TESTS, *reversed(LINT)),
    "test": (INSTALLED, LAB, LAB_TESTS, *UNITS, *REST),
    "all": (
        *(INSTALLED, LAB, LONG_TESTS, NIGHTLY_LAB_TESTS, *map(searching, UNITS)),
        *(OLDEST_TORCH, COVERED, NIGHTLY_WHEEL_TESTS, *REST),
    ),
    "nodes": (LAB, LONG_TESTS),
}
"""The parts of each gate; what takes long or is waited for comes first."""


TARGETS = {"all": "test-all", "nodes": "test-nodes"}
"""Of make, where they are not named as their gate."""


def show(outcomes: Iterable[Outcome]) -> None:
    """Print what people want to read: failures last, where they are seen."""
    wanted = [o for o in outcomes if o.exit_code or o.part.is_shown]
    for outcome in sorted(wanted, key=lambda outcome: outcome.exit_code != 0):
        text = outcome.output if outcome.exit_code else without_slowest(outcome.output)
        print(f"\n== {outcome.part.name} ==\n{text.strip()}")


def without_slowest(output: str) -> str:
    """Output of a part without its slowest tests, which stand in the summary."""
    return AROUND_SLOWEST.sub("", SLOWEST.sub("", output))


def slowest_tests(outcomes: Iterable[Outcome]) -> list[tuple[float, str]]:
    """Slowest tests of all parts, in seconds, with what they set up."""
    found = [
        (float(seconds), name)
        for outcome in outcomes
        for seconds, name in SLOWEST.findall(outcome.output)
    ]
    return sorted(found, reverse=True)[:NUM_SLOWEST]


def main(gate: str) -> int:
    """Run one gate; 0 when nothing failed."""
    command = f"make {TARGETS.get(gate, gate)}"
    if INSTALLED not in GATES[gate]:
        return run(gate, command)
    BUILD.mkdir(exist_ok=True)
    with locked(BUILD / "lock", command):
        return run(gate, command)


def run(gate: str, command: str) -> int:
    """Run the parts of a gate, and print what became of them."""
    started_s = time.monotonic()
    queue = run_all(GATES[gate])
    outcomes = queue.outcomes
    show(outcome for outcome in outcomes if outcome.word != "stopped")
    if slowest := slowest_tests(outcomes):
        print("\n== slowest tests ==")
        print(*(f"{seconds:7.1f} s  {name}" for seconds, name in slowest), sep="\n")
    cpu_s = sum(outcome.cpu_s for outcome in outcomes)
    wall_s = time.monotonic() - started_s
    print(f"\n== {command}: {wall_s:.0f} s, {cpu_s:.0f} s of CPU ==")
    for outcome in outcomes:
        skipped = f"  {outcome.num_skipped} skipped" if outcome.num_skipped else ""
        print(outcome.line + skipped)
    failed = [o.part.name for o in outcomes if o.is_fault]
    if failed:
        print("FAILED: " + ", ".join(failed))
    if queue.stopped_by:
        num_stopped = sum(outcome.word == "stopped" for outcome in outcomes)
        num_left = len(GATES[gate]) - len(outcomes)
        print(f"interrupted: {num_stopped} parts stopped, {num_left} not begun")
        return 128 + queue.stopped_by
    if not failed:
        print(verdict(outcomes))
    return 1 if failed else 0


def verdict(outcomes: Iterable[Outcome]) -> str:
    """Last line where nothing failed."""
    if any(outcome.num_skipped or outcome.exit_code for outcome in outcomes):
        return "passed, but not everything ran: the commands that enable it are above"
    if num_for_gpu := sum(outcome.num_for_gpu for outcome in outcomes):
        return f"all gates passed; {num_for_gpu} tests need a GPU"
    return "all gates passed"


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1]))
    except KeyboardInterrupt:  # while it waits for another gate
        sys.exit(128 + signal.SIGINT)
