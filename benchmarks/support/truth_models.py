"""The workloads and plans whose prediction is held against the truth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch import nn

from benchmarks.support.adapted_models import with_adapters
from examples import mlp, wide_layer
from plimsoll_planner.records.engine import OptimizerHome, Sharding
from plimsoll_planner.records.model_profile import Precision, Sequences
from plimsoll_planner.records.override import Override
from plimsoll_trainer.adapters.causal_lm import causal_lm
from plimsoll_trainer.optimizers import optimizer_named
from plimsoll_trainer.workload import LossScaling, Workload
from tests.support import unet

GLOBAL_BATCH = 16
MOST_RANKS = 8
LAYER_LEVELS = (Sharding.GRADIENTS, Sharding.PARAMETERS)
"""Of layers whose gradients, or all of them, are divided."""
SEQUENCE = 128
"""Tokens, or points, of a sample: so many that a pass is work and not only overhead."""
TOKENS_AT_ONCE = 24
"""In a head that recomputes: a few pieces of each sample, the last one smaller."""
LLAMA_LIKE = {
    "vocab_size": 256,
    "num_hidden_layers": 6,
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": SEQUENCE,
    "bos_token_id": None,
    "eos_token_id": None,
}
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "gpt2": {
        "model_type": "gpt2",
        "vocab_size": 256,
        "n_layer": 6,
        "n_embd": 128,
        "n_head": 4,
        "n_positions": SEQUENCE,
        "bos_token_id": None,
        "eos_token_id": None,
    },
    "llama": {"model_type": "llama", **LLAMA_LIKE},
    "mistral": {"model_type": "mistral", **LLAMA_LIKE, "num_key_value_heads": 4},
    "qwen2": {"model_type": "qwen2", "tie_word_embeddings": True, **LLAMA_LIKE},
    "opt": {
        "model_type": "opt",
        "vocab_size": 256,
        "num_hidden_layers": 6,
        "hidden_size": 128,
        "ffn_dim": 512,
        "num_attention_heads": 4,
        "word_embed_proj_dim": 128,
        "max_position_embeddings": SEQUENCE,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    },
    "llama bf16": {"model_type": "llama", **LLAMA_LIKE},
}
SCANNED = 12
"""Tokens of a state-space model, whose scan runs token by token on a CPU."""
MAMBA: dict[str, Any] = {
    "model_type": "mamba",
    "vocab_size": 256,
    "num_hidden_layers": 5,
    "hidden_size": 64,
    "state_size": 8,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}


def language_model(name: str) -> Workload:
    """Build a language model of small width."""
    precision = Precision.BF16 if name.endswith("bf16") else Precision.FP32
    return causal_lm(
        CONFIGURATIONS[name],
        sequence_length=SEQUENCE,
        precision=precision,
        tokens_at_once=TOKENS_AT_ONCE,
    )


MODELS: dict[str, Callable[[], Workload]] = {
    **{name: partial(language_model, name) for name in CONFIGURATIONS},
    "mlp chain": partial(mlp.workload, depth=8, width=512, num_points=SEQUENCE),
    "wide layer": partial(
        wide_layer.workload, depth=8, width=256, wide=4096, num_points=SEQUENCE
    ),
    "u-net": partial(unet.workload, width=16, depth=2),
    "mamba": partial(causal_lm, MAMBA, sequence_length=SCANNED),
}


RECIPE_LAYERS = 4
"""Blocks of the model that recipes train."""
FIRST_SCALE = 2.0**8
"""Of a loss in fp16: nothing overflows, so that the first step makes all state."""


def trained_by(optimizer: str, **arguments: Any) -> Workload:
    """Train a small Llama in fp32 with an optimizer by name."""
    return recipe(optimizer=optimizer_named(optimizer, **arguments))


def trained_in(precision: Precision, **fields: Any) -> Workload:
    """Train it with AdamW in another precision."""
    scaling = LossScaling(first=FIRST_SCALE)
    return recipe(precision=precision, loss_scaling=scaling, **fields)


def recipe(**fields: Any) -> Workload:
    """The small Llama that recipes train."""
    return causal_lm(
        CONFIGURATIONS["llama"] | {"num_hidden_layers": RECIPE_LAYERS},
        sequence_length=SEQUENCE,
        tokens_at_once=TOKENS_AT_ONCE,
        **fields,
    )


def adapted(name: str, **fields: Any) -> Workload:
    """Train low-rank adapters of a model of as many blocks."""
    config = CONFIGURATIONS[name] | {"num_hidden_layers": RECIPE_LAYERS}
    return with_adapters(config, SEQUENCE, TOKENS_AT_ONCE, **fields)


def partly_frozen() -> Workload:
    """Train the last blocks and the head, and of the others vectors alone."""
    made = recipe()
    half = len(made.layers) // 2
    frozen = (
        replace(
            layer, factory=partial(freeze, layer.factory), kind=f"{layer.kind}, frozen"
        )
        for layer in made.layers[:half]
    )
    return replace(made, layers=(*frozen, *made.layers[half:]))


def freeze(factory: Callable[[], nn.Module]) -> nn.Module:
    """Build a layer whose matrices are not trained."""
    module = factory()
    for parameter in module.parameters():
        parameter.requires_grad_(parameter.ndim < MATRIX)
    return module


MATRIX = 2
"""Dimensions."""
RECIPES: dict[str, Callable[[], Workload]] = {
    "sgd": partial(trained_by, "sgd"),
    "sgd, momentum": partial(trained_by, "sgd", momentum=0.9),
    "adafactor": partial(trained_by, "adafactor"),
    "muon": partial(trained_by, "muon"),
    "lion": partial(trained_by, "lion"),
    "adamw, 8 bits": partial(trained_by, "adamw-8bit"),
    "bf16, pure": partial(trained_in, Precision.PURE_BF16),
    "bf16, pure, sums too": partial(
        trained_in, Precision.PURE_BF16, gradient_precision=Precision.BF16
    ),
    "bf16, autocast": partial(trained_in, Precision.BF16_AUTOCAST),
    "fp16": partial(trained_in, Precision.FP16),
    "fp16, autocast": partial(trained_in, Precision.FP16_AUTOCAST),
    "partly frozen": partly_frozen,
    "adapters": partial(adapted, "llama"),
    "adapters, bf16, tied": partial(adapted, "qwen2", precision=Precision.BF16),
}


def workload(*, name: str) -> Workload:
    """Build a model or recipe by name; the entry point that is profiled."""
    return (MODELS | RECIPES)[name]()


@dataclass(frozen=True, kw_only=True, slots=True)
class Arrangement:
    """One way to spread a model."""

    cuts: tuple[int, ...]
    """First layer of each stage."""
    replicas: int = 1
    parts: int = 1
    """Ranks that share each layer."""
    sequences: Sequences = Sequences.WHOLE
    """Of these ranks."""
    micro_batch: int = 2
    recomputed: tuple[int, ...] = ()
    offloaded: tuple[int, ...] = ()
    """Of each stage none, or all that recompute, or some where none does."""
    shardings: tuple[Sharding, ...] = ()
    """Of each stage; empty: none."""
    caps: tuple[int, ...] = ()
    """Micro-batches in flight of each stage; empty: as many as the schedule has."""
    homes: tuple[OptimizerHome, ...] = ()
    """Of the optimizer of each stage; empty: its device."""

    @property
    def num_micro_batches(self) -> int:
        """M."""
        return GLOBAL_BATCH // self.replicas // self.micro_batch

    @property
    def in_flight(self) -> tuple[int, ...]:
        """Micro-batches in flight of each stage."""
        stages = len(self.cuts)
        plain = (min(self.num_micro_batches, stages - s) for s in range(stages))
        return self.caps or tuple(plain)

    def sharding_of(self, stage: int) -> Sharding:
        """Level of one stage."""
        return self.shardings[stage] if self.shardings else Sharding.NONE

    def home_of(self, stage: int) -> OptimizerHome:
        """Home of one stage's optimizer."""
        return self.homes[stage] if self.homes else OptimizerHome.DEVICE

    @property
    def num_ranks(self) -> int:
        """G."""
        return len(self.cuts) * self.ranks_per_stage

    @property
    def ranks_per_stage(self) -> int:
        """Ranks that hold the same layers, or parts of them."""
        return self.replicas * self.parts

    def override(self) -> Override:
        """The same as parts of a plan that are fixed by hand."""
        return Override(
            num_gpus=self.num_ranks,
            cuts=self.cuts,
            data_degree=self.replicas,
            tensor_degree=self.parts,
            sequences=self.sequences,
            micro_batch=self.micro_batch,
            recomputed_layers=self.recomputed,
            offloaded_layers=self.offloaded,
            sharding=self.sharding_of(0),
            optimizer_home=self.home_of(0),
            in_flight_caps=self.in_flight,
        )

    def __str__(self) -> str:
        """Show it in a table."""
        parts = (
            f"P{len(self.cuts)} D{self.replicas} T{self.parts} b{self.micro_batch}",
            f"sequences {self.sequences}",
            f"cuts {joined(self.cuts)} recompute {len(self.recomputed)}",
            f"in flight {joined(self.in_flight)}",
            f"sharded {joined(self.shardings) or 'none'}",
            f"optimizer {joined(self.homes) or 'device'}",
            f"offload {len(self.offloaded)}",
        )
        return " ".join(parts)


