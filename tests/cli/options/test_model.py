"""The model of a question: a profile, or one that is made and kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from plimsoll_cli.options import model
from plimsoll_cli.options.emitted import check_emitted
from plimsoll_cli.options.model import Training, is_profile, profile_of
from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.records.document import save
from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_profiler.profiling.request import ProfileRequest
from plimsoll_profiler.reading.tasks import Family
from tests.support.builders import a_profile

NOTHING = Training()
TOKENS = replace(NOTHING, sequence_length=128)


FAMILIES = {
    "bert": Family.FILL_MASK,
    "vit": Family.IMAGE_CLASSIFICATION,
    "torchvision:resnet18": Family.TORCHVISION,
}
"""By name; what is not named is causal."""


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
    monkeypatch.setenv("PLIMSOLL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        model,
        "family_of",
        lambda name, **_: FAMILIES.get(name, Family.TEXT_GENERATION),
    )
    return tmp_path / "cache/profiles"


def test_a_profile_is_read(tmp_path: Path) -> None:
    """Whatever it is called; nobody profiles."""
    path = tmp_path / "anything"
    save(path, a_profile())
    profiler = Profiler()
    assert profile_of(str(path), NOTHING, profiler) == a_profile()
    assert not profiler.asked
    with pytest.raises(InvalidInputError, match=r"--sequence: .* is a profile"):
        profile_of(str(path), TOKENS, profiler)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("missing.json", None, "missing.json: No such file"),
        ("config.json", '{"model_type": "llama",', "not readable as JSON"),
        ("README.md", "# A page", "not readable as JSON"),
        ("other.json", '{"hidden_size": 8}', "a configuration has a model_type"),
    ],
)
def test_a_file_that_is_neither_says_what_is_wrong(
    name: str, text: str | None, message: str, tmp_path: Path
) -> None:
    """Also beside options that no profile takes."""
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    for training in (NOTHING, TOKENS):
        with pytest.raises(InvalidInputError, match=message):
            profile_of(str(path), training, Profiler())
    with pytest.raises(InvalidInputError, match=message):
        check_emitted(
            tmp_path / "plan.yaml",
            str(path),
            (),
            {"steps": 1, "offers": None, "blocks": None},
        )


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


@pytest.mark.parametrize(
    ("name", "training", "entrypoint", "arguments"),
    [
        (
            "bert",
            TOKENS,
            "plimsoll_trainer.huggingface:encoder",
            {"sequence_length": 128},
        ),
        (
            "bert",
            replace(TOKENS, task="sequence-classification", num_classes=3),
            "plimsoll_trainer.huggingface:encoder",
            {"sequence_length": 128, "task": "sequence-classification", "classes": 3},
        ),
        (
            "vit",
            Training(image_size=64),
            "plimsoll_trainer.huggingface:image_classifier",
            {"image_size": 64},
        ),
        (
            "torchvision:resnet18",
            Training(num_classes=10, task="image-classification"),
            "plimsoll_trainer.adapters.torchvision:image_classifier",
            {"classes": 10},
        ),
    ],
)
def test_a_family_has_its_entry_point(
    name: str, training: Training, entrypoint: str, arguments: dict[str, object]
) -> None:
    """With the arguments that it knows."""
    profiler = Profiler()
    profile_of(name, training, profiler)
    [request] = profiler.asked
    assert request.entrypoint == entrypoint
    assert json.loads(request.arguments) == {"model": name} | arguments


@pytest.mark.parametrize(
    ("name", "training", "option"),
    [
        ("vit", TOKENS, "--sequence"),
        ("bert", replace(TOKENS, image_size=8), "--image-size"),
        ("bert", replace(TOKENS, num_classes=8), "--classes"),
        ("bert", replace(TOKENS, lora_rank=8), "--lora"),
        ("torchvision:resnet18", Training(num_blocks=3), "--blocks"),
    ],
)
def test_an_option_of_another_family_is_refused(
    name: str, training: Training, option: str
) -> None:
    """It would be left out of account."""
    with pytest.raises(InvalidInputError, match=f"{option}: {name} is trained for"):
        profile_of(name, training, Profiler())


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
