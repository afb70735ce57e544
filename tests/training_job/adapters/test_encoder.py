"""A chain cut out of an encoder computes what the encoder computes."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
import transformers

from plimsoll_trainer.adapters.encoder import encoder
from plimsoll_trainer.adapters.model_tasks import TaskName
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.workload import TokenLoss
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
    "camembert": BASE,
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


def test_layers_that_are_one_share_their_weights() -> None:
    """ALBERT has one block, which is called three times: a kind, and ties."""
    layers = (made := encoder(a_config("albert"), sequence_length=SEQUENCE)).layers
    assert [layer.kind for layer in layers] == ["embedding", *3 * ["block.0"], "head"]
    shared = [tie.places for tie in made.ties if len(tie.places) == 3]
    assert len(shared) == len(list(layers[1].factory().parameters()))
    assert {name for places in shared for name, _ in places} == {
        "block.0",
        "block.1",
        "block.2",
    }


def test_a_masked_loss_is_taken_in_pieces() -> None:
    """The head judges each token alone; that of a classifier sees all of them."""
    config = a_config("bert")
    assert isinstance(encoder(config, sequence_length=SEQUENCE).loss, TokenLoss)
    task = TaskName.SEQUENCE_CLASSIFICATION
    made = encoder(config, sequence_length=SEQUENCE, task=task, classes=7)
    assert not isinstance(made.loss, TokenLoss)
    assert made.layers[-1].factory()(torch.zeros(2, SEQUENCE, 32)).shape == (2, 7)
    assert made.batch(0, 0, 3)[1].shape == (3,)


@pytest.mark.parametrize(
    ("family", "fields", "message"),
    [
        ("bert", {"vocab_size": 256}, "vocab_size 256 is below 257, but the default"),
        ("bert", {"max_position_embeddings": 8}, "beyond max_position_embeddings 8"),
        ("roberta", {"max_position_embeddings": 24}, "is too long for the 'roberta'"),
        ("camembert", {"max_position_embeddings": 25}, "25 is out of bounds"),
    ],
)
def test_what_does_not_fit_is_refused(
    family: str, fields: dict[str, Any], message: str
) -> None:
    """On a device, an index beyond a table ends the process."""
    with pytest.raises(WorkloadError, match=message):
        encoder(a_config(family, **fields), sequence_length=SEQUENCE)


def test_what_goes_around_the_blocks_is_refused() -> None:
    """MPNet makes a table of positions once, of weights, for all of its blocks."""
    config = transformers.AutoConfig.for_model("mpnet", **BASE)
    with pytest.raises(WorkloadError, match="has no list of blocks that pass one"):
        encoder(config, sequence_length=SEQUENCE)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"task": "text-generation"}, "one of fill-mask, sequence-classification"),
        ({"classes": 1}, "classes 1 is below 2"),
        ({"sequence_length": 0}, "sequence_length 0 is below 1"),
    ],
)
def test_arguments_are_checked(fields: dict[str, Any], message: str) -> None:
    """Each in one line."""
    with pytest.raises(WorkloadError, match=message):
        encoder(a_config("bert"), **({"sequence_length": SEQUENCE} | fields))
