"""A chain cut out of an image classifier computes what the classifier computes."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import transformers

from plimsoll_trainer.adapters.image_classifier import image_classifier
from plimsoll_trainer.adapters.model_tasks import TaskName
from tests.support.model_pairs import check_same

VIT = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "image_size": 32,
    "patch_size": 8,
}
STAGES = {"image_size": 32, "patch_size": 2, "depths": [2, 2], "drop_path_rate": 0.0}
FAMILIES: dict[str, dict[str, Any]] = {
    "vit": VIT,
    "deit": VIT,
    "beit": VIT | {"drop_path_rate": 0.0},
    "dinov2": VIT,
    "swin": STAGES | {"embed_dim": 16, "num_heads": [2, 4], "window_size": 4},
    "convnext": STAGES | {"hidden_sizes": [16, 32], "num_stages": 2},
    "resnet": {
        "depths": [2, 2],
        "hidden_sizes": [16, 32],
        "embedding_size": 8,
        "layer_type": "basic",
        "image_size": 32,
    },
}


def a_config(family: str) -> Any:
    """Configure a tiny model without dropout."""
    config = transformers.AutoConfig.for_model(family, **FAMILIES[family])
    for name, value in vars(config).items():
        if "drop" in name and isinstance(value, float):
            setattr(config, name, 0.0)
    config.num_labels = 5
    return config


@pytest.mark.parametrize("family", FAMILIES)
def test_a_chain_computes_what_its_classifier_does(family: str) -> None:
    """Losses and all gradients are equal with equal weights and statistics."""
    config = a_config(family)
    workload = image_classifier(config, image_size=32, seed=3)
    assert len(workload.layers) > 4
    check_same(workload, config, TaskName.IMAGE_CLASSIFICATION)
