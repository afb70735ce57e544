"""How models are read: parameters to the number, and what cannot be read."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers")

from transformers import CONFIG_MAPPING

from plimsoll_profiler.reading import survey
from plimsoll_profiler.reading.readings import reading_of
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.huggingface.configurations import bundled, configuration_of, kinds


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(bundled()))
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
        reading_of(CONFIG_MAPPING["nemotron_h"]())


def test_a_survey_goes_on_whatever_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """One is read, one refused, one has a fault; one takes too long, one dies."""
    wanted = ["llama", "bert", "zzz"]
    monkeypatch.setattr(survey, "kinds", lambda: wanted)
    read, refused, unknown = survey.survey()
    assert read.reading is not None
    assert read.reading.model_type == "llama"
    assert "set is_decoder=True" in refused.refusal
    assert "no model_type 'zzz'" in unknown.refusal

    def fail(_: object) -> None:
        raise ZeroDivisionError("nobody foresaw it")

    monkeypatch.setattr(survey, "reading_of", fail)
    monkeypatch.setattr(survey, "kinds", lambda: ["llama"])
    [failed] = survey.survey()
    assert failed.fault == "ZeroDivisionError: nobody foresaw it"
    monkeypatch.setattr(survey, "LONGEST_S", 0.0)
    [late] = survey.survey()
    assert late.fault == "it was not read within 0 s"


def test_all_causal_models_are_looked_at() -> None:
    """Those of the installed release."""
    assert {"llama", "gpt2", "qwen3"} <= set(kinds())
    assert survey.num_kinds() == len(kinds()) > 100
