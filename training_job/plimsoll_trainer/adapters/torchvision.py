"""A workload from an image classifier of `torchvision`, by its name.

    entrypoint: plimsoll_trainer.adapters.torchvision:image_classifier
    args: '{"model": "resnet50", "image_size": 224}'

In: a name of `torchvision.models`. Out: a `Workload`, cut as `traced` does. Weights are
fresh; each process builds the model once in the memory of the host. `torchvision` is
imported when a model of it is asked for.
"""

from __future__ import annotations

import difflib
from typing import Any

import torch
from torch import nn

from plimsoll_planner.records.model_profile import Precision
from plimsoll_trainer.adapters.labelled_images import LabelledImages
from plimsoll_trainer.adapters.losses import label_loss
from plimsoll_trainer.adapters.traced import from_traced
from plimsoll_trainer.errors import WorkloadError, described
from plimsoll_trainer.workload import AdamW, MakeBatch, MakeOptimizer, Workload

PREFIX = "torchvision:"
"""Of a name, where it could be one of another library."""
CHANNELS = 3
DEFAULT_SIZE = 224
DEFAULT_CLASSES = 1000
"""Those of ImageNet."""


def image_classifier(  # noqa: PLR0913 - the arguments of a manifest
    model: str,
    *,
    image_size: int = DEFAULT_SIZE,
    classes: int = DEFAULT_CLASSES,
    batch: MakeBatch | None = None,
    optimizer: MakeOptimizer | None = None,
    precision: str = Precision.BF16.value,
    learning_rate: float = 1e-3,
    weight_decay: float = 0.05,
    seed: int = 0,
    **fields: Any,
) -> Workload:
    """Train a classifier from fresh weights.

    Args:
        model: its name in `torchvision.models`, as in `resnet50`.
        image_size: rows and columns.
        classes: labels.
        batch: images [count, 3, row, column] and labels [count]. Default: images that
            are made (`labelled_images`).
        optimizer: default `AdamW` with the rates below.
        precision: of parameters and activations; bf16 has masters in fp32.
        learning_rate: of AdamW.
        weight_decay: of AdamW.
        seed: of weights, data and dropout.
        fields: the other fields of `Workload`.

    Raises:
        WorkloadError: `torchvision` is not installed or has no such classifier, or it
            is not a chain.
    """
    if batch is None:
        batch = LabelledImages(
            channels=CHANNELS,
            rows=image_size,
            columns=image_size,
            num_classes=classes,
            seed=seed,
        ).batch
    return from_traced(
        built(model.removeprefix(PREFIX), classes, seed),
        loss=label_loss,
        batch=batch,
        optimizer=optimizer
        or AdamW(learning_rate=learning_rate, weight_decay=weight_decay),
        precision=Precision(precision),
        seed=seed,
        **fields,
    )


def built(name: str, classes: int, seed: int) -> nn.Module:
    """A classifier with fresh weights, which follow from the seed.

    Raises:
        WorkloadError: there is none of that name, or it cannot be built.
    """
    known = names()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=3)
        alike = f": did you mean {' or '.join(close)}?" if close else ""
        raise WorkloadError(f"torchvision has no classifier {name!r}{alike}")
    models = library()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            model: nn.Module = models.get_model(name, num_classes=classes, **ALONE)
            return model.train()
        except TypeError:  # most have no such field
            pass
        torch.manual_seed(seed)
        try:
            model = models.get_model(name, num_classes=classes)
        except Exception as error:
            raise WorkloadError(
                f"torchvision cannot build {name!r}: {described(error)}"
            ) from error
        return model.train()


ALONE = {"aux_logits": False, "init_weights": True}
"""Of the models that judge an image at several depths: only their last output."""


def names() -> list[str]:
    """Names of all classifiers that are there.

    Raises:
        WorkloadError: `torchvision` is not installed.
    """
    models = library()
    found: list[str] = models.list_models(module=models)
    return found


def library() -> Any:
    """`torchvision.models`.

    Raises:
        WorkloadError: it is not installed.
    """
    try:
        from torchvision import models  # noqa: PLC0415 - no other workload needs it
    except ModuleNotFoundError as error:
        if error.name != "torchvision":
            raise
        raise WorkloadError(
            "torchvision is not installed, which has this model: install it, or name "
            "one of transformers"
        ) from None
    return models
