"""A small GPT on the text that Python itself comes with.

    spec:
      workload: {entrypoint: "examples.tiny_gpt:workload", args: {depth: 8}}

The shapes of GPT-2 by configuration, with one token for each byte, a tied embedding and
dropout. At the default size a step takes a fraction of a second on one CPU.
"""

from __future__ import annotations

from transformers import GPT2Config

from plimsoll_planner.records.model_profile import Precision
from plimsoll_trainer.adapters.causal_lm import causal_lm
from plimsoll_trainer.workload import AdamW, Workload


def workload(
    *,
    depth: int = 4,
    width: int = 64,
    heads: int = 4,
    sequence_length: int = 64,
    dropout: float = 0.1,
    precision: str = "fp32",
    learning_rate: float = 1e-3,
    seed: int = 0,
) -> Workload:
    """Build the model.

    Args:
        depth: number of blocks.
        width: of the activations.
        heads: of attention; divides the width.
        sequence_length: tokens in a sample.
        dropout: of embedding, attention and residuals alike.
        precision: fp32 or bf16.
        learning_rate: of AdamW.
        seed: of weights, dropout and samples.
    """
    config = GPT2Config(
        vocab_size=256,
        bos_token_id=None,
        eos_token_id=None,
        n_layer=depth,
        n_embd=width,
        n_head=heads,
        n_positions=sequence_length,
        embd_pdrop=dropout,
        attn_pdrop=dropout,
        resid_pdrop=dropout,
    )
    return causal_lm(
        config,
        sequence_length=sequence_length,
        precision=Precision(precision),
        optimizer=AdamW(learning_rate=learning_rate),
        seed=seed,
    )
