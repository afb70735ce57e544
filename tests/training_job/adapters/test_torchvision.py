"""Classifiers of torchvision as chains: cut by their own code, they do the same."""

from __future__ import annotations

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
from plimsoll_trainer.adapters.traced import from_traced
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
    ours = stage(inputs, labels)
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
