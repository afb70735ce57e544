"""How a model is read: its layers, what they share, how tensor groups split them.

In: a configuration, or a name of `torchvision`. Out: a `Reading`. Called by the verb
`support`; no weights are made of models of `transformers`, for all is built of tensors
without values.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from plimsoll_profiler.reading.tasks import Family, family_of
from plimsoll_trainer.adapters import torchvision
from plimsoll_trainer.adapters.causal_lm import causal_lm
from plimsoll_trainer.adapters.encoder import encoder
from plimsoll_trainer.adapters.image_classifier import image_classifier
from plimsoll_trainer.engine.boundaries import boundaries_of
from plimsoll_trainer.errors import WorkloadError, described
from plimsoll_trainer.huggingface.configurations import (
    Configuration,
    bundled,
    configuration_of,
)
from plimsoll_trainer.huggingface.tasks import task_of
from plimsoll_trainer.torch_internals.operators import FakeTensorMode, convertible
from plimsoll_trainer.workload import Layer, TokenLoss, Workload

TOKENS = 128
"""Of a sample: how a model is read does not depend on it, and none is too long."""
BATCH = 2
"""Samples that layers are run with."""


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
    family: Family
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


def reading_of(config: Configuration, family: Family | None = None) -> Reading:
    """Read a model of `transformers`.

    Args:
        config: of the model.
        family: task to read it for, if not that of its configuration.

    Raises:
        WorkloadError: it cannot be read; says why, and what to do.
    """
    family = family or Family(task_of(config))
    workload = workload_for(config, family)
    if family is not Family.TEXT_GENERATION:  # scans take minutes without a kernel
        check_layers(workload)
    return reading_in(workload, config.model_type, family)


def workload_for(config: Configuration, family: Family) -> Workload:
    """A workload of a model of `transformers`."""
    if family is Family.TEXT_GENERATION:
        return causal_lm(config, sequence_length=TOKENS)
    if family is Family.IMAGE_CLASSIFICATION:
        return image_classifier(config)
    return encoder(config, sequence_length=TOKENS, task=family.value)


def reading_of_classifier(name: str) -> Reading:
    """Read a model of `torchvision`, by its name there; raises what `reading_of` does.

    It is built once in the memory of the host.
    """
    workload = torchvision.image_classifier(name)
    check_layers(workload)
    return reading_in(workload, name, Family.TORCHVISION)


def reading_in(workload: Workload, model_type: str, family: Family) -> Reading:
    """The layers of a workload, and what they share."""
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
        model_type=model_type,
        family=family,
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


def read_model(
    model: str, task: str | None = None, *, trust_remote_code: bool = False
) -> Reading:
    """Read a model as a person names it; raises what `reading_of` does."""
    family = family_of(model, trust_remote_code=trust_remote_code)
    if family is not Family.TORCHVISION:
        asked = Family(task) if task is not None else None
        config = configuration_of(model, trust_remote_code=trust_remote_code)
        return reading_of(config, asked)
    if task not in (None, Family.IMAGE_CLASSIFICATION):
        raise WorkloadError(f"{model} tells images apart: leave the task {task} away")
    return reading_of_classifier(model)


def check_layers(workload: Workload) -> None:
    """Run all layers on tensors without values.

    Raises:
        WorkloadError: one of them does not run apart from its model.
    """
    try:
        boundaries_of(workload, BATCH)
    except WorkloadError:
        raise
    except Exception as error:
        raise WorkloadError(
            f"a layer does not run apart from its model: {described(error)}; write the "
            "layers yourself (plimsoll_trainer.adapters.sequential.from_factories)"
        ) from error


def numbers_of(layer: Layer) -> dict[str, int]:
    """Numbers of each parameter of a layer.

    Raises:
        WorkloadError: it cannot be built apart from its model.
    """
    try:
        with FakeTensorMode(), convertible():
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
