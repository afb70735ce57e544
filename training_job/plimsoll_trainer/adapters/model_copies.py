"""Builds the layers of a model of `transformers`, each alone and with fresh weights.

In: an `Anatomy`, which holds no bytes. Out: the modules of `model_parts`, made on
torch's default device under fake tensors as well; their
weights follow from the state of torch's random numbers. The copies are made with a memo
that says what stands in place of which tensor and module, so that nothing is ever built
that the layer does not keep.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.configuration_utils import PreTrainedConfig

from plimsoll_trainer.adapters.model_anatomy import Anatomy, ReachedBlockError, Slot
from plimsoll_trainer.adapters.model_parts import (
    Absent,
    Block,
    Doorway,
    Gate,
    Passage,
    StandIn,
    buffer_of,
)
from plimsoll_trainer.adapters.model_tasks import blank_inputs, run_model
from plimsoll_trainer.adapters.trees import beside, leaves_of
from plimsoll_trainer.adapters.without_values import Starting
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.torch_internals.operators import FakeTensor, num_writes

NOTHING: Mapping[int, nn.Module] = {}
NO_MASK = "no_attention_here"
"""A kind of attention that `transformers` has no mask for, so that it makes none."""


def build_passage(
    anatomy: Anatomy, number: int, replaced: Mapping[int, nn.Module] = NOTHING
) -> Passage:
    """Build what lies before a block, or behind the last one.

    Args:
        anatomy: of the model.
        number: of the passage; 0 is the first layer, that of `build_head` the last.
        replaced: modules by the identity of those that they take the place of.
    """
    num_blocks = len(anatomy.calls)
    gate = Gate(enter=number - 1, stop=number if number < num_blocks else -1)
    kept = [path for path in anatomy.passages[number] if path not in anatomy.sideways]
    # A model of images makes none.
    masks = anatomy.needs_masks or not anatomy.task.takes_tokens
    model = emptied(anatomy, gate, kept, masks=masks, replaced=replaced)
    return Passage(model, gate, anatomy)


def build_embedding(anatomy: Anatomy) -> Passage:
    """Build the first layer."""
    return build_passage(anatomy, 0)


def build_head(
    anatomy: Anatomy, replaced: Mapping[int, nn.Module] = NOTHING
) -> Passage:
    """Build the last layer; by identity, some of its modules are replaced by others."""
    return build_passage(anatomy, len(anatomy.calls), replaced)


def fails_without_masks(anatomy: Anatomy) -> bool:
    """Whether a model asks something of a mask on its way to the first block."""
    inputs = blank_inputs(anatomy.task, anatomy.model, (1, *anatomy.sample), "meta")
    try:
        with torch.device("meta"), torch.random.fork_rng(devices=[]), torch.no_grad():
            build_embedding(anatomy)(inputs)
    except (AttributeError, TypeError):
        return True
    except Exception:  # noqa: BLE001 - their code, in a form it was not made for
        return False
    return False


def build_block(anatomy: Anatomy, place: int) -> Block:
    """Build one block."""
    memo = shared_configs(anatomy.model, masks=True)
    copied = copied_module(anatomy.blocks[place], memo)
    initialise(copied, anatomy.owner_of(place))
    return with_constants(copied, anatomy, place)


def with_constants(copied: nn.Module, anatomy: Anatomy, place: int) -> Block:
    """A copy of a block, with what the model gives it besides the activations."""
    call = anatomy.calls[place]
    block = Block(copied, call.args, call.kwargs)
    slots = leaves_of((call.args, call.kwargs), Slot)
    made = constants(anatomy, place) if slots else []
    for slot, tensor in zip(slots, made, strict=True):
        block.register_buffer(buffer_of(slot), tensor, persistent=False)
    return block


@torch.no_grad()
def constants(anatomy: Anatomy, place: int) -> list[Tensor]:
    """Constants that a block is given besides the activations, for one sample.

    Raises:
        WorkloadError: one of them depends on weights.
    """
    gate = Gate(stop=place)
    passages = anatomy.passages[: place + 1]
    kept = [
        path for each in passages for path in each if makes_constants(anatomy, path)
    ]
    model = emptied(anatomy, gate, kept, masks=True)
    device = str(torch.get_default_device())
    shape = (1, *anatomy.sample)
    inputs = blank_inputs(anatomy.task, anatomy.model, shape, device)
    gate.begin(inputs)
    try:
        run_model(anatomy.task, model, inputs)
    except ReachedBlockError as reached:
        given = (reached.args_of_block, reached.kwargs_of_block)
    else:
        raise RuntimeError(f"the forward pass went by block {place}")
    call = anatomy.calls[place]
    made = [own(tensor) for tensor in beside((call.args, call.kwargs), Slot, given)]
    if any(is_of_nothing(tensor) for tensor in made):
        raise WorkloadError(
            f"block {place} of the {anatomy.model.config.model_type!r} model is given "
            "a second tensor that depends on what is in another layer"
        )
    return made


def makes_constants(anatomy: Anatomy, path: str) -> bool:
    """Whether what an organ makes depends on no weight that is trained."""
    has_parameters = any(True for _ in anatomy.organs[path].parameters())
    return not has_parameters or path in anatomy.without_gradient


def is_of_nothing(tensor: Tensor) -> bool:
    """Whether a tensor was made of one that stands in for another."""
    has_values = not isinstance(tensor, FakeTensor) and not tensor.is_meta
    return has_values and tensor.is_floating_point() and bool(tensor.isnan().any())


def own(tensor: Tensor) -> Tensor:
    """A tensor that keeps no larger one alive."""
    fits = tensor.untyped_storage().nbytes() <= tensor.nbytes
    return tensor if fits else tensor.clone()


def emptied(
    anatomy: Anatomy,
    gate: Gate,
    kept: Collection[str],
    *,
    masks: bool,
    replaced: Mapping[int, nn.Module] = NOTHING,
) -> PreTrainedModel:
    """A copy of the model with some organs only, and with doorways for blocks.

    The organs at the paths `kept` get weights and buffers; without `masks` its forward
    pass makes no attention masks.
    """
    model = anatomy.model
    memo = {**shared_configs(model, masks=masks), **replaced}
    for block in anatomy.blocks:
        if id(block) not in memo:
            memo[id(block)] = Doorway(block, anatomy, gate)
    for path, organ in anatomy.organs.items():
        if path in kept:
            continue
        output = anatomy.outputs.get(path)
        memo[id(organ)] = (
            Absent(organ) if output is None else StandIn(organ, output, gate)
        )
    copied = copied_module(model, memo)
    initialise(copied, model)
    return cast(PreTrainedModel, copied)


def shared_configs(model: PreTrainedModel, *, masks: bool) -> dict[int, Any]:
    """Memo of a copy in which configurations are not copied with each module."""
    memo: dict[int, Any] = {}
    for module in model.modules():
        config = getattr(module, "config", None)
        if isinstance(config, PreTrainedConfig) and id(config) not in memo:
            memo[id(config)] = config if masks else without_masks(config)
    return memo


def without_masks(config: PreTrainedConfig) -> PreTrainedConfig:
    """A copy of a configuration with which a model makes no attention masks."""
    config = copy.deepcopy(config)
    config._attn_implementation = NO_MASK  # noqa: SLF001 - has no public setter
    return config


def copied_module(module: nn.Module, memo: dict[int, Any]) -> nn.Module:
    """A copy on the default device of a module on the meta device.

    The memo has what stands in place of some of its modules, by identity.
    """
    for inner in modules_outside(module, memo):
        for parameter in inner.parameters(recurse=False):
            memo[id(parameter)] = nn.Parameter(
                torch.zeros(parameter.shape, dtype=parameter.dtype),
                requires_grad=parameter.requires_grad,
            )
        for buffer in inner.buffers(recurse=False):
            memo[id(buffer)] = torch.zeros(buffer.shape, dtype=buffer.dtype)
    return copy.deepcopy(module, memo)


def modules_outside(module: nn.Module, memo: dict[int, Any]) -> Iterator[nn.Module]:
    """Yield a module and all below it, but for what the memo replaces."""
    if id(module) in memo:
        return
    yield module
    for child in module.children():
        yield from modules_outside(child, memo)


def initialise(module: nn.Module, owner: PreTrainedModel) -> None:
    """Give fresh weights and buffers as the model itself starts with.

    Raises:
        WorkloadError: the model leaves some as they were.
    """
    with Starting():
        start(module, owner)
        start_rest(module)
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if not num_writes(tensor):
            raise WorkloadError(
                f"the {owner.config.model_type!r} model does not say what {name!r} "
                "starts with: write the layers yourself "
                "(plimsoll_trainer.adapters.sequential.from_factories)"
            )


@torch.no_grad()
def start_rest(module: nn.Module) -> None:
    """Start what a model has left of torch's own layers, as these do it themselves."""
    for inner in module.modules():
        reset: Any = getattr(inner, "reset_parameters", None)
        tensors = list(inner.parameters(recurse=False))
        written = {one: one.clone() for one in tensors if num_writes(one)}
        is_torch = type(inner).__module__.startswith(nn.__name__)
        if is_torch and reset is not None and len(written) < len(tensors):
            reset()
            for tensor, value in written.items():
                tensor.copy_(value)


@torch.no_grad()
def start(module: nn.Module, owner: PreTrainedModel) -> None:
    """Call the model's own initialisation, from the leaves up."""
    for child in module.children():
        start(child, child if isinstance(child, PreTrainedModel) else owner)
    write: Callable[[nn.Module], None] = owner._init_weights  # noqa: SLF001 - no other
    write(module)
