"""`plimsoll solve`: the largest micro-batch, sequence or depth that fits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plimsoll_cli.__main__ import main
from plimsoll_cli.errors import ExitCode
from plimsoll_cli.verbs import solve as verb
from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.model_profile import DeviceKind, ModelProfile
from plimsoll_planner.records.problem import Problem
from plimsoll_profiler.errors import BadWorkloadError
from plimsoll_profiler.profiling.request import ProfileRequest
from tests.support.builders import a_probe, a_profile, an_offer
from tests.support.command_lines import a_profile_file, an_offers_file, words


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
    assert found["batch"] == fits
    assert found["machines"] == [an_offer().name]
    assert (found["grain"], found["limit"], found["ended_by"]) == (1, 64, "fails")
    assert main(words) == ExitCode.DONE
    printed = capsys.readouterr()
    assert f"{fits} samples in a micro-batch fit; {fails} fail" in printed.out
    assert "trying 1 sample in a micro-batch\n" in printed.err


def test_micro_batches_begin_where_their_profile_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is known of smaller ones."""
    table = an_offers_file(tmp_path, 300)

    def solved(least: int, at_most: int) -> tuple[int | None, int]:
        profile = a_profile_file(tmp_path, probes=(a_probe(micro_batch=least),))
        question = [profile, "--offers", table, "--max-gpus", "1", "-o", "json"]
        main(["solve", *question, "--for", "micro-batch", "--at-most", str(at_most)])
        printed = capsys.readouterr()
        if not printed.out:
            raise InvalidInputError(printed.err)
        found = json.loads(printed.out)
        return found["fits"], found["fails"]

    fits, fails = solved(1, 64)
    assert solved(2, 64) == (fits, fails)
    assert solved(fails + 3, 64) == (None, fails + 3)
    with pytest.raises(InvalidInputError, match="got 2, allowed is at least 3, the l"):
        solved(3, 2)


