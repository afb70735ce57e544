"""Entry point for encoders of `transformers`, for which nobody has to write code.

    entrypoint: plimsoll_trainer.huggingface:encoder
    args: '{"model": "bert-base-uncased", "sequence_length": 512}'

In: arguments from YAML. Out: a `Workload`. Called by whoever loads an entry point.
"""

from __future__ import annotations

from plimsoll_planner.records.bounds import Count, Name
from plimsoll_planner.records.model_profile import Precision
from plimsoll_trainer.adapters.encoder import encoder as encoder_of
from plimsoll_trainer.adapters.model_tasks import TaskName
from plimsoll_trainer.huggingface.configurations import configuration_of, with_blocks
from plimsoll_trainer.huggingface.recipes import Named, recipe_of
from plimsoll_trainer.typed import NotNegative, Seed, typed
from plimsoll_trainer.workload import Workload


@typed
def encoder(  # noqa: PLR0913 - the arguments of a manifest
    model: Name,
    *,
    sequence_length: Count,
    task: str = TaskName.FILL_MASK.value,
    classes: Count | None = None,
    blocks: Count | None = None,
    precision: str = Precision.BF16.value,
    optimizer: Named = "adamw",
    learning_rate: NotNegative = 1e-4,
    weight_decay: NotNegative = 0.01,
    schedule: Named = "constant",
    seed: Seed = 0,
    trust_remote_code: bool = False,
) -> Workload:
    """Train an encoder from fresh weights, on text without padding.

    Args:
        model: folder or file of its configuration, a bundled name, or one of the hub.
        sequence_length: tokens in a sample.
        task: `fill-mask` or `sequence-classification`.
        classes: labels of the latter, if not as many as the configuration has.
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
    return encoder_of(
        config if blocks is None else with_blocks(config, blocks),
        sequence_length=sequence_length,
        task=task,
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
