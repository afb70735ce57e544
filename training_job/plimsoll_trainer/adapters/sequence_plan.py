"""How a tensor group splits sequences between the layers of a language model.

Modules around projections, such as attention, have whole sequences, and the parameters
in them are used on these; norms and sums beside them have this rank's part:

    x, part -> [norm, part] -> gathered [q, k, v, ..., o] -> part, + x

A model that `tensor_plan` does not split, that drops out beside what is split, or that
has other modules there than norms, keeps its sequences whole.

In: an `Anatomy`. Out: for a layer of the chain a function that splits it. Called by
`causal_lm`.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

from plimsoll_trainer.adapters.model_anatomy import Anatomy
from plimsoll_trainer.adapters.tensor_plan import (
    PartOfSum,
    Styles,
    Ways,
    can_be_split,
    heads_of,
    split,
    split_heads,
    ways_of,
    ways_of_block,
)
from plimsoll_trainer.sequence_parallel import (
    SEQUENCE,
    gather_input,
    give_part,
    used_on_parts,
    used_on_whole,
)
from plimsoll_trainer.workload import Parallelize

WHOLE, PARTS = Replicate(), Shard(SEQUENCE)
ROWS = partial(RowwiseParallel, input_layouts=WHOLE, output_layouts=PARTS)
WAYS: Styles = {
    "colwise": ColwiseParallel,
    "rowwise": partial(RowwiseParallel, output_layouts=PARTS),
    "colwise_gather_output": partial(ColwiseParallel, output_layouts=WHOLE),
    "rowwise_split_input": ROWS,
    "embedding_rowwise": ROWS,
    "replicated_with_grad_allreduce": PartOfSum,
}
"""Of modules that are given whole sequences, by the names of `transformers`."""
WAYS_OF_HEAD: Styles = {
    "colwise_gather_output": partial(
        ColwiseParallel, input_layouts=PARTS, output_layouts=WHOLE
    )
}
"""Of the module that makes logits, which is given parts."""


def split_block_sequence(anatomy: Anatomy, place: int) -> Parallelize | None:
    """How one block is split with its sequences; None if nobody knows."""
    ways, block = ways_of_block(anatomy, place), anatomy.blocks[place]
    around = {path.rpartition(".")[0] for path in ways}
    beside = {
        f"block.{path}": module
        for path, module in block.named_modules()
        if has_parameters(module) and not is_in(f"block.{path}", around)
    }
    is_known = ways and "block" not in around and all(map(is_norm, beside.values()))
    if not is_known or not sequences_can_be_split(anatomy):
        return None
    divide = partial(split_layer, ways=ways, around=around, on_parts=tuple(beside))
    return partial(split_heads, divide, heads_of(anatomy))


def split_embedding_sequence(anatomy: Anatomy) -> Parallelize | None:
    """How the first layer is split with its sequences; None if nobody knows."""
    trained = [path for path in anatomy.before if is_trained(anatomy, path)]
    if len(trained) != 1 or not sequences_can_be_split(anatomy):
        return None
    ways = ways_of(anatomy, trained)
    whole = () if ways else (f"model.{trained[0]}",)
    return partial(split_layer, ways=ways, on_parts=whole, given_whole=whole)


def split_head_sequence(anatomy: Anatomy) -> Parallelize | None:
    """How the last layer is split with its sequences; None if nobody knows."""
    organs, ways = anatomy.organs, ways_of(anatomy, anatomy.after)
    beside = {
        f"model.{path}": organs[path]
        for path in anatomy.after
        if is_trained(anatomy, path) and f"model.{path}" not in ways
    }
    is_known = ways and set(ways.values()) <= set(WAYS_OF_HEAD)
    is_known = is_known and all(map(is_norm, beside.values()))
    if not is_known or not sequences_can_be_split(anatomy):
        return None
    return partial(split_layer, ways=ways, on_parts=tuple(beside), styles=WAYS_OF_HEAD)


def split_layer(
    module: nn.Module,
    mesh: DeviceMesh,
    *,
    ways: Ways,
    around: Collection[str] = (),
    on_parts: Collection[str] = (),
    given_whole: Collection[str] = (),
    styles: Styles = WAYS,
) -> None:
    """Split the modules of a layer, and the sequences beside them.

    Args:
        module: the layer.
        mesh: the ranks that share it.
        ways: of the modules that are split.
        around: modules that have whole sequences, though they are given parts.
        on_parts: modules whose parameters each rank uses on its part.
        given_whole: those of them that are given whole sequences, and give parts.
        styles: by the names of the ways.
    """
    for path in around:
        inside = module.get_submodule(path)
        used_on_whole(*inside.parameters())
        gather_input(inside, mesh)
    for path in on_parts:
        used_on_parts(*module.get_submodule(path).parameters())
    for path in given_whole:
        give_part(module.get_submodule(path), mesh)
    split(ways, module, mesh, styles)


def sequences_can_be_split(anatomy: Anatomy) -> bool:
    """Whether the model judges each token, is split, and drops out nothing beside.

    There each rank would draw for its part alone.
    """
    if not anatomy.task.judges_tokens:
        return False
    config = anatomy.model.config.get_text_config(decoder=True)
    drops_out = any(
        isinstance(rate, float) and rate > 0
        for name, rate in config.to_dict().items()
        if name.endswith(("dropout", "pdrop")) and not name.startswith("classifier")
    )
    return can_be_split(anatomy) and not drops_out


def is_trained(anatomy: Anatomy, path: str) -> bool:
    """Whether an organ has parameters."""
    return any(True for _ in anatomy.organs[path].parameters())


def has_parameters(module: nn.Module) -> bool:
    """Whether a module has parameters that are in none of its children."""
    return any(True for _ in module.parameters(recurse=False))


def is_norm(module: nn.Module) -> bool:
    """Whether a module has vectors alone, which it uses on each position alike."""
    return all(parameter.ndim <= 1 for parameter in module.parameters())


def is_in(path: str, around: Collection[str]) -> bool:
    """Whether a module is one of some others, or in one."""
    return any(f"{path}.".startswith(f"{one}.") for one in around)
