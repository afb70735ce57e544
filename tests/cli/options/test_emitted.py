"""The question of a command line as a manifest, which asks the same."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from plimsoll_cli.__main__ import main
from plimsoll_cli.errors import ExitCode
from plimsoll_cli.options import model
from plimsoll_cli.options.emitted import called, name_of
from plimsoll_operator.api.manifest import parse_manifest
from plimsoll_operator.rules.question import question_of
from plimsoll_planner.offer_catalog import parse_offers
from plimsoll_planner.records.document import save
from plimsoll_planner.records.model_profile import DeviceKind, ModelProfile
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.search import answer as search
from plimsoll_profiler.profiling.request import ProfileRequest
from tests.support.builders import a_profile

WORDS = (
    "plan",
    "Qwen3-8B",
    *("--sequence", "512", "--precision", "fp32"),
    *("--on", "16xH100", "--batch", "64", "--steps", "100"),
    *("--objective", "MaximizeThroughput", "--rate-floor", "0.3"),
    *("--deadline", "5000", "--headroom", "0.1", "--pipeline", "2"),
    *("--micro-batch", "2", "--recompute", "none", "--sharding", "optimizer"),
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Problem]:
    """Problems that the search is given; it answers none of them."""
    seen: list[Problem] = []
    profile = a_profile(device_kind=DeviceKind.CUDA)

    def run(_: ProfileRequest) -> ModelProfile:
        return profile

    def solve(problem: Problem) -> None:
        seen.append(problem)
        raise KeyboardInterrupt

    monkeypatch.setattr("plimsoll_cli.verbs.plan.with_progress", run)
    monkeypatch.setattr(search, "solve", solve)
    monkeypatch.setattr(model, "cache_folder", lambda: tmp_path / "cache")
    return seen


def test_a_manifest_asks_what_was_typed(tmp_path: Path, asked: list[Problem]) -> None:
    """Made into a problem as the operator does, it is the same."""
    path = tmp_path / "plan.yaml"
    assert main([*WORDS, "--emit", str(path)]) == ExitCode.INTERRUPTED
    [typed] = asked
    manifest = parse_manifest(path.read_text(), "it")
    assert manifest.name == "qwen3-8b"
    assert manifest.spec.workload.entrypoint == "plimsoll_trainer.huggingface:pretrain"
    assert json.loads(manifest.spec.workload.args) == {
        "model": "Qwen3-8B",
        "sequence_length": 512,
        "precision": "fp32",
    }
    [table] = manifest.tables.values()
    offers = parse_offers(table, "it").offers
    again = question_of(manifest.spec, typed.profile, offers, typed.overheads)
    limits = replace(again.limits, max_tuples=typed.limits.max_tuples)
    assert replace(again, limits=limits) == typed  # an operator limits its work


def test_what_no_manifest_can_ask_is_refused_at_once(
    tmp_path: Path, asked: list[Problem], capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is profiled or searched; nothing is written."""
    path = tmp_path / "plan.yaml"
    profile = tmp_path / "profile.json"
    save(profile, a_profile())
    emit = ("--on", "8xH100", "--emit", str(path))
    for words, message in (
        (("plan", str(profile), *emit), "is a profile, which does not say how"),
        (("plan", "Qwen3-8B", "--sequence", "8", *emit), "give --steps"),
        (
            ("plan", "Qwen3-8B", *emit, "--steps", "1", "--offers", "a.json"),
            "give --offers as CSV, or --on",
        ),
    ):
        assert main(words) == ExitCode.BAD_INPUT
        assert message in capsys.readouterr().err
    assert not path.exists()
    assert not asked


def test_a_manifest_passes_over_no_weights(
    tmp_path: Path, asked: list[Problem], capsys: pytest.CaptureFixture[str]
) -> None:
    """They are fine-tuned on data that is named, or there is no manifest."""
    folder, path = tmp_path / "qwen", tmp_path / "plan.yaml"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "qwen3"}')
    (folder / "model.safetensors").touch()
    ask = ("--sequence", "8", "--on", "8xH100", "--steps", "1")
    emit = ("--emit", str(path))
    data = ("--train-data", "a.jsonl")
    for words, message in (
        (("plan", str(folder), *emit), "has weights, and the manifest would train"),
        (("plan", "Qwen3-8B", *emit, *data), "Qwen3-8B has sizes alone"),
        (("plan", str(folder), *emit, *data, "--blocks", "2"), "--blocks: a fine-tune"),
        (("plan", str(folder), *data), "needs --emit beside it"),
    ):
        assert main([*words, *ask]) in {ExitCode.BAD_INPUT, ExitCode.USAGE}
        assert message in capsys.readouterr().err
    assert not path.exists()
    assert not asked
    more = ("--train-data", "b.txt")
    assert main(["plan", str(folder), *emit, *data, *more, *ask]) == (
        ExitCode.INTERRUPTED
    )
    workload = parse_manifest(path.read_text(), "it").spec.workload
    assert workload.entrypoint == "plimsoll_trainer.huggingface:finetune"
    assert json.loads(workload.args) == {
        "model": str(folder),
        "data": ["a.jsonl", "b.txt"],
        "sequence_length": 8,
    }


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("Qwen3-8B", "qwen3-8b"),
        ("meta-llama/Llama-3.1-8B", "llama-3-1-8b"),
        ("01-ai/4Yi", "yi"),
        ("x/" + 50 * "a", 40 * "a"),
        ("...", "model"),
    ],
)
def test_a_plan_is_named_after_its_model(given: str, name: str) -> None:
    """In letters that a name can have."""
    assert name_of(given) == name


def test_what_a_model_is_called_keeps_its_dots(tmp_path: Path) -> None:
    """Only a file has an ending; a report of Qwen3-0.6B was one of Qwen3-0."""
    folder, file = tmp_path / "Llama-3.1-8B", tmp_path / "tiny-v1.2.json"
    folder.mkdir()
    file.touch()
    for given, name in (
        ("Qwen3-0.6B", "Qwen3-0.6B"),
        ("meta-llama/Llama-3.1-8B", "Llama-3.1-8B"),
        (f"{folder}/", "Llama-3.1-8B"),
        (str(file), "tiny-v1.2"),
    ):
        assert called(given) == name
