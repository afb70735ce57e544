"""The frame of the benchmarks: figures, bars, spread, and the file they end in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import frame
from benchmarks.frame import CannotRunError, Goal, Measurement, run, seconds_of


@pytest.fixture(autouse=True)
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write results into a folder of the test."""
    monkeypatch.setattr(frame, "ROOT", tmp_path)
    monkeypatch.setattr(frame, "RESULTS", tmp_path / "bench")
    return tmp_path / "bench"


def figure(*runs: float, goal: Goal | None = None) -> Measurement:
    """Build a figure in seconds."""
    return Measurement(name="a figure", runs=runs, unit="s", goal=goal)


def test_a_result_file_is_a_list_of_entries_that_stand_alone(results: Path) -> None:
    """Each entry has its figure, bar, spread, versions and machine."""
    code = run("sample", lambda: [figure(3.0, 1.0, 2.0, goal=Goal(at_most=2.5))])
    (entry,) = json.loads((results / "sample.json").read_text())
    assert code == 0
    assert entry["name"] == "a figure"
    assert (entry["value"], entry["unit"]) == (2.0, "s")
    assert (entry["goal"], entry["holds"]) == ("<= 2.5", True)
    assert entry["spread"] == {"minimum": 1.0, "maximum": 3.0, "runs": 3}
    assert entry["versions"]["python"].startswith("3.")
    assert entry["machine"]["cores"] >= 1
    assert entry["date"].endswith("+00:00")


@pytest.mark.parametrize(
    ("goal", "value", "holds"),
    [
        (Goal(at_most=2), 2.0, True),
        (Goal(at_most=2), 2.1, False),
        (Goal(at_least=0.9), 0.9, True),
        (Goal(at_least=0.9), 0.8, False),
        (None, 7.0, None),
    ],
)
def test_a_bar_holds_or_not(
    goal: Goal | None, value: float, holds: bool | None
) -> None:
    """At most and at least, the bound itself included; no bar, no verdict."""
    assert figure(value, goal=goal).holds is holds


def test_a_bar_that_does_not_hold_fails_the_run(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The figure is written down as it is, and the exit code shows it."""
    assert run("slow", lambda: [figure(9.0, goal=Goal(at_most=1))]) == 1
    assert json.loads((results / "slow.json").read_text())[0]["holds"] is False
    assert "NO" in capsys.readouterr().out


def test_what_cannot_run_says_why(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A machine without a GPU passes over what needs one, and writes nothing."""

    def measure() -> Iterator[Measurement]:
        yield figure(1.0)
        raise CannotRunError("needs a CUDA device")

    assert run("gpu", measure) == 3
    assert "bench-gpu cannot run here: needs a CUDA device" in capsys.readouterr().out
    assert not results.exists()


def test_peers_are_timed_in_turn() -> None:
    """A B A B ...: a drift of the machine hits both; the warm-up is not counted."""
    calls: list[str] = []
    times = seconds_of(lambda: calls.append("A"), lambda: calls.append("B"), runs=2)
    assert "".join(calls) == "ABABAB"
    assert [len(its_times) for its_times in times] == [2, 2]
    assert all(taken >= 0 for its_times in times for taken in its_times)
