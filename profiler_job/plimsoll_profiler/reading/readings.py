"""How a model is read: its layers, what they share, how tensor groups split them.

In: a configuration. Out: a `Reading`. Called by the verb `support`; no
weights are made, for all is built on torch's meta device.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch

from plimsoll_trainer.adapters.causal_lm import causal_lm
from plimsoll_trainer.errors import WorkloadError, described
from plimsoll_trainer.huggingface.configurations import (
    Configuration,
    bundled,
    configuration_of,
)
from plimsoll_trainer.workload import Layer, TokenLoss, Workload

TOKENS = 512
"""Of a sample: how a model is read does not depend on it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerReading:
    """Layers of one kind."""

    kind: str
    count: int
    num_parameters: int
    """Numbers of one of them, with those that it shares."""
    can_split: bool
    """Tensor groups can share it."""
    can_split_sequence: bool
    """And what passes through it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """A model as it is read."""

    model_type: str
    num_parameters: int
    """Numbers of all layers, shared ones once."""
    layers: tuple[LayerReading, ...]
    ties: tuple[str, ...]
    """Tensors that several layers share, in words."""
    not_split: str
    """Why tensor groups cannot share its layers; empty if they can."""
    has_loss_in_pieces: bool
    """Head and loss take some tokens at a time, if the head recomputes."""

    @property
    def shared(self) -> str:
        """Layers with parameters that tensor groups share: `all`, `some` or `none`."""
        split = {one.can_split for one in self.layers if one.num_parameters}
        if split == {True}:
            return "all"
        return "some" if True in split else "none"


def reading_of(config: Configuration) -> Reading:
    """Read a model.

    Raises:
        WorkloadError: it cannot be read; says why, and what to do.
    """
    workload = causal_lm(config, sequence_length=TOKENS)
    counts = Counter(layer.kind for layer in workload.layers)
    firsts = {layer.kind: layer for layer in reversed(workload.layers)}
    numbers = {kind: numbers_of(layer) for kind, layer in firsts.items()}
    layers = tuple(
        LayerReading(
            kind=kind,
            count=counts[kind],
            num_parameters=sum(numbers[kind].values()),
            can_split=firsts[kind].parallelize is not None,
            can_split_sequence=firsts[kind].parallelize_sequence is not None,
        )
        for kind in counts
    )
    every = sum(one.count * one.num_parameters for one in layers)
    return Reading(
        model_type=config.model_type,
        num_parameters=every - shared_numbers(workload, numbers),
        layers=layers,
        ties=tuple(
            " = ".join(f"{layer}.{name}" for layer, name in tie.places)
            for tie in workload.ties
            if not tie.constant
        ),
        not_split=workload.not_split,
        has_loss_in_pieces=isinstance(workload.loss, TokenLoss),
    )


def known_models() -> dict[str, dict[str, Any]]:
    """Models that are known by name: parameters, source of the sizes, configuration."""
    return bundled()


def read_model(model: str) -> Reading:
    """Read a model as a person names it; raises what `reading_of` does."""
    return reading_of(configuration_of(model))


def numbers_of(layer: Layer) -> dict[str, int]:
    """Numbers of each parameter of a layer.

    Raises:
        WorkloadError: it cannot be built apart from its model.
    """
    try:
        with torch.device("meta"):
            module = layer.factory()
    except Exception as error:
        raise WorkloadError(
            f"layer {layer.name!r} cannot be built apart from its model: "
            f"{described(error)}; write the layers yourself "
            "(plimsoll_trainer.adapters.sequential.from_factories)"
        ) from error
    return {name: one.numel() for name, one in module.named_parameters()}


def shared_numbers(workload: Workload, numbers: dict[str, dict[str, int]]) -> int:
    """Numbers that are counted more than once."""
    kinds = {layer.name: layer.kind for layer in workload.layers}
    return sum(
        numbers[kinds[layer]].get(name, 0)
        for tie in workload.ties
        if not tie.constant
        for layer, name in tie.places[1:]
    )