def joined(values: Iterable[object]) -> str:
    """Values with commas between."""
    return ",".join(map(str, values))


def arrangements(num_layers: int) -> Iterator[Arrangement]:
    """Yield kinds of plans: even, uneven, replicated, recomputed, small and large.

    Then those whose replicas divide the optimizer state, whose stages hold fewer
    micro-batches in flight than the schedule lets them, and both; and those whose
    optimizer is on the host, alone and with the others; and those whose last layer
    recomputes, in pieces with its loss where it can.
    """
    inner = tuple(range(1, num_layers - 1))
    half, last = num_layers // 2, num_layers - 1
    yield Arrangement(cuts=(0,))
    yield Arrangement(cuts=(0,), micro_batch=8, recomputed=inner)
    yield Arrangement(cuts=(0, half))
    yield Arrangement(cuts=(0, half + 1), micro_batch=1, recomputed=inner)
    yield Arrangement(cuts=(0, 1, last))
    yield Arrangement(cuts=(0, half), replicas=2, recomputed=inner[: half - 1])
    yield Arrangement(cuts=(0,), replicas=4, micro_batch=4)
    yield Arrangement(cuts=(0, 2, half, last), micro_batch=4)
    small = Arrangement(cuts=(0, 2, 4, last), micro_batch=1, recomputed=inner)
    yield replace(small, replicas=2)
    level = Sharding.OPTIMIZER
    divided = Arrangement(cuts=(0,), replicas=2, shardings=(level,))
    yield divided
    yield replace(divided, replicas=4, micro_batch=1, recomputed=inner)
    yield Arrangement(cuts=(0, half), replicas=2, shardings=(level, level))
    capped = Arrangement(cuts=(0, 2, half, last), caps=(2, 2, 1, 1))
    yield capped
    both = replace(capped, cuts=(0, half), replicas=2, micro_batch=1, caps=(1, 1))
    yield replace(both, shardings=(level, level))
    host = OptimizerHome.HOST
    yield Arrangement(cuts=(0, half), homes=(host, host))
    yield replace(divided, homes=(host,))
    yield replace(capped, micro_batch=1, recomputed=inner, homes=(host,) * 4)
    yield Arrangement(cuts=(0,), recomputed=(last,))
    yield Arrangement(cuts=(0, half), replicas=2, recomputed=(*inner, last))


