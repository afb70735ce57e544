"""Entry point for image classifiers of `transformers`, without code of one's own.

    entrypoint: plimsoll_trainer.huggingface:image_classifier
    args: '{"model": "vit-base-patch16-224", "classes": 1000}'

In: arguments from YAML. Out: a `Workload`. Called by whoever loads an entry point.
"""

from __future__ import annotations

from plimsoll_planner.records.bounds import Count, Name
from plimsoll_planner.records.model_profile import Precision
from plimsoll_trainer.adapters.image_classifier import (
    image_classifier as image_classifier_of,
)
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.huggingface.configurations import configuration_of, with_blocks
from plimsoll_trainer.huggingface.recipes import Named, recipe_of
from plimsoll_trainer.typed import NotNegative, Seed, typed
from plimsoll_trainer.workload import Workload


@typed
def image_classifier(  # noqa: PLR0913 - the arguments of a manifest
    model: Name,
    *,
    image_size: Count | None = None,
    classes: Count | None = None,
    blocks: Count | None = None,
    precision: str = Precision.BF16.value,
    optimizer: Named = "adamw",
    learning_rate: NotNegative = 1e-3,
    weight_decay: NotNegative = 0.05,
    schedule: Named = "constant",
    seed: Seed = 0,
    trust_remote_code: bool = False,
) -> Workload:
    """Train an image classifier from fresh weights, on images that are made.

    Args:
        model: folder or file of its configuration, a bundled name, or one of the hub.
        image_size: rows and columns, if not those of the configuration.
        classes: labels, if not as many as the configuration has.
        blocks: their number, if not that of the configuration.
        precision: of parameters and activations; bf16 has masters in fp32.
        optimizer: its name, or that and more fields (`plimsoll_trainer.optimizers`).
        learning_rate: of the optimizer.
        weight_decay: of matrices.
        schedule: of the learning rate: its name, or that and more fields
            (`plimsoll_trainer.schedules`).
        seed: of weights, data and dropout.
        trust_remote_code: whether code that comes with the model may be run.

    Raises:
        WorkloadError: there is no such model, or it is not one that can be cut.
    """
    config = configuration_of(model, trust_remote_code=trust_remote_code)
    if blocks is not None:
        if hasattr(config, "depths"):
            raise WorkloadError(
                f"{model} has stages of {config.depths} blocks, not a number of blocks:"
                " leave blocks away, and give a configuration with other depths"
            )
        config = with_blocks(config, blocks)
    return image_classifier_of(
        config,
        image_size=image_size,
        classes=classes,
        **recipe_of(
            precision=precision,
            optimizer=optimizer,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            schedule=schedule,
        ),
        seed=seed,
    )
