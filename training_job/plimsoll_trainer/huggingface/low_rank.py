"""Low-rank adapters (LoRA, Hu et al. 2021), which train in place of the weights.

The linear layers of the blocks get two small matrices each, by `peft`; the layers'
weights are frozen. A frozen parameter has no gradient and no optimizer state, so the
profile finds what is left by itself.

    y = W x + alpha / rank * B A x        A: rank x in, at random; B: out x rank, zero

In: the argument `lora` and the blocks of a model. Out: a `LowRank`, which puts adapters
into layers and adds them to weights. Called by `workloads` and `prepared_layers`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from plimsoll_planner.records.bounds import Count, Fraction
from plimsoll_planner.records.record import Record
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.torch_internals.operators import without_modes
from plimsoll_trainer.typed import Names, NotNegative, fields_of

LINEAR = (nn.Linear, Conv1D)
LORA = "lora_"
"""In the names of an adapter's tensors."""
ADAPTER = "default"
"""Name that `peft` knows the adapter by, inside of the names of its tensors."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LowRank:
    """Adapters of one shape for all blocks."""

    rank: int
    alpha: float
    dropout: float
    targets: tuple[str, ...]
    """Last parts of the names of linear layers, as in `q_proj`."""
    merge: bool
    """Whether exported weights have the adapters added to them; else these alone are
    exported."""
    turned: frozenset[str]
    """Targets whose weight has its inputs first, as those of GPT-2."""

    def config(self, targets: Iterable[str]) -> LoraConfig:
        """The adapters as `peft` describes them, for linear layers of some names."""
        scale: Any = self.alpha  # declared to be whole, and used as any number
        return LoraConfig(
            r=self.rank,
            lora_alpha=scale,
            lora_dropout=self.dropout,
            target_modules=list(targets),
            bias="none",
            task_type="CAUSAL_LM",
        )

    def put_into(self, module: nn.Module) -> None:
        """Let a layer have adapters, if it has linear layers that are to have one.

        They start from torch's random numbers, and freeze what is there.
        """
        paths = [
            path
            for path in linear_paths(module)
            if path.rpartition(".")[2] in self.targets
        ]
        if not paths:
            return
        # Without bytes at first: `peft` moves what it makes, which nothing traced can.
        with without_modes():
            inject_adapter_in_model(
                *(self.config(paths), module, ADAPTER), low_cpu_mem_usage=True
            )
        for inner in module.modules():
            if isinstance(inner, LoraLayer):
                fill(inner)

    def merged(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Tensors of a layer with the adapters added, under their names without them.

        The sum is taken in fp32, and left in it.
        """
        found: dict[str, Tensor] = {}
        for name, tensor in tensors.items():
            if LORA in name:
                continue
            path, base, own = name.rpartition(".base_layer.")
            plain = name.replace(".base_layer.", ".")
            found[plain] = tensor
            if base and own == "weight":
                a, b = (
                    tensors[f"{path}.{LORA}{which}.{ADAPTER}.weight"].float()
                    for which in "AB"
                )
                product = self.alpha / self.rank * (b @ a)
                is_turned = path.rpartition(".")[2] in self.turned
                found[plain] = tensor.float() + (product.T if is_turned else product)
        return found


def fill(layer: Any) -> None:
    """Give an adapter its first numbers, in the type of the weights beside it."""
    dtype = layer.get_base_layer().weight.dtype
    for matrix in (layer.lora_A[ADAPTER], layer.lora_B[ADAPTER]):
        matrix.weight = nn.Parameter(torch.empty(matrix.weight.shape, dtype=dtype))
    layer.reset_lora_parameters(ADAPTER, init_lora_weights=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class LowRankFields(Record):
    """Fields of the argument `lora`."""

    rank: Count
    alpha: NotNegative | None = None
    """Default: twice the rank."""
    dropout: Fraction = 0.0
    targets: Names | None = None
    """Default: all linear layers."""
    merge: bool = False


def low_rank(given: object, blocks: Sequence[nn.Module]) -> LowRank:
    """Adapters from the argument of an entry point.

    Args:
        given: see `LowRankFields`.
        blocks: of the model, on the meta device.

    Raises:
        WorkloadError: a field is unknown or of the wrong kind, or names no linear
            layer.
    """
    fields = fields_of(LowRankFields, given, "lora")
    linear = linear_names(blocks)
    for name in fields.targets or ():
        if name not in linear:
            raise WorkloadError(
                f"lora targets {name!r}, and no linear layer of a block has that name: "
                f"there are {', '.join(linear)}"
            )
    return LowRank(
        rank=fields.rank,
        alpha=2.0 * fields.rank if fields.alpha is None else fields.alpha,
        dropout=fields.dropout,
        targets=fields.targets or linear,
        merge=fields.merge,
        turned=frozenset(linear_names(blocks, (Conv1D,))),
    )


def linear_names(
    blocks: Iterable[nn.Module], kinds: tuple[type[nn.Module], ...] = LINEAR
) -> tuple[str, ...]:
    """Last parts of the names of all linear layers in blocks, in order."""
    return tuple(
        dict.fromkeys(
            path.rpartition(".")[2]
            for block in blocks
            for path in linear_paths(block, kinds)
        )
    )


def linear_paths(
    module: nn.Module, kinds: tuple[type[nn.Module], ...] = LINEAR
) -> Iterator[str]:
    """Yield paths of linear layers: of those that compute what the kind itself does.

    A router may be a subclass that gives scores and indices; it is none.
    """
    forwards = {vars(kind)["forward"] for kind in kinds}
    for path, inner in module.named_modules():
        if isinstance(inner, kinds) and type(inner).forward in forwards:
            yield path