def split_arrangements(
    num_layers: int, parts: int, sequences: Sequences = Sequences.WHOLE
) -> Iterator[Arrangement]:
    """Yield plans whose layers so many ranks share, with all else that plans have."""
    inner = tuple(range(1, num_layers - 1))
    half = num_layers // 2
    one = Arrangement(cuts=(0,), parts=parts, sequences=sequences)
    yield one
    yield replace(one, micro_batch=8, recomputed=inner)
    two = replace(one, cuts=(0, half))
    yield replace(two, recomputed=inner[:half])
    host = OptimizerHome.HOST
    yield replace(two, micro_batch=1, caps=(1, 1), homes=(host, host))
    for level in (Sharding.OPTIMIZER, Sharding.PARAMETERS):
        divided = replace(one, replicas=2, shardings=(level,))
        also_in_two = replace(divided, cuts=(0, half), shardings=(level, level))
        for how in (divided, replace(also_in_two, recomputed=inner)):
            if how.num_ranks <= MOST_RANKS:
                yield how


def recipe_arrangements(
    num_layers: int, *, is_divisible: bool
) -> Iterator[Arrangement]:
    """Yield plans of one model by another recipe, with most of what plans have."""
    inner, half = tuple(range(1, num_layers - 1)), num_layers // 2
    yield Arrangement(cuts=(0,))
    yield Arrangement(cuts=(0, half), recomputed=inner[:half])
    host = (OptimizerHome.HOST,) * 3
    yield Arrangement(cuts=(0, 2, half), micro_batch=1, homes=host)
    yield Arrangement(cuts=(0, half), replicas=2, offloaded=inner)
    if is_divisible:
        levels = (Sharding.OPTIMIZER,), (Sharding.PARAMETERS,) * 2
        yield Arrangement(cuts=(0,), replicas=2, shardings=levels[0], recomputed=inner)
        yield Arrangement(cuts=(0, half), replicas=2, shardings=levels[1])


