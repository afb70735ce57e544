"""Parts of a gate as processes: signals, errors, what they inherit and leave behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tools.bootstrap import locked
from tools.part_queue import Part, environment_of, run_all

ROOT = Path(__file__).parents[2]
LEAVES = "import subprocess; subprocess.Popen(['sleep', '300']); print('done')"


def test_an_error_of_a_worker_fails_its_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No process, no file: the text is shown, and what waits for it does not hang."""

    def refuse() -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    first = Part(name="first", command=("true",), may_fail=True)
    second = replace(first, name="second", after=("first",))
    outcomes = run_all((first, second)).outcomes
    assert [outcome.word for outcome in outcomes] == ["FAILED", "NOT RUN"]
    error = "BlockingIOError: [Errno 11] Resource temporarily unavailable"
    assert outcomes[0].output == error


INTERRUPTED = """\
import sys
from tools import gates
from tools.part_queue import Part

stays = "import os, sys, time; print(os.getpid(), file=open(sys.argv[1], 'a')); {}"
command = (sys.executable, "-c", stays.format(sys.argv[2]), sys.argv[1])
later = tuple(Part(name=f"later {i}", command=("true",)) for i in range(5))
gates.GATES["sample"] = (
    Part(name="good", command=("true",)),
    *(Part(name=name, command=command) for name in ("one", "two", "three")),
    *later,
)
sys.exit(gates.main("sample"))
"""
SLEEPS = "time.sleep(300)"
LEAVES_DEAF = (
    "import subprocess; deaf = 'import signal, time; "
    "[signal.signal(n, signal.SIG_IGN) for n in (2, 15)]; time.sleep(300)'; "
    "subprocess.Popen([sys.executable, '-c', deaf], start_new_session=True); "
    "time.sleep(300)"
)


@pytest.mark.parametrize(
    ("number", "code", "does", "times"),
    [
        (signal.SIGINT, 130, SLEEPS, 1),
        (signal.SIGTERM, 143, SLEEPS, 1),
        (signal.SIGINT, 130, LEAVES_DEAF, 2),
        (signal.SIGKILL, -9, SLEEPS, 1),
    ],
    ids=["Ctrl-C", "SIGTERM", "Ctrl-C twice", "killed"],
)
def test_a_signal_ends_the_gate_and_all_its_processes(
    number: signal.Signals, code: int, does: str, times: int, tmp_path: Path
) -> None:
    """Nothing else is started, and the summary says what was; unless it is killed.

    What ignores the first Ctrl-C, in a session of its own, is killed by the second.
    """
    started = tmp_path / "started"
    with subprocess.Popen(
        (sys.executable, "-c", INTERRUPTED, str(started), does),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as gate:
        while not started.exists() or started.read_text().count("\n") < 3:
            time.sleep(0.05)
        while len(below := psutil.Process(gate.pid).children(recursive=True)) < (
            9 if does is LEAVES_DEAF else 6
        ):
            time.sleep(0.05)
        for _ in range(times):
            gate.send_signal(number)
            time.sleep(0.5)
        output, _ = gate.communicate(timeout=100)
    _, alive = psutil.wait_procs(below, timeout=60)
    for process in alive:
        process.kill()
    assert alive == []
    assert gate.returncode == code
    assert "Traceback" not in output
    if number is not signal.SIGKILL:
        lines = output.splitlines()
        assert lines[-1] == "interrupted: 3 parts stopped, 5 not begun"
        words = {line.split()[0]: line.split()[1] for line in lines[-5:-1]}
        assert words == {"good": "ok"} | dict.fromkeys(
            ("one", "two", "three"), "stopped"
        )


@pytest.mark.parametrize(("in_ci", "code"), [(False, 0), (True, 1)])
def test_what_a_part_leaves_behind_is_named(
    in_ci: bool, code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """In CI it is a fault: it takes the patience for it, and memory of what follows."""
    script = (
        "import sys; from tools import counted; counted.PATIENCE_S = 0.2; "
        f"counted.IN_CI = {in_ci}; sys.exit(counted.main(sys.argv[1:]))"
    )
    words = (sys.executable, "-c", script, sys.executable, "-c", LEAVES)
    done = subprocess.run(words, cwd=ROOT, check=False)
    printed = capfd.readouterr().out
    found = re.search(r"left behind, and still there 0.2 s later: (\d+), (.*)", printed)
    assert found is not None, printed
    psutil.Process(int(found[1])).kill()
    assert found[2] == "sleep 300"
    assert done.returncode == code


def test_variables_of_the_caller_choose_no_tests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor where modules are found; a part says itself how hard its tests search."""
    for name in (
        *("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTHONPATH", "PYTHONOPTIMIZE"),
        *("PLIMSOLL_DRAWS", "PLIMSOLL_KILLS", "MAKEFLAGS", "MFLAGS", "MAKELEVEL"),
    ):
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv("CI", "true")
    found = environment_of(Part(name="one", command=(), environment={"A": "1"}))
    changed = set(os.environ.keys() ^ found.keys())
    assert {"PYTEST_ADDOPTS", "PYTHONPATH", "MFLAGS", "PLIMSOLL_DRAWS"} <= changed
    assert {name for name in changed if "PATH" in name} == {"PYTHONPATH"}
    assert (found["A"], found["CI"]) == ("1", "true")
    assert not {"PYTEST_PLUGINS", "PYTHONOPTIMIZE", "PLIMSOLL_KILLS"} & found.keys()


def test_gates_that_use_one_folder_take_turns(tmp_path: Path) -> None:
    """The second one says whom it waits for."""
    lock = tmp_path / "lock"
    other = (
        "import sys; from pathlib import Path; from tools.bootstrap import locked\n"
        "with locked(Path(sys.argv[1]), 'make other'):\n    print('begun', flush=True)"
    )
    words = (sys.executable, "-c", other, str(lock))
    with locked(lock, "make test"):
        waiting = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert waiting.stdout is not None
        line = waiting.stdout.readline()
        assert line == (
            f"waiting for make test (process {os.getpid()}), which has locked {lock}\n"
        )
    assert waiting.communicate(timeout=60)[0] == "begun\n"
