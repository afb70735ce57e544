"""The model of a question: a profile, or one that is made and kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from plimsoll_cli.options import model
from plimsoll_cli.options.model import Training, is_profile, profile_of
from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.records.document import save
from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_profiler.profiling.request import ProfileRequest
from tests.support.builders import a_profile

NOTHING = Training()
TOKENS = replace(NOTHING, sequence_length=128)


class Profiler:
    """Counts what it is asked for."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.asked: list[ProfileRequest] = []

    def __call__(self, request: ProfileRequest) -> ModelProfile:
        """Make any profile."""
        self.asked.append(request)
        return a_profile()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test's own."""
    folder = tmp_path / "cache"
    monkeypatch.setattr(model, "cache_folder", lambda: folder)
    return folder


def test_a_profile_is_read(tmp_path: Path) -> None:
    """Whatever it is called; nobody profiles."""
    path = tmp_path / "anything"
    save(path, a_profile())
    profiler = Profiler()
    assert profile_of(str(path), NOTHING, profiler) == a_profile()
    assert not profiler.asked
    with pytest.raises(InvalidInputError, match=r"--sequence: .* is a profile"):
        profile_of(str(path), TOKENS, profiler)


def test_a_model_is_profiled_once(tmp_path: Path) -> None:
    """And again where its configuration or how it is trained has changed."""
    config = tmp_path / "config.json"
    config.write_text('{"model_type": "llama"}')
    profiler = Profiler()
    for _ in range(2):
        assert profile_of(str(tmp_path), TOKENS, profiler) == a_profile()
    assert len(profiler.asked) == 1
    [request] = profiler.asked
    assert json.loads(request.arguments) == {
        "model": str(tmp_path),
        "sequence_length": 128,
    }
    config.write_text('{"model_type": "llama", "hidden_size": 8}')
    profile_of(str(tmp_path), TOKENS, profiler)
    profile_of(str(tmp_path), replace(TOKENS, precision="fp32"), profiler)
    assert len(profiler.asked) == 3
    assert json.loads(profiler.asked[-1].arguments)["precision"] == "fp32"


def test_a_broken_cache_is_no_fault(cache: Path, tmp_path: Path) -> None:
    """Nor is one that cannot be written."""
    profiler = Profiler()
    profile_of("a/model", TOKENS, profiler)
    [kept] = cache.iterdir()
    kept.write_text("{")
    assert profile_of("a/model", TOKENS, profiler) == a_profile()
    kept.unlink()
    cache.rmdir()
    cache.write_text("a file")
    assert profile_of("a/model", TOKENS, profiler) == a_profile()
    assert len(profiler.asked) == 3
    del tmp_path


def test_a_model_needs_the_tokens_of_a_sample() -> None:
    """The message says how."""
    with pytest.raises(InvalidInputError, match="such as --sequence 8192"):
        profile_of("Qwen3-8B", NOTHING, Profiler())


def test_configurations_are_told_from_profiles(tmp_path: Path) -> None:
    """What is no JSON is for whoever reads profiles to refuse."""
    path = tmp_path / "a.json"
    for text, expected in (
        ('{"model_type": "llama"}', False),
        ('{"kind": "ModelProfile"}', True),
        ("[]", True),
        ("{", True),
    ):
        path.write_text(text)
        assert is_profile(path) is expected, text
    assert not is_profile(tmp_path / "missing")
    assert is_profile(tmp_path / "missing.json")
    assert not is_profile(tmp_path)
