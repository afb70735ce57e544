"""Commands that are asked to place operators one by one."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll_cli.__main__ import main
from plimsoll_cli.errors import ExitCode
from plimsoll_planner.records.document import load, save
from plimsoll_planner.records.plan import HybridPlan
from tests.support.command_lines import an_offers_file
from tests.support.placed_questions import a_placed_question, least_of

MIB = 2**20
GRAPH = ("--engine", "graph")


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that cuts nothing."""
    monkeypatch.setenv("COLUMNS", "200")


def words(folder: Path, verb: str, *more: str, devices: int = 2) -> list[str]:
    """Command line that asks about graphs for which so many devices are just enough."""
    path = folder / "profile.json"
    save(path, a_placed_question().profile)
    memory_mib = -(-least_of(devices) // MIB)
    offers = an_offers_file(folder, memory_mib)
    return [verb, str(path), "--offers", offers, "--batch", "2", *GRAPH, *more]


def test_a_placement_is_a_table_of_devices_and_says_that_it_is_heuristic(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the bytes of each at its peak, the largest there, and open counts."""
    plan, page = tmp_path / "plan.json", tmp_path / "page.html"
    files = ("--out", str(plan), "--report", str(page))
    assert main(words(tmp_path, "plan", *files)) == ExitCode.DONE
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "2 devices (everything was searched; undecided: 1 device)"
    assert "operators on 2 devices x 1 replica" in lines[1]
    [table] = [place for place, line in enumerate(lines) if line[:6] == "DEVICE"]
    rows = [line.split() for line in lines[table + 1 : table + 3]]
    placement = load(plan, HybridPlan).placement
    assert placement is not None
    fullest = max(placement.peaks, key=lambda one: one.peak_bytes)
    assert [row[0] for row in rows] == ["0", "1"]
    assert any(line.startswith("largest on device 1: ") for line in lines)
    assert any(line.startswith("warning: placement is heuristic") for line in lines)
    device = placement.peaks.index(fullest)
    assert device == 1  # the fullest is not the first one
    assert f"Device {device} is the fullest" in page.read_text()


def test_the_fewest_devices_are_found_by_solve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As by `plan`."""
    assert main(words(tmp_path, "solve", "--for", "devices")) == ExitCode.DONE
    assert capsys.readouterr().out == "fewest: 2 devices found; undecided: 1\n"


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (("plan", "--frontier"), "--frontier is of layers, and engine graph places"),
        (("compare", "--gpus", "2"), "layers are compared: --engine plimsoll"),
        (("solve", "--for", "micro-batch"), "engine graph plans what was profiled"),
    ],
    ids=lambda one: one[0] if isinstance(one, tuple) else "",
)
def test_what_is_of_layers_alone_is_refused(
    typed: tuple[str, ...],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Before anything is searched, with what to do."""
    assert main(words(tmp_path, *typed)) == ExitCode.USAGE
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("verb", [("plan",), ("solve", "--for", "devices")])
def test_a_name_is_not_traced_to_be_placed(
    verb: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The seconds of its operators are known on a device alone."""
    line = words(tmp_path, *verb)
    line[1] = "gpt2"
    assert main(line) == ExitCode.USAGE
    error = capsys.readouterr().err
    assert "gpt2 is no profile" in error
    assert "--graph-micro-batches 1,2,4,8" in error
