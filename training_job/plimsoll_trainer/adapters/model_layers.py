"""Layers of a model of `transformers`, and what they share, from its anatomy.

"embedding" is all that comes before the first block, "block.0" to "block.N-1" follow,
and "head" is all that comes after the last one; "between.2" is what a model does
between blocks 1 and 2, if anything. Every layer is built alone, with the model's own
initialisation. Called by the adapters of each task.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers.configuration_utils import PreTrainedConfig

from plimsoll_planner.records.model_profile import Precision
from plimsoll_trainer.adapters import sequential
from plimsoll_trainer.adapters.causality import takes_tokens_apart
from plimsoll_trainer.adapters.dissection import dissect
from plimsoll_trainer.adapters.model_anatomy import Anatomy, Slot
from plimsoll_trainer.adapters.model_copies import build_block, build_passage
from plimsoll_trainer.adapters.model_parts import buffer_of
from plimsoll_trainer.adapters.model_tasks import Task
from plimsoll_trainer.adapters.sequence_plan import (
    split_block_sequence,
    split_embedding_sequence,
    split_head_sequence,
)
from plimsoll_trainer.adapters.sequential import keeps_statistics
from plimsoll_trainer.adapters.tensor_names import (
    EMBEDDING,
    HEAD,
    block_name,
    members,
    passage_name,
)
from plimsoll_trainer.adapters.tensor_plan import (
    split_block,
    split_embedding,
    split_head,
    why_whole,
)
from plimsoll_trainer.adapters.trees import leaves_of
from plimsoll_trainer.workload import (
    DTYPES,
    TOKENS_AT_ONCE,
    AdamW,
    Layer,
    Loss,
    MakeBatch,
    MakeOptimizer,
    Parallelize,
    SumAndCount,
    Tie,
    TokenLoss,
    Workload,
)

MOST_PIECES = 64
"""Of a sample by default: each takes time in a trace."""
Anatomies = Mapping[torch.dtype, Anatomy]
"""Of one model in each type it can be asked for."""


def dissected(
    config: PreTrainedConfig, task: Task, sample: tuple[int, ...]
) -> Anatomies:
    """The model, taken apart in each type that it is asked for.

    Raises:
        WorkloadError: it is not a chain of blocks.
    """
    return Dissected(config, task, sample)


class Dissected(dict[torch.dtype, Anatomy]):
    """Anatomies of one model, each made when it is asked for."""

    def __init__(
        self, config: PreTrainedConfig, task: Task, sample: tuple[int, ...]
    ) -> None:
        """Take apart the model in fp32, by which its structure is judged."""
        super().__init__()
        self._dissect = partial(dissect, config, sample, task=task)
        self[torch.float32] = self._dissect(dtype=torch.float32)

    def __missing__(self, dtype: torch.dtype) -> Anatomy:
        """The anatomy in a type that was not asked for yet."""
        self[dtype] = self._dissect(dtype=dtype)
        return self[dtype]


def loss_of_tokens(
    anatomies: Anatomies,
    loss: Callable[[Tensor, Tensor], SumAndCount],
    tokens_at_once: int | None,
) -> Loss:
    """The loss, in pieces if the head takes some tokens of a sample alone.

    Args:
        anatomies: of the model.
        loss: of logits and targets, a sum and a count.
        tokens_at_once: at most. Default: 512, or a 64th of a longer sample.
    """
    anatomy = anatomies[torch.float32]
    if not takes_tokens_apart(anatomy):
        return loss
    [length] = anatomy.sample
    by_default = max(TOKENS_AT_ONCE, length // MOST_PIECES)
    return TokenLoss(loss, tokens_at_once or by_default)


def model_workload(
    anatomies: Anatomies,
    *,
    loss: Loss,
    batch: MakeBatch,
    optimizer: MakeOptimizer | None = None,
    precision: Precision = Precision.FP32,
    **fields: Any,
) -> Workload:
    """Workload of a model that was taken apart, from fresh weights."""
    anatomy = anatomies[DTYPES[Precision(precision).of_parameters]]
    return Workload(
        layers=layers_of(anatomies, anatomy),
        loss=loss,
        batch=batch,
        optimizer=optimizer or AdamW(),
        precision=precision,
        ties=tuple(ties_of(anatomy)),
        not_split=why_whole(anatomy),
        **fields,
    )


def layers_of(anatomies: Anatomies, anatomy: Anatomy) -> tuple[Layer, ...]:
    """Chain of layers; equal blocks are of one kind, named after the first of them."""
    kinds: dict[str, str] = {}
    layers = [passage_layer(anatomies, anatomy, 0)]
    for place, signature in enumerate(signatures(anatomy)):
        if place in anatomy.gaps:
            layers.append(passage_layer(anatomies, anatomy, place))
        name = block_name(place)
        layers.append(
            Layer(
                name=name,
                factory=partial(build_now, anatomies, build_block, place),
                kind=kinds.setdefault(signature, name),
                parallelize=split_block(anatomy, place),
                parallelize_sequence=split_block_sequence(anatomy, place),
                recomputable=not keeps_statistics(anatomy.blocks[place]),
            )
        )
    layers.append(passage_layer(anatomies, anatomy, len(anatomy.calls)))
    return tuple(layers)


def passage_layer(anatomies: Anatomies, anatomy: Anatomy, number: int) -> Layer:
    """The layer before a block, or behind the last one, a kind of its own."""
    name, organs = passage_name(anatomy, number), anatomy.organs
    split, split_sequence = ENDS.get(name, (whole, whole))
    kept = any(keeps_statistics(organs[path]) for path in anatomy.passages[number])
    return Layer(
        name=name,
        factory=partial(build_now, anatomies, build_passage, number),
        kind=name,
        parallelize=split(anatomy),
        parallelize_sequence=split_sequence(anatomy),
        recomputable=not kept,
    )


def whole(anatomy: Anatomy) -> None:
    """Do not split what lies between two blocks."""
    del anatomy


ENDS: Mapping[str, tuple[Callable[[Anatomy], Parallelize | None], ...]] = {
    EMBEDDING: (split_embedding, split_embedding_sequence),
    HEAD: (split_head, split_head_sequence),
}


def build_now(
    anatomies: Anatomies, build: Callable[..., nn.Module], *place: int
) -> nn.Module:
    """Build a layer in torch's default type, which the workload's precision sets."""
    return build(anatomies[torch.get_default_dtype()], *place)


def signatures(anatomy: Anatomy) -> list[str]:
    """Text, for each block, of all that its costs can depend on.

    That is what it is made of and called with. A number that is each block's own place
    tells nothing, as in `layer_idx=3` inside of block 3.
    """
    facts = [plain_facts(block) for block in anatomy.blocks]
    counting = {
        key
        for key in {key for each in facts for key in each}
        if all(
            type(found := each.get(key, place)) is int and found == place
            for place, each in enumerate(facts)
        )
    }
    rest = [{key: each[key] for key in each if key not in counting} for each in facts]
    return [
        f"{shape_of(block)} {call} {each}"
        for block, call, each in zip(anatomy.blocks, anatomy.calls, rest, strict=True)
    ]


RATE = re.compile(r"\bp=0\.\d*[1-9]\d*")
"""Of dropping out, in the text of a module."""


def shape_of(block: nn.Module) -> str:
    """Text of a block's modules; at which rate one drops out tells nothing."""
    return RATE.sub("p=some", repr(block))


