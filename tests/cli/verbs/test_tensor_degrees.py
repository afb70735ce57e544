"""A tensor degree that cannot be had is answered in one line that says why."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("torch")

from plimsoll_cli.__main__ import main
from plimsoll_cli.errors import ExitCode
from plimsoll_cli.verbs.profile import show
from plimsoll_planner.records.document import save
from plimsoll_planner.records.model_profile import ModelProfile, Precision
from plimsoll_planner.records.offer import ComputeRate
from tests.support.builders import a_profile
from tests.support.command_lines import an_offers_file
from tests.support.profiles import GPT, a_request, profile_here
from tests.support.ranks import run_on_device

SPLIT = "tests.support.split_workloads:a_split_gpt"
BAD = "tests.support.bad_splits"
TWO_OF_THREE = (1, 2, 8)
"""Degrees that the split one is profiled for; 8 cannot share its four heads."""


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that cuts nothing."""
    monkeypatch.setenv("COLUMNS", "300")


@cache
def profiled(entrypoint: str, degrees: tuple[int, ...]) -> ModelProfile:
    """Profile of a workload, made once for all tests of these degrees."""
    request = a_request(
        entrypoint, micro_batches=(1, 2), tensor_degrees=degrees, arguments="{}"
    )
    return run_on_device(profile_here, request)


def planning(
    folder: Path, entrypoint: str, degrees: tuple[int, ...], devices_per_node: int = 8
) -> list[str]:
    """Profile a workload; the words that plan it."""
    profile = folder / "profile.json"
    save(profile, profiled(entrypoint, degrees))
    offer = an_offers_file(
        folder,
        devices_per_node=devices_per_node,
        memory_bandwidth_bytes_per_s=1e11,
        compute_rates=(ComputeRate(precision=Precision.FP32, flop_per_s=1e12),),
    )
    return ["plan", str(profile), "--offers", offer, "--batch", "8"]


@pytest.mark.parametrize(
    ("entrypoint", "degree", "reason"),
    [
        (
            GPT,
            2,
            "no layer has a `parallelize`; docs/workload.md has one to copy",
        ),
        (SPLIT, 8, "layer 'block.0' on 8 ranks: RuntimeError: unflatten"),
        (f"{BAD}:forgetful", 2, "layer 'block.0' on 2 ranks gives another output than"),
        (f"{BAD}:misnamed", 2, "parallelize of layer 'block.0' splits none of its mat"),
        (f"{BAD}:dropping", 2, "it draws other random numbers than the whole layer"),
    ],
    ids=["nobody", "heads", "sum", "name", "dropout"],
)
def test_a_degree_that_cannot_be_had_says_why(
    entrypoint: str,
    degree: int,
    reason: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The error of a degree that is asked for; a certificate without one."""
    asked = planning(tmp_path, entrypoint, (1, degree))
    assert main([*asked, "--tensor", str(degree)]) == ExitCode.BAD_INPUT
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"plimsoll: --tensor: got {degree}, allowed is one that")
    assert "that the layers were profiled for: 1 (" in line
    assert reason in line
    assert main(asked) == ExitCode.DONE
    shown = " ".join(capsys.readouterr().out.split())
    assert f"tensor parallelism ({reason[:20]}" in shown or reason in shown


def test_a_split_that_was_not_compared_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the names of its kinds, as the profile is shown."""
    show(a_profile(not_compared=(0,)), tmp_path / "profile.json")
    kind = a_profile().kinds[0]
    text = f"warning: splits of {kind} were not compared with whole layers"
    assert text in capsys.readouterr().out.splitlines()


def test_a_profile_shows_ways_to_share_layers_and_those_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row for each kind, T and kind of sequences; a line for each reason."""
    show(profiled(SPLIT, TWO_OF_THREE), tmp_path / "profile.json")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:4] == ["KIND", "LAYERS", "TENSOR", "SEQUENCES"]
    blocks = [line.split()[2:4] for line in lines if line.startswith("block ")]
    assert blocks == [["1", "whole"], ["2", "whole"], ["2", "split"]]
    [line] = [line for line in lines if line.startswith("left out: ")]
    assert line.startswith("left out: tensor degree 8: layer 'block.0' on 8 ranks")


def test_a_degree_above_a_node_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two ranks share a layer over the link inside a node, and nodes have one."""
    asked = planning(tmp_path, SPLIT, TWO_OF_THREE, devices_per_node=1)
    assert main([*asked, "--tensor", "2"]) == ExitCode.NO_PLAN
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "no plan: the tensor degree is above the devices of a node"
    assert "would do: a tensor degree of 1, on 1 device" in shown


def test_the_degrees_that_are_left_are_named_beside_those_searched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two ranks share four heads, eight cannot."""
    asked = planning(tmp_path, SPLIT, TWO_OF_THREE)
    assert main(asked) == ExitCode.DONE
    shown = " ".join(capsys.readouterr().out.split())
    assert "tensor degree 8 (layer 'block.0' on 8 ranks" in shown