def sharded_arrangements(num_layers: int, level: Sharding) -> Iterator[Arrangement]:
    """Yield plans whose replicas divide what layers hold, at work or between steps."""
    inner, half = tuple(range(1, num_layers - 1)), num_layers // 2
    one = Arrangement(cuts=(0,), replicas=2, shardings=(level,))
    yield one
    yield replace(one, homes=(OptimizerHome.HOST,), recomputed=inner)
    yield replace(one, replicas=4, micro_batch=1, recomputed=inner)
    two = replace(one, cuts=(0, half), shardings=(level, level))
    yield two
    yield replace(two, micro_batch=1, recomputed=inner)
    yield replace(two, replicas=4, micro_batch=1)


def offloaded_arrangements(num_layers: int, parts: int = 1) -> Iterator[Arrangement]:
    """Yield plans whose activations wait on the host, with all else that plans have."""
    inner, half = tuple(range(1, num_layers - 1)), num_layers // 2
    every, last = tuple(range(num_layers)), num_layers - 1
    yield Arrangement(cuts=(0,), parts=parts, offloaded=every)
    yield Arrangement(cuts=(0, half), parts=parts, offloaded=inner)
    both = Arrangement(cuts=(0, half), parts=parts, recomputed=inner, offloaded=inner)
    yield both
    if parts > 1:
        return
    yield replace(
        both, micro_batch=8, recomputed=(*inner, last), offloaded=(*inner, last)
    )
    first = tuple(range(1, half))
    yield replace(both, cuts=(0, half, last), recomputed=inner[half:], offloaded=first)
    yield Arrangement(cuts=(0, 2, half, last), caps=(2, 2, 1, 1), offloaded=first)
    level, host = Sharding.PARAMETERS, OptimizerHome.HOST
    divided = Arrangement(cuts=(0,), replicas=2, shardings=(level,), offloaded=inner)
    yield divided
    yield replace(divided, recomputed=inner, homes=(host,), micro_batch=1)
    level = Sharding.OPTIMIZER
    two = Arrangement(cuts=(0, half), replicas=2, shardings=(level, level))
    yield replace(two, offloaded=every, homes=(host, host))