def plain_facts(block: nn.Module) -> dict[tuple[str, str], object]:
    """Numbers and words that the modules of a block remember."""
    return {
        (path, name): sequential.fact(value, name)
        for path, module in block.named_modules()
        for name, value in sorted(vars(module).items())
        if isinstance(value, (bool, int, float, str))
    }


def ties_of(anatomy: Anatomy) -> Iterator[Tie]:
    """Yield what several layers share: tied weights, then constants of the blocks."""
    yield from sequential.ties_of(parameters_of_layers(anatomy))
    constants: dict[str, list[tuple[str, str]]] = {}
    for place, call in enumerate(anatomy.calls):
        for name in {
            buffer_of(slot) for slot in leaves_of((call.args, call.kwargs), Slot)
        }:
            constants.setdefault(name, []).append((block_name(place), name))
    for name in sorted(constants):
        if len(constants[name]) > 1:
            yield Tie(places=tuple(constants[name]), constant=True)


def parameters_of_layers(anatomy: Anatomy) -> Iterator[tuple[str, str, nn.Parameter]]:
    """Yield (layer, name inside the layer, parameter), shared ones at every place."""
    for one in members(anatomy):
        named = one.module.named_parameters(remove_duplicate=False)
        for name, parameter in named:
            yield one.layer, f"{one.own}.{name}", parameter
