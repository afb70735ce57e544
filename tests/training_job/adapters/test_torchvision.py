"""Classifiers of torchvision as chains: cut by their own code, they do the same."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("torchvision")

import torch
from torch import Tensor, nn
from torchvision import models

from plimsoll_trainer.adapters.labelled_images import LabelledImages
from plimsoll_trainer.adapters.losses import label_loss
from plimsoll_trainer.adapters.torchvision import image_classifier
from plimsoll_trainer.adapters.traced import from_traced, layers_of
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.workload import AdamW
from tests.support.model_pairs import apart, whole

BLOCK = models.resnet.BasicBlock
IMAGES = LabelledImages(channels=3, rows=32, columns=32, num_classes=5, seed=2)


def a_resnet() -> nn.Module:
    """Four stages of two blocks."""
    model: nn.Module = models.ResNet(BLOCK, [2, 2, 1, 1], num_classes=5)
    return model


def a_vit() -> nn.Module:
    """A class token and positions beside its modules."""
    model: nn.Module = models.VisionTransformer(
        image_size=32,
        patch_size=8,
        num_layers=2,
        num_heads=2,
        hidden_dim=16,
        mlp_dim=24,
        num_classes=5,
    )
    return model


def a_swin() -> nn.Module:
    """Two stages, with patches merged between them."""
    model: nn.Module = models.SwinTransformer(
        patch_size=[2, 2],
        embed_dim=8,
        depths=[2, 1],
        num_heads=[2, 4],
        window_size=[4, 4],
        stochastic_depth_prob=0.0,
        num_classes=5,
    )
    return model


MODELS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "resnet": (a_resnet, 9),
    "vit": (a_vit, 7),
    "swin": (a_swin, 8),
}


def key(tensor: Tensor) -> Any:
    """Something to sort tensors by."""
    return tuple(tensor.shape), tensor.double().sum().item()


@pytest.mark.parametrize("name", MODELS)
def test_a_traced_chain_computes_what_its_model_does(name: str) -> None:
    """Loss and all gradients are equal to the bit, and statistics move alike."""
    torch.manual_seed(3)
    make, num_layers = MODELS[name]
    model = make().train()
    workload = from_traced(
        model, loss=label_loss, batch=IMAGES.batch, optimizer=AdamW()
    )
    stage = whole(workload)
    assert len(workload.layers) == num_layers
    inputs, labels = workload.batch(0, 0, 4)
    ours = stage(inputs, targets=labels)
    assert isinstance(ours, Tensor)
    theirs = label_loss(model(inputs), labels)
    assert torch.equal(ours, theirs)
    torch.autograd.backward([ours, theirs])
    mine = [*stage.parameters(), *stage.buffers()]
    other = [*model.parameters(), *model.buffers()]
    assert len(mine) == len(other)
    for one, two in zip(sorted(mine, key=key), sorted(other, key=key), strict=True):
        assert torch.equal(one, two)
        if isinstance(two, nn.Parameter):
            assert one.grad is not None
            assert two.grad is not None
            assert apart(one.grad, two.grad) <= 1e-6


def test_layers_are_named_after_their_modules() -> None:
    """Norms with what follows them, blocks alone, the head behind its pooling."""
    names = [name for name, _ in layers_of(a_resnet())]
    assert names == [
        "conv1",
        "bn1",
        "layer1_0",
        "layer1_1",
        "layer2_0",
        "layer2_1",
        "layer3",
        "layer4",
        "fc",
    ]
    workload = image_classifier("resnet18", image_size=32, classes=5)
    kinds = {layer.name: layer.kind for layer in workload.layers}
    assert kinds["layer1_1"] == "layer1_0"
    assert [layer.name for layer in workload.layers if layer.recomputable] == [
        "conv1",
        "fc",
    ]


def test_weights_follow_from_the_seed() -> None:
    """Every process builds the same ones."""
    one, again, other = (
        image_classifier("squeezenet1_1", seed=seed).layers[0].factory()
        for seed in (1, 1, 2)
    )
    for left, right, third in zip(
        one.parameters(), again.parameters(), other.parameters(), strict=True
    ):
        assert torch.equal(left, right)
        assert left.ndim == 1 or not torch.equal(left, third)


class Branching(nn.Module):
    """Two ways through, which meet at the end."""

    def __init__(self) -> None:
        """Build it."""
        super().__init__()
        self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        """[b, 4] -> [b, 4]."""
        y: Tensor = self.left(x) + self.right(x)
        return y


class Deciding(nn.Module):
    """What it does depends on numbers."""

    def forward(self, x: Tensor) -> Tensor:
        """[b, 4] -> [b, 4]."""
        return x if x.sum() > 0 else -x


@pytest.mark.parametrize(
    ("model", "message"),
    [(Branching(), "Branching cannot be cut"), (Deciding(), "Deciding cannot be tr")],
)
def test_what_is_no_chain_is_refused(model: nn.Module, message: str) -> None:
    """The line says what to give instead."""
    with pytest.raises(WorkloadError, match=message):
        layers_of(model)


def test_a_name_that_is_not_there_is_refused() -> None:
    """With those that resemble it."""
    with pytest.raises(WorkloadError, match="classifier 'resnet51': did you mean resn"):
        image_classifier("torchvision:resnet51")


def test_without_torchvision_its_models_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The line says what to install."""
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(WorkloadError, match="torchvision is not installed"):
        image_classifier("resnet18")
