"""A chain cut out of an encoder computes what the encoder computes."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import transformers

from plimsoll_trainer.adapters.encoder import encoder
from plimsoll_trainer.adapters.model_tasks import TaskName
from tests.support.model_pairs import check_same

SEQUENCE = 24
BASE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "vocab_size": 260,
    "max_position_embeddings": 64,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "bert": BASE,
    "roberta": BASE,
    "xlm-roberta": BASE,
    "albert": BASE | {"embedding_size": 16},
    "electra": BASE | {"embedding_size": 16},
    "distilbert": {
        "dim": 32,
        "hidden_dim": 48,
        "n_layers": 3,
        "n_heads": 4,
        "vocab_size": 260,
        "max_position_embeddings": 64,
    },
    "modernbert": BASE
    | {"global_attn_every_n_layers": 2, "local_attention": 8, "pad_token_id": 0},
}


def a_config(family: str, **fields: Any) -> Any:
    """Configure a tiny model without dropout."""
    config = transformers.AutoConfig.for_model(family, **FAMILIES[family])
    for name, value in vars(config).items():
        if "drop" in name and isinstance(value, float):
            setattr(config, name, 0.0)
    for name, value in fields.items():
        setattr(config, name, value)
    return config


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("task", [TaskName.FILL_MASK, TaskName.SEQUENCE_CLASSIFICATION])
def test_a_chain_computes_what_its_encoder_does(family: str, task: TaskName) -> None:
    """Losses and all gradients are equal with equal weights, shared ones included."""
    config = a_config(family)
    workload = encoder(config, sequence_length=SEQUENCE, task=task, seed=3)
    assert len(workload.layers) == 5
    check_same(workload, config, task)
