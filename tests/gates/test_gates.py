"""The summary of the gates: what failed, what was skipped, what could not run."""

from __future__ import annotations

import sys

import pytest

from tools import gates
from tools.gates import Part


def a_part(name: str, code: str, **fields: bool) -> Part:
    """Build a part that runs a line of Python."""
    return Part(name=name, command=(sys.executable, "-c", code), **fields)


def summary(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *parts: Part
) -> tuple[int, list[str]]:
    """Run parts as one gate; return the exit code and the lines printed."""
    monkeypatch.setitem(gates.LINES, "sample", (parts,))
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
    part = a_part("lab", "raise SystemExit('needs Go')", may_fail=True)
    code, lines = summary(capsys, monkeypatch, part)
    assert code == 0
    assert "needs Go" in lines
    assert lines[-1].startswith("passed, but not everything ran")


def test_nothing_left_out_is_all_passed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only then."""
    code, lines = summary(capsys, monkeypatch, a_part("good", "pass"))
    assert (code, lines[-1]) == (0, "all gates passed")
