"""A workload from an image classifier of `transformers`, by configuration alone.

    image_classifier(ViTConfig(), classes=1000)
    image_classifier({"model_type": "swin"}, image_size=448)

Vision transformers and convolutional networks alike, as long as one tensor passes from
block to block; what a model does between its stages, such as merging patches, is a
layer of its own. Layers that keep statistics, as BatchNorm does, are not recomputed.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from transformers.configuration_utils import PreTrainedConfig

from plimsoll_planner.records.model_profile import Precision
from plimsoll_trainer.adapters.encoder import num_labels_of, with_classes
from plimsoll_trainer.adapters.labelled_images import LabelledImages
from plimsoll_trainer.adapters.losses import label_loss
from plimsoll_trainer.adapters.model_config import parse_config
from plimsoll_trainer.adapters.model_layers import dissected, model_workload
from plimsoll_trainer.adapters.model_tasks import TASKS, TaskName
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.workload import MakeBatch, MakeOptimizer, Workload

DEFAULT_SIZE = 224
"""Rows and columns, where a configuration says nothing: as in ImageNet's models."""
DEFAULT_CHANNELS = 3


def image_classifier(
    config: PreTrainedConfig | Mapping[str, Any],
    *,
    image_size: int | None = None,
    classes: int | None = None,
    batch: MakeBatch | None = None,
    optimizer: MakeOptimizer | None = None,
    precision: Precision = Precision.FP32,
    **fields: Any,
) -> Workload:
    """Build a workload that trains a classifier from fresh weights.

    Args:
        config: of the model; or a mapping with `model_type` and fields to change.
        image_size: rows and columns. Default: those of the configuration, or 224.
        classes: labels. Default: as many as the configuration has.
        batch: images [count, channel, row, column] and labels [count]. Default: images
            that are made (`labelled_images`).
        optimizer: default `AdamW()`.
        precision: of parameters and activations.
        fields: the other fields of `Workload`.

    Raises:
        WorkloadError: the model is not a chain of blocks, or takes no such images.
    """
    config = with_classes(parse_config(config, "image_classifier"), classes)
    config = with_size(config, image_size)
    channels, rows, columns = sample = sample_of(config, image_size)
    if batch is None:
        batch = LabelledImages(
            channels=channels,
            rows=rows,
            columns=columns,
            num_classes=num_labels_of(config),
            seed=int(fields.get("seed", 0)),
        ).batch
    return model_workload(
        dissected(config, TASKS[TaskName.IMAGE_CLASSIFICATION], sample),
        loss=label_loss,
        batch=batch,
        optimizer=optimizer,
        precision=precision,
        **fields,
    )


def with_size(config: PreTrainedConfig, image_size: int | None) -> PreTrainedConfig:
    """The configuration for images of a size, if one is given and it has a field.

    Raises:
        WorkloadError: an image has no pixel.
    """
    if image_size is None:
        return config
    if image_size < 1:
        raise WorkloadError(
            f"image_size {image_size} is below 1: give the rows of an image"
        )
    config = copy.deepcopy(config)
    vision = vision_part(config)
    if hasattr(vision, "image_size"):
        vision.image_size = image_size
    return config


def sample_of(config: PreTrainedConfig, image_size: int | None) -> tuple[int, int, int]:
    """Channels, rows and columns of an image."""
    vision = vision_part(config)
    size = image_size or getattr(vision, "image_size", None) or DEFAULT_SIZE
    rows, columns = (size, size) if isinstance(size, int) else size
    return getattr(vision, "num_channels", DEFAULT_CHANNELS), rows, columns


def vision_part(config: PreTrainedConfig) -> Any:
    """The configuration of what sees, in one of a model that reads as well."""
    return getattr(config, "vision_config", None) or config
