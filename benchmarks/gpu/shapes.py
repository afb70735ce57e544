"""Sizes of the decoders that `make gpu` measures, by the public models they are of.

In: nothing. Out: `MODELS`, by name. Sizes are those of the public configurations named
beside them. On emulated devices every size is divided, so that the same code runs in
seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from plimsoll_planner.records.model_profile import Precision


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """Sizes of a decoder; the fields of transformers' configurations by our words."""

    width: int
    depth: int
    heads: int
    kv_heads: int
    mlp: int
    vocabulary: int
    sequence_length: int
    precision: Precision
    is_llama_like: bool = True
    """RMSNorm, rotary positions and a gated MLP; else those of GPT-2."""
    qkv_bias: bool = False
    is_tied: bool = False

    @property
    def head_width(self) -> int:
        """Of one attention head."""
        return self.width // self.heads

    def tiny(self) -> Shape:
        """The same shape for an emulated device: thousandths of its numbers."""
        ratio = max(self.heads // self.kv_heads, 1)
        heads = 2 * ratio
        return replace(
            self,
            width=16 * heads,
            depth=min(self.depth, 4),
            heads=heads,
            kv_heads=2,
            mlp=16 * heads * self.mlp // self.width,
            vocabulary=512,
            sequence_length=self.sequence_length // 32,
        )


BF16, FP32 = Precision.BF16, Precision.FP32
GPT2 = Shape(
    width=768,
    depth=12,
    heads=12,
    kv_heads=12,
    mlp=3072,
    vocabulary=50257,
    sequence_length=512,
    precision=BF16,
    is_llama_like=False,
    qkv_bias=True,
    is_tied=True,
)
"""The smallest of its family, at half of its positions."""
MODELS = {
    # openai-community/gpt2, 0.12 B parameters
    "gpt2-bf16-512": GPT2,
    # openai-community/gpt2-medium, 0.35 B
    "gpt2-medium-fp32-1024": replace(
        GPT2,
        width=1024,
        depth=24,
        heads=16,
        kv_heads=16,
        mlp=4096,
        sequence_length=1024,
        precision=FP32,
    ),
    # openai-community/gpt2-xl, 1.6 B
    "gpt2-xl-bf16-1024": replace(
        GPT2,
        width=1600,
        depth=48,
        heads=25,
        kv_heads=25,
        mlp=6400,
        sequence_length=1024,
        precision=BF16,
    ),
    # meta-llama/Llama-3.2-1B, 1.2 B
    "llama-1b-bf16-4096": Shape(
        width=2048,
        depth=16,
        heads=32,
        kv_heads=8,
        mlp=8192,
        vocabulary=128256,
        sequence_length=4096,
        precision=BF16,
        is_tied=True,
    ),
    # meta-llama/Llama-3.2-3B, 3.2 B
    "llama-3b-bf16-2048": Shape(
        width=3072,
        depth=28,
        heads=24,
        kv_heads=8,
        mlp=8192,
        vocabulary=128256,
        sequence_length=2048,
        precision=BF16,
        is_tied=True,
    ),
    # mistralai/Mistral-7B-v0.3 at 6 of its 32 layers, 1.6 B
    "mistral-6l-bf16-8192": Shape(
        width=4096,
        depth=6,
        heads=32,
        kv_heads=8,
        mlp=14336,
        vocabulary=32768,
        sequence_length=8192,
        precision=BF16,
    ),
    # Qwen/Qwen2.5-0.5B, 0.49 B
    "qwen-0.5b-bf16-4096": Shape(
        width=896,
        depth=24,
        heads=14,
        kv_heads=2,
        mlp=4864,
        vocabulary=151936,
        sequence_length=4096,
        precision=BF16,
        qkv_bias=True,
        is_tied=True,
    ),
}
