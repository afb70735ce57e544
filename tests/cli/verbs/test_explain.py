"""`plimsoll explain`: a file, or a plan of this machine; options of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("numpy")

from plimsoll_cli.__main__ import kubectl_main, main
from plimsoll_cli.errors import ExitCode
from plimsoll_planner.records.document import save
from plimsoll_planner.text.placements import placement_lines
from tests.cli.state.test_gather import put
from tests.support.home_plans import NAME, a_home_plan
from tests.support.placed_questions import a_tight_question
from tests.support.questions import a_question, solved


def test_a_plan_is_explained_by_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As its answer is when it is read from a file."""
    plan = a_home_plan(tmp_path / "home")
    words = ["explain", NAME, "--home", str(plan.root)]
    assert main(words) == ExitCode.FAILED
    said = capsys.readouterr().err
    assert f"no answer of plan {NAME}, which is Interrupted: the search has not" in said
    asyncio.run(put(plan, 0, a_question(900)))
    assert main(words) == ExitCode.DONE
    by_name = capsys.readouterr().out
    path = tmp_path / "answer.json"
    save(path, solved(a_question(900)))
    assert main(["explain", str(path)]) == ExitCode.DONE
    assert capsys.readouterr().out == by_name


def test_a_word_is_a_file_or_a_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A path that is not there is a file; a name that is not there is a plan."""
    plan = a_home_plan(tmp_path / "home")
    home = ("--home", str(plan.root))
    assert main(["explain", str(tmp_path / "none"), *home]) == ExitCode.BAD_INPUT
    assert "plimsoll plan --solution writes one" in capsys.readouterr().err
    assert main(["explain", "chains", *home]) == ExitCode.FAILED
    assert f"no plan chains in {plan.root}; did you mean" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["get", "-n", "team"], "--namespace is of a cluster: add --cluster"),
        (["get", "-A"], "--all-namespaces is of a cluster: add --cluster"),
        (["report", "a", "--context", "b"], "--context is of a cluster: add --cluster"),
        (["get", "--cluster", "--home", "a"], "--home is of this machine"),
        (["get", "--cluster", "-n", "a", "-A"], "--namespace names one"),
    ],
    ids=str,
)
def test_options_of_two_places_do_not_go_together(
    words: Sequence[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line names the one that is too much."""
    assert main(words) == ExitCode.USAGE
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["get", "describe a", "explain a", "report a"])
def test_the_plugin_of_kubectl_reads_a_cluster(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without being asked to, and other verbs are as they are."""
    monkeypatch.setenv("KUBECONFIG", "/none")
    monkeypatch.setenv("PLIMSOLL_HOME", "/none")
    monkeypatch.setattr("sys.argv", ["kubectl-plimsoll", *verb.split()])
    assert kubectl_main() == ExitCode.FAILED
    assert "no kubeconfig /none, which would name a cluster" in capsys.readouterr().err
    monkeypatch.setattr("sys.argv", ["kubectl-plimsoll", "devices"])
    assert kubectl_main() == ExitCode.DONE
    assert "H100" in capsys.readouterr().out


def test_a_placement_is_explained_behind_its_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Device by device, after the proof."""
    answer = solved(a_tight_question())
    assert answer.plan.placement is not None
    path = tmp_path / "answer.json"
    save(path, answer)
    assert main(["explain", str(path)]) == ExitCode.DONE
    said = " ".join(capsys.readouterr().out.split())
    lines = [" ".join(line.split()) for line in placement_lines(answer.plan.placement)]
    assert said.endswith(" ".join(lines))
