"""Names of the layers of a model of `transformers`, and of their tensors in the model.

In: an `Anatomy`. Out: for each layer of the chain the modules that it is made of. A
layer holds them under a name of its own:

    layer           there               in the model
    embedding       model.model.wte     model.wte
    block.3         block               model.layers.3
    head            model.lm_head       lm_head

What a model does between blocks 3 and 4 is "between.4", if anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from plimsoll_trainer.adapters.model_anatomy import Anatomy

EMBEDDING = "embedding"
HEAD = "head"


def block_name(place: int) -> str:
    """Name of a block in the chain."""
    return f"block.{place}"


def passage_name(anatomy: Anatomy, number: int) -> str:
    """Name of the layer before a block, or behind the last one."""
    if number == 0:
        return EMBEDDING
    return HEAD if number == len(anatomy.calls) else f"between.{number}"


@dataclass(frozen=True, slots=True)
class Member:
    """A module of the model that a layer of the chain holds."""

    layer: str
    own: str
    """Path in the layer."""
    path: str
    """Path in the model."""
    module: nn.Module


def members(anatomy: Anatomy) -> Iterator[Member]:
    """Yield the modules of all layers, in the order of the chain."""
    for place, (path, block) in enumerate(
        zip(anatomy.block_paths, anatomy.blocks, strict=True)
    ):
        yield from members_of_passage(anatomy, place)
        yield Member(block_name(place), "block", path, block)
    yield from members_of_passage(anatomy, len(anatomy.calls))


def members_of_passage(anatomy: Anatomy, number: int) -> Iterator[Member]:
    """Yield the modules of the layer before a block, or behind the last one."""
    name, organs = passage_name(anatomy, number), anatomy.organs
    if number not in anatomy.layered:
        return
    for path in anatomy.passages[number]:
        if path not in anatomy.sideways:
            yield Member(name, f"model.{path}", path, organs[path])


def tensor_names(anatomy: Anatomy) -> dict[str, dict[str, str]]:
    """By layer, the model's name of each parameter and saved buffer, by its own."""
    found: dict[str, dict[str, str]] = {}
    for member in members(anatomy):
        names = found.setdefault(member.layer, {})
        for name in member.module.state_dict(keep_vars=True):
            names[f"{member.own}.{name}"] = f"{member.path}.{name}"
    return found