@pytest.mark.parametrize(
    ("batch", "expected"),
    [([], 8), (["--batch", "9"], 10), (["--batch", "9", "--data", "2"], 12)],
)
def test_a_batch_is_of_whole_micro_batches(
    batch: list[str],
    expected: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As many as given, else one for each device."""
    profile, table = a_profile_file(tmp_path), an_offers_file(tmp_path, 300)
    question = [profile, "--offers", table, "--max-gpus", "4", *batch]
    limit = ["--at-most", "2", "-o", "json"]
    assert main(["solve", *question, "--for", "micro-batch", *limit]) == ExitCode.DONE
    found = json.loads(capsys.readouterr().out)
    assert (found["fits"], found["batch"]) == (2, expected)


def test_the_smaller_limit_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named, whether it is of this verb or of the search."""
    profile, table = a_profile_file(tmp_path), an_offers_file(tmp_path, 300)
    question = ["solve", profile, "--offers", table, "--for", "micro-batch"]
    limits = ["--max-micro-batch", "3", "--at-most", "16"]
    assert main([*question, *limits]) == ExitCode.DONE
    line = "3 samples in a micro-batch fit, the most that --max-micro-batch allows\n"
    assert capsys.readouterr().out == line
    limits = ["--max-micro-batch", "3", "--at-most", "1"]
    assert main([*question, *limits]) == ExitCode.DONE
    line = "1 sample in a micro-batch fits, the most that --at-most allows\n"
    assert capsys.readouterr().out == line
    limits = ["--max-micro-batch", "3", "--grain", "4"]
    assert main([*question, *limits]) == ExitCode.BAD_INPUT
    assert "--max-micro-batch: got 3, allowed is at least 4" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("speeds", "expected"),
    [
        ({2: 1.0, 3: 2.0, 4: 3.0}, 4),
        ({2: 1.0, 3: 2.0}, 3),
        ({3: 2.0}, 3),
        ({}, None),
    ],
)
def test_a_rate_that_is_asked_for_is_reached(
    speeds: dict[int, float],
    expected: int | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the largest micro-batch of those that fit; small ones may be too slow."""

    def verdict_on(problem: Problem) -> Verdict:
        value = problem.override.micro_batch or 0
        is_fast = problem.objective.min_samples_per_s is None or value in speeds
        if value > 5:
            return Verdict.FAILS
        return Verdict.FITS if value <= 4 and is_fast else Verdict.UNDECIDED

    monkeypatch.setattr(verb, "verdict_on", verdict_on)
    profile, table = a_profile_file(tmp_path), an_offers_file(tmp_path, 300)
    question = ["solve", profile, "--offers", table, "--for", "micro-batch"]
    words = [*question, "--min-throughput", "1.5"]
    code = ExitCode.NO_PLAN if expected is None else ExitCode.DONE
    assert main([*words, "-o", "json"]) == code
    found = json.loads(capsys.readouterr().out)
    assert found["fits"] == expected
    assert (found["fits_at_any_speed"], found["fails"]) == (4, 6)
    main(words)
    out = capsys.readouterr().out
    if expected is None:
        assert out.startswith("none is proven to reach the rate that was asked for; at")
    else:
        fit = f"{expected} samples in a micro-batch fit and reach the rate that was"
        assert out.startswith(fit)
        assert ("more, up to 4, fit and are not proven" in out) is (expected < 4)
    assert "6 fail; between them nothing is proven" in out


def test_a_real_floor_is_honoured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No micro-batch is that fast; at any speed some fit."""
    profile, table = a_profile_file(tmp_path), an_offers_file(tmp_path, 300)
    question = ["solve", profile, "--offers", table, "--for", "micro-batch"]
    for floor in (
        ["--min-throughput", "1e9"],
        ["--deadline", "1", "--steps", "999999"],
    ):
        words = [*question, "--max-gpus", "1", "--at-most", "4", *floor]
        assert main([*words, "-o", "json"]) == ExitCode.NO_PLAN
        found = json.loads(capsys.readouterr().out)
        assert found["fits"] is None
        assert found["fits_at_any_speed"] == 4


def test_the_fewest_devices_are_those_of_a_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the same words; in JSON with the count that fails."""
    question = words(tmp_path)[1:]
    assert main(["plan", *question]) == ExitCode.DONE
    plan = capsys.readouterr().out
    assert main(["solve", *question, "--for", "devices"]) == ExitCode.DONE
    out = capsys.readouterr().out
    assert out.startswith("fewest: 3 devices")
    assert out in plan
    assert main(["solve", *question, "--for", "devices", "-o", "json"]) == ExitCode.DONE
    found = json.loads(capsys.readouterr().out)
    assert (found["fits"], found["fails"], found["ended_by"]) == (3, 2, "fits")
    few = ["solve", *question, "--for", "devices", "--max-gpus", "2"]
    assert main(few) == ExitCode.NO_PLAN
    assert "would do: 3 devices (--max-gpus is 2)" in capsys.readouterr().out


def test_a_search_ends_with_what_the_model_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Its own words say why; a model that takes nothing is an error."""
    most = 1024

    def quietly(request: ProfileRequest) -> ModelProfile:
        length = json.loads(request.arguments)["sequence_length"]
        if length > most:
            raise BadWorkloadError(f"sequence_length {length} is beyond {most}")
        return a_profile(device_kind=DeviceKind.CUDA)

    monkeypatch.setattr(verb, "quietly", quietly)
    monkeypatch.setattr(verb, "verdict_on", lambda _: Verdict.FITS)
    monkeypatch.setattr("plimsoll_cli.options.model.cache_folder", lambda: tmp_path)
    words = ["solve", "GPT2", "--for", "sequence", "--on", "1xH100"]
    assert main(words) == ExitCode.DONE
    assert capsys.readouterr().out == (
        "1,024 tokens in a sample fit, the most that the model takes; multiples of 256 "
        "were tried (--grain)\n"
        "it refuses more: sequence_length 1280 is beyond 1024\n"
    )
    assert main([*words, "-o", "json"]) == ExitCode.DONE
    found = json.loads(capsys.readouterr().out)
    assert (found["limit"], found["ended_by"]) == (1024, "model")
    assert main([*words, "--grain", "2048"]) == ExitCode.BAD_INPUT
    assert "sequence_length 2048 is beyond" in capsys.readouterr().err


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
    assert "up to 96, the most that --at-most allows, none fails for sure" in out
    assert set(asked) >= {8, 16, 24, 32}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (
            ["--for", "devices", "--sequence", "8", "--at-most", "4"],
            ExitCode.USAGE,
            "--for devices: the limit is --max-gpus",
        ),
        (
            ["--for", "devices", "--sequence", "8", "--gpus", "4"],
            ExitCode.BAD_INPUT,
            "--for devices: --gpus fixes it; leave that away",
        ),
        (
            ["--for", "sequence", "--sequence", "8"],
            ExitCode.BAD_INPUT,
            "--for sequence: --sequence fixes it; leave that away",
        ),
        (
            ["--for", "micro-batch", "--sequence", "8", "--micro-batch", "2"],
            ExitCode.BAD_INPUT,
            "--for micro-batch: --micro-batch fixes it; leave that away",
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
