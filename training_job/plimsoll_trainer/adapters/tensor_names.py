"""Names of the layers of a causal language model, and of their tensors in the model.

In: an `Anatomy`. Out: for each layer of the chain the modules that it is made of. A
layer holds them under a name of its own:

    layer           there               in the model
    embedding       model.model.wte     model.wte
    block.3         block               model.layers.3
    head            model.lm_head       lm_head
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
    organs = anatomy.organs
    for path in anatomy.before:
        if path not in anatomy.sideways:
            yield Member(EMBEDDING, f"model.{path}", path, organs[path])
    for place, block in enumerate(anatomy.blocks):
        path = f"{anatomy.spine[-1]}.{place}"
        yield Member(block_name(place), "block", path, block)
    for path in anatomy.after:
        yield Member(HEAD, f"model.{path}", path, organs[path])


def tensor_names(anatomy: Anatomy) -> dict[str, dict[str, str]]:
    """By layer, the model's name of each parameter and saved buffer, by its own."""
    found: dict[str, dict[str, str]] = {}
    for member in members(anatomy):
        names = found.setdefault(member.layer, {})
        for name in member.module.state_dict(keep_vars=True):
            names[f"{member.own}.{name}"] = f"{member.path}.{name}"
    return found
