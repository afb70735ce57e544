"""Entry points for models of `transformers`, for which nobody has to write code.

    entrypoint: plimsoll_trainer.huggingface:pretrain
    args: '{"model": "Qwen3-8B", "sequence_length": 8192}'

In: arguments from YAML. Out: a `Workload`. Called by whoever loads an entry point.
"""

from __future__ import annotations

from plimsoll_planner.records.model_profile import Precision
from plimsoll_trainer.adapters.causal_lm import causal_lm
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.huggingface.configurations import configuration_of, with_blocks
from plimsoll_trainer.workload import AdamW, Workload


def pretrain(
    model: str,
    *,
    sequence_length: int,
    blocks: int | None = None,
    precision: str = Precision.BF16.value,
    learning_rate: float = 1e-4,
    weight_decay: float = 0.1,
    seed: int = 0,
) -> Workload:
    """Train a causal language model from fresh weights.

    Args:
        model: folder or file of its configuration, a bundled name, or one of the hub.
        sequence_length: tokens in a sample.
        blocks: their number, if not that of the configuration.
        precision: of parameters and activations; bf16 has masters in fp32.
        learning_rate: of AdamW.
        weight_decay: of AdamW.
        seed: of weights, data and dropout.

    Raises:
        WorkloadError: there is no such model, or it is not one that can be cut.
    """
    if precision not in list(Precision):
        raise WorkloadError(
            f"precision {precision!r}: one of {', '.join(Precision)} is needed"
        )
    config = configuration_of(model)
    return causal_lm(
        config if blocks is None else with_blocks(config, blocks),
        sequence_length=sequence_length,
        precision=Precision(precision),
        optimizer=AdamW(learning_rate=learning_rate, weight_decay=weight_decay),
        seed=seed,
    )
