"""Tensor groups share the layers of models of `transformers` as these say."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from plimsoll_trainer.adapters.causal_lm import causal_lm
from plimsoll_trainer.workload import Workload
from tests.support.cases import at_night, named
from tests.support.ranks import run_ranks
from tests.training_job.test_tensor_parallel import FP32
from tests.training_job.test_transparency import Kind, relative, train_ranks

CONFIGURATION: dict[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 128,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
TIED = {"tie_word_embeddings": True}
NEOX = {"num_key_value_heads": 8}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": TIED,
    "phi3": {},
    "gpt_neox": NEOX,
    "gemma2": {"head_dim": 8},
    "olmo2": {},
    "qwen3": {"head_dim": 8},
    "gemma3_text": {"head_dim": 8},
}
SIMILAR = ("phi3", "gemma2", "olmo2", "qwen3")
"""Families that are split like another one here."""
BY_SEQUENCE = ("llama", "gpt_neox", "olmo2", "qwen3")
"""With a tied embedding, one that is not split, norms of all heads, norms of each."""
WHOLE = [
    ("gpt2", {}, "transformers has no tp_plan of GPT2LMHeadModel"),
    ("mixtral", {}, "of MixtralForCausalLM is split as "),
    ("llama", {"attention_dropout": 0.1}, "attention_dropout is 0.1, whose masks are"),
]
"""Of the first nothing is said; the second has experts."""


def a_model(kind: str, fields: dict[str, Any], **of_workload: Any) -> Workload:
    """Build a small model of a family."""
    config = {"model_type": kind} | CONFIGURATION | fields
    return causal_lm(config, sequence_length=16, tokens_at_once=5, **of_workload)


@pytest.mark.slow  # 10 s of CPU each
@pytest.mark.parametrize("kind", at_night(SIMILAR, named(FAMILIES)))
def test_a_family_is_split_without_a_change(kind: str) -> None:
    """Losses, norms and gradients of two stages of two ranks equal those of one.

    There the head recomputes, and so takes a few tokens at a time.
    """
    make = partial(a_model, kind, FAMILIES[kind])
    one = Kind(cuts=(0, 4), make=make, global_batch=4, num_steps=3)
    four = replace(
        one,
        cuts=(0, 2, 4),
        parts=2,
        sequence=kind in BY_SEQUENCE,
        recomputed=frozenset((1, 3)),
    )
    [(losses, norms, gradients)] = run_ranks(train_ranks, 1, one)
    for their_losses, their_norms, theirs in run_ranks(train_ranks, 4, four):
        assert their_losses == pytest.approx(losses, rel=FP32[0])
        assert their_norms == pytest.approx(norms, rel=FP32[0])
        assert theirs
        for name, gradient in theirs.items():
            assert relative(gradient, gradients[name]) <= FP32[1], name


@pytest.mark.parametrize(
    ("kind", "fields", "why"), WHOLE, ids=["gpt2", "mixtral", "dropout"]
)
def test_what_nobody_knows_how_to_split_stays_whole(
    kind: str, fields: dict[str, Any], why: str
) -> None:
    """No layer of it says how, and the workload says why."""
    workload = a_model(kind, fields)
    layers = workload.layers
    ways = [(layer.parallelize, layer.parallelize_sequence) for layer in layers]
    assert ways == [(None, None)] * len(layers)
    assert why in workload.not_split


def test_a_model_that_drops_out_keeps_sequences_whole() -> None:
    """Beside its projections, in functions, each rank would draw for its part."""
    layers = a_model("starcoder2", {"residual_dropout": 0.1}).layers
    assert all(layer.parallelize for layer in layers)
    assert not any(layer.parallelize_sequence for layer in layers)
