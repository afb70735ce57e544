"""The summary of the gates: what failed, what was skipped, what could not run."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tools import gates
from tools.part_queue import NOT_HERE, Part

NEEDS_GO = f"print('needs Go'); raise SystemExit({NOT_HERE})"


def a_part(name: str, code: str, **fields: Any) -> Part:
    """Build a part that runs a line of Python."""
    return Part(name=name, command=(sys.executable, "-c", code), **fields)


def summary(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *parts: Part
) -> tuple[int, list[str]]:
    """Run parts as one gate; return the exit code and the lines printed."""
    monkeypatch.setitem(gates.GATES, "sample", parts)
    return gates.main("sample"), capsys.readouterr().out.splitlines()


def test_a_failure_is_named_last_and_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All parts run, the output of the failed one is shown, its name comes last."""
    code, lines = summary(
        capsys,
        monkeypatch,
        a_part("bad", "print('why'); raise SystemExit(3)"),
        a_part("good", "print('quiet')"),
    )
    assert code == 1
    assert lines[-1] == "FAILED: bad"
    assert "why" in lines
    assert "quiet" not in lines


def test_skips_are_said_in_the_summary(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Green with skips reads differently from green."""
    part = a_part("some", "print('3 passed, 2 skipped in 1 s')", is_shown=True)
    code, lines = summary(capsys, monkeypatch, part)
    assert code == 0
    assert lines[-2].endswith("2 skipped")
    assert lines[-1].startswith("passed, but not everything ran")


def test_what_cannot_run_here_is_no_failure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without Go there is no lab; the rest counts, and the reason is shown."""
    part = a_part("lab", NEEDS_GO, may_fail=True)
    code, lines = summary(capsys, monkeypatch, part)
    assert code == 0
    assert "needs Go" in lines
    assert lines[-1].startswith("passed, but not everything ran")


def test_a_preparation_that_crashes_is_a_failure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the lab's own error says that something is not on this machine."""
    part = a_part("lab", "raise KeyError('a bug')", may_fail=True)
    code, lines = summary(capsys, monkeypatch, part)
    assert (code, lines[-1]) == (1, "FAILED: lab")


def test_tests_for_a_gpu_leave_nothing_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are reported, and are no reason to look for a command."""
    output = "2 need a GPU\\n3 passed, {} skipped in 1 s"
    for num, last in ((2, "all gates passed; 2 tests need a GPU"), (3, "passed, but")):
        part = a_part("some", f"print('{output.format(num)}')", is_shown=True)
        code, lines = summary(capsys, monkeypatch, part)
        assert code == 0
        assert lines[-1].startswith(last)
        assert lines[-2].endswith("1 skipped") == (num == 3)


def test_nothing_left_out_is_all_passed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only then."""
    code, lines = summary(capsys, monkeypatch, a_part("good", "pass"))
    assert (code, lines[-1]) == (0, "all gates passed")


def test_a_part_waits_for_those_that_it_needs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it comes first in the queue and another worker is free."""
    code, lines = summary(
        capsys,
        monkeypatch,
        a_part("second", "pass", after=("first", "of another gate")),
        a_part("first", "import time; time.sleep(0.2)"),
    )
    assert code == 0
    assert [line.split()[0] for line in lines[:2]] == ["first", "second"]


def test_what_cannot_be_started_fails_and_the_rest_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what waits for it is done with: the queue comes to its end."""
    code, lines = summary(
        capsys,
        monkeypatch,
        Part(name="absent", command=("/no/such/tool",)),
        a_part("dependent", "print('ran')", after=("absent",), is_shown=True),
        a_part("other", "print('ran too')", is_shown=True),
    )
    assert code == 1
    assert lines[-1] == "FAILED: absent, dependent"
    assert any(line.startswith("cannot start /no/such/tool: ") for line in lines)
    assert "ran too" in lines
    assert "ran" not in lines


def test_what_needs_a_failed_part_is_not_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor what needs that; each is named, with what it needs."""
    _, lines = summary(
        capsys,
        monkeypatch,
        a_part("bad", "raise SystemExit(3)"),
        a_part("next", "print('ran')", after=("bad",), is_shown=True),
        a_part("last", "print('ran')", after=("next",), is_shown=True),
    )
    assert "ran" not in lines
    assert "not run, because it needs: bad" in lines
    assert "not run, because it needs: next" in lines
    assert lines[-1] == "FAILED: bad, next, last"


def test_what_can_do_without_the_lab_runs_without_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tests are then skipped, each with the command that would enable it."""
    _, lines = summary(
        capsys,
        monkeypatch,
        a_part("lab", NEEDS_GO, may_fail=True),
        a_part("tests", "print('ran')", after=("lab",), is_shown=True),
    )
    assert "ran" in lines


def test_costs_and_the_slowest_tests_are_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CPU time of all processes of a part, also of those that nobody waited for.

    Of tests the slowest of all parts come first.
    """
    busy = "import subprocess, sys; subprocess.{}([sys.executable, '-c', {!r}])"
    work = "sum(range(2 * 10**7))"
    _, lines = summary(
        capsys,
        monkeypatch,
        a_part("one", "print('2.50s call     tests/a.py::test_a')", is_shown=True),
        a_part("two", "print('11.00s setup    tests/b.py::test_b')", is_shown=True),
        a_part("busy", busy.format("run", work)),
        a_part("left", f"{busy.format('Popen', work)}; import os; os._exit(0)"),
    )
    at = lines.index("== slowest tests ==")
    assert [line.split()[-1] for line in lines[at + 1 : at + 3]] == [
        "tests/b.py::test_b",
        "tests/a.py::test_a",
    ]
    costs = {line for line in lines if line.startswith(("busy", "left"))}
    assert len(costs) == 2
    assert min(float(cost.split()[4]) for cost in costs) > 0.1


def test_the_output_of_what_passed_has_no_table_of_durations(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slowest tests of all parts stand in one table; no empty ones are left."""
    printed = (
        "...  [100%]\n====== slowest 20 durations ======\n2.50s call     a.py::test_a\n"
        "\n(19 durations < 1s hidden.  Use -vv to show these durations.)\n3 passed\n"
    )
    _, lines = summary(
        capsys, monkeypatch, a_part("one", f"print({printed!r})", is_shown=True)
    )
    at = lines.index("== one ==")
    assert lines[at + 1 : at + 3] == ["...  [100%]", "3 passed"]
