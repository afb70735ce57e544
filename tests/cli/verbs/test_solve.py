"""`plimsoll solve`: the largest micro-batch, sequence or depth that fits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plimsoll_cli.__main__ import main
from plimsoll_cli.errors import ExitCode
from plimsoll_cli.verbs import solve as verb
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.model_profile import DeviceKind, ModelProfile
from plimsoll_planner.records.problem import Problem
from plimsoll_profiler.profiling.request import ProfileRequest
from tests.support.builders import a_profile
from tests.support.command_lines import a_profile_file, an_offers_file


def test_the_largest_micro_batch_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Between it and the least that fails nothing is proven; plans agree."""
    profile, table = a_profile_file(tmp_path), an_offers_file(tmp_path, 300)
    question = [profile, "--offers", table, "--max-gpus", "1", "--batch", "1"]
    words = ["solve", *question, "--for", "micro-batch", "--at-most", "64"]
    assert main([*words, "-o", "json"]) == ExitCode.DONE
    found = json.loads(capsys.readouterr().out)
    fits, fails = found["fits"], found["fails"]
    assert 1 <= fits < fails <= 64
    for value, is_certain in ((fits, True), (fits + 1, False)):
        batch = ["--batch", str(value), "--micro-batch", str(value)]
        main(["plan", profile, "--offers", table, "--max-gpus", "1", *batch])
        assert ("proven" in capsys.readouterr().out.splitlines()[0]) is is_certain
    assert main(words) == ExitCode.DONE
    out = capsys.readouterr().out
    assert f"{fits} samples in a micro-batch fit; {fails} fail" in out


@pytest.mark.parametrize(
    ("unknown", "field", "fixed"),
    [
        ("sequence", "sequence_length", []),
        ("depth", "blocks", ["--sequence", "64"]),
    ],
)
def test_models_are_profiled_for_each_value(
    unknown: str,
    field: str,
    fixed: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """As long or as deep as is asked."""
    asked: list[int] = []

    def quietly(request: ProfileRequest) -> ModelProfile:
        asked.append(json.loads(request.arguments)[field])
        return a_profile(device_kind=DeviceKind.CUDA)

    def verdict_on(_: Problem) -> Verdict:
        return Verdict.FITS if asked[-1] <= 24 else Verdict.UNDECIDED

    monkeypatch.setattr(verb, "quietly", quietly)
    monkeypatch.setattr(verb, "verdict_on", verdict_on)
    monkeypatch.setattr("plimsoll_cli.options.model.cache_folder", lambda: tmp_path)
    words = ["solve", "Qwen3-8B", "--for", unknown, "--on", "8xH100", *fixed]
    assert main([*words, "--grain", "8", "--at-most", "100"]) == ExitCode.DONE
    out = capsys.readouterr().out
    assert out.startswith("24 ")
    assert "up to 100 none fails for sure" in out
    assert set(asked) >= {8, 16, 24, 32}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--for", "devices"], ExitCode.USAGE, "`plimsoll plan` finds the fewest"),
        (
            ["--for", "sequence", "--sequence", "8"],
            ExitCode.BAD_INPUT,
            "--for sequence: it is fixed by another option",
        ),
        (
            ["--for", "micro-batch", "--sequence", "8", "--micro-batch", "2"],
            ExitCode.BAD_INPUT,
            "--for micro-batch: it is fixed by another option",
        ),
        (
            ["--for", "sequence", "--at-most", "8"],
            ExitCode.BAD_INPUT,
            "--at-most: got 8, allowed is at least 256",
        ),
    ],
)
def test_contradictions_are_refused(
    words: list[str],
    code: ExitCode,
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Before anything is profiled."""
    assert main(["solve", "Qwen3-8B", "--on", "8xH100", *words]) == code
    assert message in capsys.readouterr().err


def test_a_profile_has_its_sequence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was made with one."""
    profile = a_profile_file(tmp_path)
    words = ["solve", profile, "--for", "sequence", "--on", "8xH100"]
    assert main(words) == ExitCode.BAD_INPUT
    assert "is a profile, which has it already" in capsys.readouterr().err
