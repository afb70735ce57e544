"""How a tensor group shares the layers of a model of `transformers`.

`transformers` says of many models how each projection is split (their `tp_plan`). A
model of which it says nothing, or a way that is not known here, is not split.

In: an `Anatomy`. Out: for a layer of the chain a function that splits it. Called by
`causal_lm`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)

from plimsoll_trainer.adapters.model_anatomy import Anatomy
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.sequence_parallel import used_on_parts
from plimsoll_trainer.workload import Parallelize


class PartOfSum(ParallelStyle):
    """Parameters that all ranks have, and each uses on the heads that are here.

    Their gradients are added up over the ranks at the end of a step.
    """

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        """Declare them; torch calls it for each module of a plan."""
        del device_mesh
        used_on_parts(*module.parameters())
        return module


Styles = Mapping[str, Callable[[], ParallelStyle]]
"""By the names of ways."""
WAYS: Styles = {
    "colwise": ColwiseParallel,
    "rowwise": RowwiseParallel,
    "colwise_gather_output": partial(ColwiseParallel, output_layouts=Replicate()),
    "rowwise_split_input": partial(RowwiseParallel, input_layouts=Replicate()),
    "embedding_rowwise": partial(RowwiseParallel, input_layouts=Replicate()),
    "replicated_with_grad_allreduce": PartOfSum,
}
"""By the names of `transformers`."""
HEADS = ("num_attention_heads", "num_key_value_heads")
"""Fields of a configuration, of heads that are divided whole."""
DROPOUTS = ("attention_dropout", "attn_pdrop")
"""Fields of a configuration, of what attention drops out."""
Ways = Mapping[str, str]
"""By the path of a module in a layer."""


def split_block(anatomy: Anatomy, place: int) -> Parallelize | None:
    """How one block is split; None if nobody knows."""
    divide = splitting(ways_of_block(anatomy, place), anatomy)
    return divide and partial(split_heads, divide, heads_of(anatomy))


def heads_of(anatomy: Anatomy) -> dict[str, int]:
    """Numbers of heads, by their field of the configuration."""
    config = anatomy.model.config.get_text_config(decoder=True)
    found = {field: getattr(config, field, None) for field in HEADS}
    return {field: number for field, number in found.items() if type(number) is int}


def split_heads(
    divide: Parallelize, heads: Mapping[str, int], module: nn.Module, mesh: DeviceMesh
) -> None:
    """Split a block, each rank with as many whole heads.

    Raises:
        WorkloadError: there are not as many for each.
    """
    for field, number in heads.items():
        if number % mesh.size():
            raise WorkloadError(
                f"{field} is {number}, which the tensor degree does not divide"
            )
    divide(module, mesh)


def split_embedding(anatomy: Anatomy) -> Parallelize | None:
    """How the first layer is split; None if nobody knows."""
    return splitting(ways_of(anatomy, anatomy.before), anatomy)


def split_head(anatomy: Anatomy) -> Parallelize | None:
    """How the last layer is split; None if nobody knows."""
    return splitting(ways_of(anatomy, anatomy.after), anatomy)


def ways_of_block(anatomy: Anatomy, place: int) -> Ways:
    """Ways of the modules of one block, by their path in its layer."""
    path = anatomy.block_paths[place]
    return {
        f"block.{name}": way
        for name, _ in anatomy.blocks[place].named_modules()
        if (way := way_of(anatomy, f"{path}.{name}"))
    }


def ways_of(anatomy: Anatomy, organs: Iterable[str]) -> Ways:
    """Ways of some organs, by their path in a layer at an end of the chain."""
    found = {f"model.{path}": way_of(anatomy, path) for path in organs}
    return {path: way for path, way in found.items() if way}


def splitting(ways: Ways, anatomy: Anatomy) -> Parallelize | None:
    """A function that splits modules, if all ways of the model are known."""
    return partial(split, ways) if ways and can_be_split(anatomy) else None


def can_be_split(anatomy: Anatomy) -> bool:
    """Whether all ways of the model are known."""
    return not why_whole(anatomy)


def why_whole(anatomy: Anatomy) -> str:
    """Why no layer of the model is split, and what to do; empty if they are.

    Attention that drops out draws for all heads at once, and not for some of them.
    """
    model, ways = anatomy.model, plan_of(anatomy)
    name = type(model).__name__
    if not ways:
        advice = "give layers a `parallelize`, as in docs/workload.md"
        return f"transformers has no tp_plan of {name}: {advice}"
    unknown = [path for path, way in ways.items() if way not in WAYS]
    if unknown:
        return f"{unknown[0]} of {name} is split as {ways[unknown[0]]}, not known here"
    config = model.config.get_text_config(decoder=True)
    for field in DROPOUTS:
        if rate := getattr(config, field, 0.0):
            return f"{field} is {rate}, whose masks are of all heads at once: set it 0"
    return ""


def split(
    ways: Ways, module: nn.Module, mesh: DeviceMesh, styles: Styles = WAYS
) -> None:
    """Split the modules of a layer, each in its way."""
    plan = {path: styles[way]() for path, way in ways.items()}
    parallelize_module(module, mesh, plan, src_data_rank=None)


def plan_of(anatomy: Anatomy) -> Ways:
    """Way of each module of the model, a star for the place of a block."""
    return dict(anatomy.model.tp_plan or {})


def way_of(anatomy: Anatomy, path: str) -> str:
    """Way of a module of the model; empty if it has none."""
    parts = ("*" if part.isdigit() else part for part in path.split("."))
    return plan_of(anatomy).get(".".join(parts), "")
