"""A workload from an `nn.Sequential`, or from a list of factories of own layers.

Layers that print alike are of one kind. An `nn.Sequential` that exists already is
taken apart and copied: its layers keep their weights, and every rank must be able to
build the whole of it; a list of factories builds what a rank needs and no more.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from torch import nn

from plimsoll_trainer.workload import Layer, Workload

Factories = Sequence[Callable[[], nn.Module]] | Mapping[str, Callable[[], nn.Module]]


def from_sequential(model: nn.Sequential, **fields: Any) -> Workload:
    """Build a workload from a model that exists.

    Args:
        model: its children are the layers.
        fields: the other fields of `Workload`; loss, batch and optimizer are required.
    """
    layers = tuple(
        Layer(name=name, factory=partial(copy.deepcopy, module), kind=repr(module))
        for name, module in model.named_children()
    )
    return Workload(layers=layers, **fields)


def from_factories(factories: Factories, **fields: Any) -> Workload:
    """Build a workload from functions that each build one layer.

    Args:
        factories: in order; a mapping gives the layers' names as well. Factories that
            are one and the same object build layers of one kind.
        fields: the other fields of `Workload`; loss, batch and optimizer are required.
    """
    if not isinstance(factories, Mapping):
        factories = {str(place): factory for place, factory in enumerate(factories)}
    first_of: dict[int, str] = {}
    layers = tuple(
        Layer(
            name=name,
            factory=factory,
            kind=first_of.setdefault(id(factory), name),
        )
        for name, factory in factories.items()
    )
    return Workload(layers=layers, **fields)
