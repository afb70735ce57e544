"""Each family of models trains in two stages as it does in one."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from plimsoll_trainer.engine.boundaries import boundaries_of
from plimsoll_trainer.engine.stage import StageSlice
from plimsoll_trainer.engine.training import Trainer
from plimsoll_trainer.engine.world import join_world
from plimsoll_trainer.workload import Workload
from tests.support.ranks import run_ranks

CPU = torch.device("cpu")
SMALL = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
ENCODER = SMALL | {"vocab_size": 260, "max_position_embeddings": 32}
SWIN = {
    "image_size": 32,
    "patch_size": 2,
    "depths": [1, 1],
    "embed_dim": 16,
    "num_heads": [2, 4],
    "window_size": 4,
}


def an_encoder(model: str) -> Workload:
    """Find masked tokens."""
    from plimsoll_trainer.huggingface import encoder  # noqa: PLC0415 - in a rank

    return encoder(model, sequence_length=16, precision="fp32")


def a_classifier(model: str) -> Workload:
    """Tell images apart."""
    from plimsoll_trainer.huggingface import image_classifier  # noqa: PLC0415

    return image_classifier(model, classes=4, precision="fp32")


def of_torchvision(_: str) -> Workload:
    """Tell images apart, with statistics over a micro-batch."""
    from plimsoll_trainer.adapters.torchvision import image_classifier  # noqa: PLC0415 - see above

    return image_classifier("resnet18", image_size=32, classes=4, precision="fp32")


def train(
    make: Callable[[str], Workload], model: str, cuts: tuple[int, ...]
) -> list[tuple[float, float]]:
    """Losses and gradient norms of two steps, as one rank of a pipeline."""
    workload = make(model)
    world = join_world(len(cuts) - 1, 1, CPU)
    trainer = Trainer(
        workload,
        slices=[
            StageSlice(first_layer=first, end_layer=end, recomputed=frozenset())
            for first, end in pairwise((*cuts[:-1], len(workload.layers)))
        ],
        boundaries=boundaries_of(workload, 2),
        num_micro_batches=2,
        world=world,
    )
    steps = [trainer.run_step(step) for step in range(2)]
    return [(float(one.loss), float(one.gradient_norm or 0)) for one in steps]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "fields"),
    [
        (an_encoder, {"model_type": "bert"} | ENCODER),
        (an_encoder, {"model_type": "albert", "embedding_size": 16} | ENCODER),
        (
            a_classifier,
            {"model_type": "vit", "image_size": 32, "patch_size": 8} | SMALL,
        ),
        (a_classifier, {"model_type": "swin"} | SWIN),
        (of_torchvision, {}),
    ],
    ids=["bert", "albert", "vit", "swin", "resnet"],
)
def test_two_stages_train_as_one_process(
    make: Callable[[str], Workload], fields: dict[str, Any], tmp_path: Path
) -> None:
    """Losses are the same to the bit; norms too, where no weight is shared."""
    if make is of_torchvision:
        pytest.importorskip("torchvision")
    (tmp_path / "config.json").write_text(json.dumps(fields))
    [alone] = run_ranks(train, 1, make, str(tmp_path), (0, -1))
    *_, last = run_ranks(train, 2, make, str(tmp_path), (0, 2, -1))
    assert [loss for loss, _ in last] == pytest.approx([x for x, _ in alone], rel=1e-6)
    assert [norm for _, norm in last] == pytest.approx([x for _, x in alone], rel=1e-5)
    assert last[0] != last[1]
