"""How models are read: parameters to the number, and what cannot be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from transformers import CONFIG_MAPPING

from plimsoll_profiler.reading import survey
from plimsoll_profiler.reading.readings import read_model, reading_of
from plimsoll_profiler.reading.tasks import Family, family_of
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.huggingface.configurations import bundled, configuration_of
from tests.support.cases import all_but

SMALLEST = {
    bundled()[name]["configuration"]["model_type"]: name
    for name in sorted(bundled(), key=lambda name: -bundled()[name]["parameters"])
}
"""Bundled model of each architecture; the others are read at night."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    all_but(
        SMALLEST.values(),
        {name: name for name in sorted(bundled())},
        pytest.mark.nightly,
    ),
)
def test_a_bundled_model_has_its_parameters(name: str) -> None:
    """As many as its layers hold, shared ones once."""
    reading = reading_of(configuration_of(name))
    assert reading.num_parameters == bundled()[name]["parameters"]
    assert sum(one.count for one in reading.layers) > 7


def test_a_reading_says_what_is_shared_and_split() -> None:
    """Tied embeddings, norms of heads, a loss in pieces."""
    reading = reading_of(configuration_of("Qwen3-0.6B"))
    assert [(one.kind, one.count) for one in reading.layers] == [
        ("embedding", 1),
        ("block.0", 28),
        ("head", 1),
    ]
    assert all(one.can_split and one.can_split_sequence for one in reading.layers)
    [tie] = reading.ties
    assert tie.startswith("embedding.")
    assert " = head." in tie
    assert reading.not_split == ""
    assert reading.has_loss_in_pieces
    gpt2 = reading_of(configuration_of("GPT2"))
    assert "has no tp_plan of GPT2LMHeadModel" in gpt2.not_split
    assert not any(one.can_split for one in gpt2.layers)


def test_a_layer_that_cannot_be_built_apart_is_named() -> None:
    """It is an answer, not a traceback."""
    with pytest.raises(WorkloadError, match="cannot be built apart from its model"):
        reading_of(CONFIG_MAPPING["openai-gpt"]())


def test_a_survey_goes_on_whatever_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """One is read, one refused, one has a fault; one takes too long, one dies."""
    wanted = {
        Family.TEXT_GENERATION: ["llama", "bert", "zzz"],
        Family.FILL_MASK: ["bert"],
    }
    monkeypatch.setattr(survey, "kinds_in", lambda family: wanted.get(family, []))
    read, refused, unknown, encoder = survey.survey()
    assert read.reading is not None
    assert read.reading.model_type == "llama"
    assert "set is_decoder=True" in refused.refusal
    assert "no model_type 'zzz'" in unknown.refusal
    assert encoder.reading is not None
    assert encoder.family is Family.FILL_MASK

    def fail(*_: object) -> None:
        raise ZeroDivisionError("nobody foresaw it")

    monkeypatch.setattr(survey, "reading_of", fail)
    wanted = {Family.TEXT_GENERATION: ["llama"]}
    [failed] = survey.survey()
    assert failed.fault == "ZeroDivisionError: nobody foresaw it"
    monkeypatch.setattr(survey, "LONGEST_S", 0.0)
    [late] = survey.survey()
    assert late.fault == "it was not read within 0 s"


def test_all_families_are_looked_at() -> None:
    """Those of the installed releases."""
    for family, some, least in (
        (Family.TEXT_GENERATION, {"llama", "gpt2", "qwen3"}, 100),
        (Family.FILL_MASK, {"bert", "modernbert", "albert"}, 30),
        (Family.SEQUENCE_CLASSIFICATION, {"bert", "canine"}, 30),
        (Family.IMAGE_CLASSIFICATION, {"vit", "swin", "resnet"}, 30),
    ):
        assert some <= set(survey.kinds_in(family))
        assert len(survey.kinds_in(family)) > least
    assert "llama" not in survey.kinds_in(Family.SEQUENCE_CLASSIFICATION)
    counts = [len(survey.kinds_in(family)) for family in Family]
    assert survey.num_kinds() == sum(counts)


def test_a_model_is_of_the_family_of_its_configuration(tmp_path: Path) -> None:
    """By what it was saved as, or by what its kind is made for, or by its name."""
    for fields, family in (
        ({"model_type": "bert"}, Family.FILL_MASK),
        ({"model_type": "bert", "is_decoder": True}, Family.TEXT_GENERATION),
        (
            {"model_type": "bert", "architectures": ["BertForSequenceClassification"]},
            Family.SEQUENCE_CLASSIFICATION,
        ),
        ({"model_type": "llama"}, Family.TEXT_GENERATION),
        ({"model_type": "swin"}, Family.IMAGE_CLASSIFICATION),
        (
            {"model_type": "deit", "architectures": ["DeiTForImageClassification"]},
            Family.IMAGE_CLASSIFICATION,
        ),
        ({"model_type": "canine"}, Family.SEQUENCE_CLASSIFICATION),
        ({"model_type": "sam"}, Family.TEXT_GENERATION),
    ):
        (tmp_path / "config.json").write_text(json.dumps(fields))
        assert family_of(str(tmp_path)) is family, fields
    assert family_of("google-bert/bert-base-uncased") is Family.FILL_MASK
    assert family_of("Qwen3-8B") is Family.TEXT_GENERATION
    assert family_of("vit-base-patch16-224") is Family.IMAGE_CLASSIFICATION
    assert family_of("torchvision:resnet18") is Family.TORCHVISION
    assert family_of("no/such") is Family.TEXT_GENERATION


def test_a_task_chooses_the_family_of_a_model() -> None:
    """Its head is another one then."""
    reading = read_model("bert-base-uncased", "sequence-classification")
    assert reading.family is Family.SEQUENCE_CLASSIFICATION
    assert reading.num_parameters == 109_483_778
    with pytest.raises(WorkloadError, match="leave the task fill-mask away"):
        read_model("torchvision:resnet18", "fill-mask")
