"""Layers of a model that begin with weights of their own and train in part.

    built fresh  ->  pretrained weights  ->  adapters  ->  the rest is frozen

In: a workload from fresh weights and the model it is of. Out: its layers, prepared.
Each rank does so for its own layers. Called by `workloads`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING

from torch import nn
from transformers.configuration_utils import PreTrainedConfig

from plimsoll_trainer.adapters.model_anatomy import Anatomy
from plimsoll_trainer.adapters.tensor_names import block_name, members, tensor_names
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.huggingface.model_folder import (
    Names,
    fresh_folder,
    same_folder,
    write_folder,
)
from plimsoll_trainer.huggingface.pretrained import Pretrained
from plimsoll_trainer.workload import Export, Layer, Workload

if TYPE_CHECKING:  # it needs peft, which is there when somebody asks for adapters
    from plimsoll_trainer.huggingface.low_rank import LowRank

NOT_SHARED = (
    "layers with adapters are not shared by tensor groups: leave lora out, or tensor "
    "degrees at 1"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparedLayer:
    """Builds a layer, and prepares it for training."""

    build: Callable[[], nn.Module]
    name_of: Mapping[str, str]
    """The model's name of each of its tensors, by their own."""
    weights: Pretrained | None
    adapters: LowRank | None
    frozen: frozenset[str]
    """Own names of parameters that do not train."""

    def __call__(self) -> nn.Module:
        """Build it on torch's default device, in its default type."""
        module = self.build()
        if self.weights is not None:
            self.weights.fill(module, self.name_of)
        own = dict(module.named_parameters())
        if self.adapters is not None:
            self.adapters.put_into(module)
        for name, parameter in own.items():
            parameter.requires_grad_(name not in self.frozen)
        return module


def prepared(
    workload: Workload,
    anatomy: Anatomy,
    *,
    config: PreTrainedConfig,
    weights: Pretrained | None,
    adapters: LowRank | None,
    frozen: Sequence[str],
) -> Workload:
    """The workload with layers that are prepared.

    Args:
        workload: of fresh weights.
        anatomy: of its model.
        config: of the model, as it was given.
        weights: to start from; None: fresh ones.
        adapters: to train as well, in the blocks; None: there are none.
        frozen: patterns of names of parameters that do not train, as in
            `model.embed_tokens.*`.

    Raises:
        WorkloadError: a pattern matches nothing, or nothing is left to train.
    """
    held = frozen_in(anatomy, frozen)
    if adapters is None and all(
        name in held for name, _ in anatomy.model.named_parameters()
    ):
        raise WorkloadError(
            f"frozen {list(frozen)} leaves nothing to train: name fewer parameters, or "
            "give lora"
        )
    names = tensor_names(anatomy)
    blocks = {block_name(place) for place in range(len(anatomy.calls))}
    first_of: dict[tuple[str, frozenset[str]], str] = {}
    layers = []
    for layer in workload.layers:
        name_of = names[layer.name]
        own = frozenset(own for own, name in name_of.items() if name in held)
        factory = PreparedLayer(
            build=layer.factory,
            name_of=name_of,
            weights=weights,
            adapters=adapters if layer.name in blocks else None,
            frozen=own,
        )
        kind = first_of.setdefault((layer.kind, own), layer.name)
        made = replace(layer, factory=factory, kind=kind)
        layers.append(made if adapters is None else unshared(made))
    return replace(
        workload,
        layers=tuple(layers),
        not_split=workload.not_split if adapters is None else NOT_SHARED,
        export=export_of(anatomy, names, config, weights, adapters, held),
    )


def export_of(
    anatomy: Anatomy,
    names: Names,
    config: PreTrainedConfig,
    weights: Pretrained | None,
    adapters: LowRank | None,
    held: Set[str],
) -> Export:
    """What is written of the trained weights: all of them, or the adapters alone.

    Raises:
        WorkloadError: adapters are wanted alone, and other weights train as well.
    """
    if adapters is None or adapters.merge or weights is None:
        merged = None if adapters is None else adapters.merged
        if weights is None:  # adapters without their weights are of no use
            make = partial(fresh_folder, names, anatomy.model, config, merged)
        else:
            make = partial(same_folder, names, weights.names, config, merged)
        return partial(write_folder, make)
    if {name for name, _ in anatomy.model.named_parameters()} - held:
        raise WorkloadError(
            "weights beside the adapters train, and exported adapters have none of "
            "them: give lora merge: true, or freeze the rest"
        )
    # Imported here, as it needs peft.
    from plimsoll_trainer.huggingface.adapter_folder import AdapterFolder  # noqa: PLC0415

    paths = {one.layer: (one.own, one.path) for one in members(anatomy)}
    blocks = {layer: pair for layer, pair in paths.items() if pair[0] == "block"}
    return AdapterFolder(
        adapters=adapters,
        paths=blocks,
        model=anatomy.model,
        source=weights.files.folder,
    )


def unshared(layer: Layer) -> Layer:
    """The layer for one rank alone, not for a tensor group."""
    return replace(layer, parallelize=None, parallelize_sequence=None)


def frozen_in(anatomy: Anatomy, patterns: Sequence[str]) -> set[str]:
    """Names of all parameters that match; one that is tied matches by any name.

    Raises:
        WorkloadError: a pattern matches nothing.
    """
    names_of: dict[int, list[str]] = {}
    every = anatomy.model.named_parameters(remove_duplicate=False)
    for name, parameter in every:
        names_of.setdefault(id(parameter), []).append(name)
    found: set[str] = set()
    for pattern in patterns:
        hit = [
            names
            for names in names_of.values()
            if any(fnmatchcase(name, pattern) for name in names)
        ]
        if not hit:
            raise WorkloadError(
                f"frozen names {pattern!r}, and no parameter is called so: the first "
                f"one is {next(iter(names_of.values()))[0]!r}; * stands for any text"
            )
        found.update(*hit)
    return found
