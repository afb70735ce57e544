"""A chain cut out of an image classifier computes what the classifier computes."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
import transformers

from plimsoll_trainer.adapters.image_classifier import image_classifier
from plimsoll_trainer.adapters.model_tasks import TaskName
from plimsoll_trainer.engine.boundaries import boundaries_of
from plimsoll_trainer.errors import WorkloadError
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


def test_stages_have_layers_between_them() -> None:
    """Swin merges patches there; equal blocks are of one kind."""
    made = image_classifier(a_config("swin"), seed=3)
    assert [layer.name for layer in made.layers] == [
        "embedding",
        "block.0",
        "block.1",
        "between.2",
        "block.2",
        "block.3",
        "head",
    ]
    assert made.layers[3].factory()(torch.zeros(2, 256, 16)).shape == (2, 64, 32)


def test_rates_of_dropping_blocks_make_no_kinds() -> None:
    """BEiT drops each block at a rate of its own, which costs the same."""
    config = transformers.AutoConfig.for_model("beit", **VIT | {"drop_path_rate": 0.3})
    kinds = [layer.kind for layer in image_classifier(config).layers]
    assert kinds == ["embedding", "block.0", "block.1", "block.1", "head"]


def test_layers_that_keep_statistics_are_not_recomputed() -> None:
    """All of a ResNet but its head; none of a transformer."""
    made = image_classifier(a_config("resnet"))
    assert [layer.recomputable for layer in made.layers] == 5 * [False] + [True]
    made = image_classifier(a_config("vit"))
    assert all(layer.recomputable for layer in made.layers)


def test_sizes_and_classes_can_be_chosen() -> None:
    """They are those of the samples, and of the head."""
    made = image_classifier(a_config("vit"), image_size=48, classes=3)
    images, labels = made.batch(0, 0, 40)
    assert images.shape == (40, 3, 48, 48)
    assert set(labels.tolist()) == {0, 1, 2}
    assert made.layers[-1].factory()(torch.zeros(2, 37, 32)).shape == (2, 3)


def test_layers_are_traced_though_their_weights_are_drawn_between_bounds() -> None:
    """Without values nobody knows when all of them lie there."""
    shapes = boundaries_of(image_classifier(a_config("vit")), 2)
    assert shapes.between[1].shape == (2, 17, 32)
    assert shapes.between[-1].shape == (2, 5)


def test_what_is_no_chain_of_images_is_refused() -> None:
    """Tokens of a class beside the modules; a size of nothing."""
    config = transformers.AutoConfig.for_model("cvt")
    with pytest.raises(WorkloadError, match="'cls_token' beside its modules"):
        image_classifier(config, image_size=32)
    with pytest.raises(WorkloadError, match="image_size 0 is below 1"):
        image_classifier(a_config("vit"), image_size=0)
    with pytest.raises(
        WorkloadError, match="cannot be built as a classifier of images"
    ):
        image_classifier({"model_type": "llama"})
