"""A Llama of any size, by its shapes.

    spec:
      workload: {entrypoint: "examples.llama:llama_8b", args: {sequence_length: 8192}}

Used by tiny-llama.yaml, llama-8b.yaml, llama-70b.yaml and cheapest.yaml. In bf16 the
optimizer works on master weights in fp32 and gradients are added up in fp32, so AdamW
takes 18 bytes for each parameter; 16 where they are added up in bf16.
The text is made of bytes; the vocabulary keeps its size all the same, because the
logits are what a large vocabulary costs.
"""

from __future__ import annotations

from transformers import LlamaConfig

from plimsoll_planner.records.model_profile import Precision
from plimsoll_trainer.adapters.causal_lm import causal_lm
from plimsoll_trainer.workload import Workload


def workload(  # noqa: PLR0913 - the arguments of a manifest
    *,
    depth: int = 4,
    width: int = 128,
    heads: int = 4,
    key_value_heads: int = 2,
    mlp_width: int = 352,
    vocabulary: int = 256,
    sequence_length: int = 128,
    tied: bool = False,
    precision: str = "fp32",
    gradient_precision: str = "fp32",
) -> Workload:
    """Build the model.

    Args:
        depth: number of blocks.
        width: of the activations.
        heads: of the queries; divides the width.
        key_value_heads: of keys and values; divides `heads`.
        mlp_width: inside the feed-forward part.
        vocabulary: number of tokens, 256 at least.
        sequence_length: tokens in a sample.
        tied: whether the head has the weights of the embedding.
        precision: fp32 or bf16.
        gradient_precision: in which gradients are added up, fp32 or bf16.
    """
    config = LlamaConfig(
        vocab_size=vocabulary,
        num_hidden_layers=depth,
        hidden_size=width,
        num_attention_heads=heads,
        num_key_value_heads=key_value_heads,
        intermediate_size=mlp_width,
        max_position_embeddings=sequence_length,
        rope_parameters={"rope_type": "default", "rope_theta": 500_000.0},
        tie_word_embeddings=tied,
    )
    return causal_lm(
        config,
        sequence_length=sequence_length,
        precision=Precision(precision),
        gradient_precision=Precision(gradient_precision),
    )


def llama_1b(
    *,
    sequence_length: int = 4096,
    precision: str = "bf16",
    gradient_precision: str = "fp32",
) -> Workload:
    """Build the shape of Llama 3.2 with 1.2 billion parameters."""
    return workload(
        depth=16,
        width=2048,
        heads=32,
        key_value_heads=8,
        mlp_width=8192,
        vocabulary=128256,
        sequence_length=sequence_length,
        tied=True,
        precision=precision,
        gradient_precision=gradient_precision,
    )


def llama_8b(
    *,
    sequence_length: int = 4096,
    precision: str = "bf16",
    gradient_precision: str = "fp32",
) -> Workload:
    """Build the shape of Llama 3 with 8 billion parameters."""
    return workload(
        depth=32,
        width=4096,
        heads=32,
        key_value_heads=8,
        mlp_width=14336,
        vocabulary=128256,
        sequence_length=sequence_length,
        precision=precision,
        gradient_precision=gradient_precision,
    )


def llama_70b(
    *,
    sequence_length: int = 8192,
    precision: str = "bf16",
    gradient_precision: str = "fp32",
) -> Workload:
    """Build the shape of Llama 3 with 70 billion parameters."""
    return workload(
        depth=80,
        width=8192,
        heads=64,
        key_value_heads=8,
        mlp_width=28672,
        vocabulary=128256,
        sequence_length=sequence_length,
        precision=precision,
        gradient_precision=gradient_precision,
    )
