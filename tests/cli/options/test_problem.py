"""Options and files of a question: what is wrong is one line, in the words typed."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from plimsoll_cli.__main__ import main
from plimsoll_cli.errors import ExitCode
from plimsoll_cli.options.problem import read_problem
from plimsoll_planner.records.document import load, save, to_text
from plimsoll_planner.records.model_profile import DeviceKind, ModelProfile
from tests.support.builders import a_fingerprint
from tests.support.chains import chain_profile
from tests.support.command_lines import BLOCK, a_profile_file, an_offers_file, words

BAD = ExitCode.BAD_INPUT


def broken_profile(folder: Path, **changes: Any) -> str:
    """Write a profile with some fields of its JSON changed."""
    profile = load(Path(a_profile_file(folder)), ModelProfile)
    value = json.loads(to_text(profile))
    for path, new in changes.items():
        place = value
        *way, last = path.split("__")
        for step in way:
            place = place[step]
        place[last] = new
    (folder / "broken.json").write_text(json.dumps(value))
    return str(folder / "broken.json")


def test_profiles_that_cannot_be_planned_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Negative slopes, no times: the field and the next step."""
    offers = an_offers_file(tmp_path)
    slopes = [-1, 0, 0]
    silent = chain_profile(
        [dataclasses.replace(BLOCK, forward_s=0.0, backward_s=0.0)],
        device_kind=DeviceKind.EMULATED,
    )
    save(tmp_path / "silent.json", silent)
    half_timed = str(tmp_path / "half.json")
    shutil.copy(broken_profile(tmp_path, costs__forward=None), half_timed)
    cases = {
        broken_profile(
            tmp_path, costs__boundary__slope_bytes_per_sample=slopes
        ): "slope_bytes_per_sample[0]: got -1, allowed is a whole number at least 0",
        half_timed: "costs.backward: got a SecondsColumns, allowed is null, as forward",
        str(tmp_path / "silent.json"): "offer h200-8: the profile has no times",
    }
    for path, message in cases.items():
        assert main(["plan", path, "--offers", offers]) == ExitCode.BAD_INPUT
        captured = capsys.readouterr()
        assert captured.out == ""
        assert message in captured.err
        assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--cuts", "1,2"], BAD, "--cuts: got 1,2, allowed is layers that begin"),
        (["--cuts", "a"], BAD, "--cuts: got 'a', allowed is first"),
        (["--cuts", "0,99"], BAD, "--cuts: got 99, allowed is layers below 10"),
        (["--recompute", "x"], BAD, "--recompute: got 'x', allowed is"),
        (["--recompute", "0-99"], BAD, "layers below 10, the number"),
        (["--recompute", "1,5-2"], BAD, "--recompute: got '5-2', allowed is 2-5"),
        (["--recompute", "2,2"], BAD, "--recompute: got 2, allowed is entries that"),
        (
            ["--gpus", "4", "--pipeline", "3"],
            BAD,
            "--gpus: got 4, allowed is a multiple of 3, stages times replicas",
        ),
        (
            ["--cuts", "0,4", "--pipeline", "3"],
            BAD,
            "--pipeline: got 3, allowed is 2, the stages that cuts has",
        ),
        (["--max-gpus", "2", "--gpus", "4"], BAD, "--max-gpus: got 2, allowed is at l"),
        (
            ["--micro-batch", "3"],
            BAD,
            "--batch: got 8, allowed is a multiple of 3, which is --micro-batch",
        ),
        (
            ["--data", "64"],
            BAD,
            "--batch: got 8, allowed is a multiple of 64, which is --data",
        ),
        (
            ["--data", "1", "--sharding", "parameters"],
            BAD,
            "--sharding: got 'parameters', allowed is none, where the data degree is 1",
        ),
        (
            ["--micro-batch", "8", "--max-micro-batch", "4"],
            BAD,
            "--micro-batch: got 8, allowed is at most 4, which is --max-micro-batch",
        ),
        (
            ["--objective", "MinimizeCost"],
            BAD,
            "--steps: missing; allowed is a number, where MinimizeCost is asked",
        ),
        (["--deadline", "60"], BAD, "--steps: missing; allowed is a number, where a d"),
        (["--batch", "9" * 20], BAD, "--batch: got 99999999999999999999, allowed is"),
        (["--engine", "plimsol"], BAD, "did you mean plimsoll?"),
        (["--offers", "no.csv"], BAD, "no.csv: No such file"),
        (["--offers", "no.json"], BAD, "no.json: No such file"),
        (["--overhead", "no.json"], BAD, "no.json: No such file"),
        (["--headroom", "1"], ExitCode.USAGE, "1.0 is not in the range 0<=x<1"),
        (["--headroom", "nan"], ExitCode.USAGE, "'--headroom': got nan, allowed is a"),
        (["--rate-floor", "nan"], ExitCode.USAGE, "'--rate-floor': got nan"),
        (["--min-throughput", "inf"], ExitCode.USAGE, "'--min-throughput': got inf"),
        (["--objective", "fun"], ExitCode.USAGE, "'fun' is not one of"),
        (["--batch", "0"], ExitCode.USAGE, "0 is not in the range x>=1"),
        (["--batch", "1e9"], ExitCode.USAGE, "'1e9' is not a valid integer."),
    ],
)
def test_errors_are_one_line_and_an_exit_code(
    options: list[str],
    code: ExitCode,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Name, value and bound; nothing half-written, no traceback."""
    assert main(words(tmp_path, *options)) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("plimsoll: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("version", "shown", "is_warned"),
    [
        ("2.11.0+cu130", "torch 2.11", False),
        ("2.15.0+cu132", "torch 2.15", False),
        ("2.16.0", "torch 2.16", True),
    ],
)
def test_the_engine_is_that_of_the_torch_that_was_profiled(
    version: str,
    shown: str,
    is_warned: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The plan names it; one that nobody looked at yet is warned about."""
    profile = a_profile_file(tmp_path, fingerprint=a_fingerprint(torch_version=version))
    offers = an_offers_file(tmp_path)
    command = ["plan", profile, "--offers", offers, "--batch", "8", "--output", "json"]
    assert main(command) == ExitCode.DONE
    answer = json.loads(capsys.readouterr().out)
    assert answer["plan"]["engine_version"] == shown
    warning = f"plimsoll on {shown} was not replayed against real ranks in tests"
    assert any(warning in line for line in answer["warnings"]) is is_warned


def test_a_profile_of_a_torch_too_old_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names the version, the oldest that works, and what to do."""
    profile = a_profile_file(
        tmp_path, fingerprint=a_fingerprint(torch_version="2.10.0")
    )
    assert main(["plan", profile, "--offers", an_offers_file(tmp_path)]) == BAD
    line = capsys.readouterr().err
    assert "made with torch 2.10.0, and plimsoll trains with 2.11 or newer" in line
    assert line.count("\n") == 1


def test_offers_without_a_price_are_named_where_cost_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The offer's name, and what is missing."""
    profile = a_profile_file(tmp_path)
    offers = an_offers_file(
        tmp_path, name="free-8", price_per_node_hour=None, currency=None
    )
    cost = ["--objective", "MinimizeCost", "--steps", "10"]
    command = ["plan", profile, "--offers", offers, *cost]
    assert main(command) == ExitCode.BAD_INPUT
    assert "free-8" in capsys.readouterr().err


def test_offers_of_another_kind_are_told_with_their_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file, both kinds, and what to do; an empty list names the file too."""
    other = an_offers_file(tmp_path, device_kind=DeviceKind.CUDA)
    empty = tmp_path / "empty.json"
    empty.write_text("[]")
    profile = a_profile_file(tmp_path)
    for offers, found in ((other, "cuda"), (str(empty), "no")):
        assert main(["plan", profile, "--offers", offers]) == BAD
        printed = capsys.readouterr().err
        assert (
            f"{offers}: lists {found} devices, and the profile is for emul" in printed
        )
        assert "--device" in printed


def test_devices_that_are_fixed_need_no_limit() -> None:
    """More than there are has an answer, and nobody typed --max-gpus."""
    profile = chain_profile([BLOCK], device_kind=DeviceKind.CUDA)
    options = {"engine": "plimsoll", "overhead": (), "on": ("1xL4",)}
    assert read_problem(profile, dict(options)).limits.max_gpus == 1
    assert read_problem(profile, options | {"gpus": 2}).limits.max_gpus == 2


@pytest.mark.parametrize("verb", ["plan", "compare", "solve", "support"])
def test_an_empty_name_is_no_model(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As of a variable that is not set."""
    assert main([verb, ""]) == ExitCode.USAGE
    assert "got an empty name, allowed is a profile" in capsys.readouterr().err


def test_limits_are_told_as_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A remedy names the option that it is typed with."""
    assert main(words(tmp_path, "--max-gpus", "2")) == ExitCode.NO_PLAN
    assert "3 devices (--max-gpus is 2)" in capsys.readouterr().out
    assert main(words(tmp_path, "--max-tuples", "3")) == ExitCode.NO_PLAN
    assert "--max-tuples is 3" in " ".join(capsys.readouterr().out.split())
