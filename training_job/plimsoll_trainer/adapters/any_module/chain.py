"""A workload from any module that `torch.export` can capture.

In: a module, or a function that builds one; inputs for example. Out: a `Workload` whose
layers run slices of the module's forward pass, one after the other, and carry what goes
around a layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from plimsoll_planner.records.model_profile import Precision
from plimsoll_trainer.adapters.any_module.capture import Capture, OwnTensor, capture
from plimsoll_trainer.adapters.any_module.crossings import Alive, alive_in
from plimsoll_trainer.adapters.any_module.cuts import cuts_of
from plimsoll_trainer.adapters.any_module.fake_modules import fake_module_of
from plimsoll_trainer.adapters.any_module.flow import flow_of
from plimsoll_trainer.adapters.any_module.kinds import digest_of
from plimsoll_trainer.adapters.any_module.lost import check_hooks
from plimsoll_trainer.adapters.any_module.names import layer_names
from plimsoll_trainer.adapters.any_module.parts import Part, parts_of
from plimsoll_trainer.adapters.any_module.slices import Slice, slice_of
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.workload import DTYPES, Layer, Loss, MakeBatch, Tie, Workload

MOST_LAYERS = 256
"""A planner's time grows with their square."""


def from_module(  # noqa: PLR0913 - keywords of one call
    module: nn.Module | Callable[[], nn.Module],
    example_inputs: Tensor | Sequence[Tensor],
    *,
    loss: Loss,
    batch: MakeBatch,
    optimizer: Any,
    arguments: Sequence[str] = (),
    output: str | None = None,
    most_layers: int = MOST_LAYERS,
    precision: Precision = Precision.FP32,
    **fields: Any,
) -> Workload:
    """Build a workload from a module whose forward pass is one graph.

    Args:
        module: with the values that it has, which every layer starts with; or a
            function that builds one, of which each layer builds its own tensors under
            the seed of its own, as the function does.
        example_inputs: a tensor, or several; the first dimension counts samples. Only
            shapes and types count, and any number of samples can be trained with.
        loss: of the output and the targets.
        batch: inputs and targets; several inputs are a tuple.
        optimizer: makes the optimizer of a layer.
        arguments: names that the module is called by, one for each input.
        output: name of the output, where the module returns several tensors.
        most_layers: layers that the chain has at most.
        precision: of parameters and activations.
        fields: the other fields of `Workload`.

    Raises:
        WorkloadError: the module cannot be captured, or nothing in it is trained.
    """
    precision = Precision(precision)
    made = chained(
        module, example_inputs, arguments, output, most_layers, precision.of_parameters
    )
    captured, parts, slices = made.captured, made.parts, made.slices
    names = value_names(captured, parts, arguments)
    made.share_draws(fields.get("seed", 0))
    return Workload(
        layers=tuple(layers_of(parts, slices, names)),
        inputs=tuple(names[node] for node in captured.inputs[1:]),
        example_inputs=tuple(one.to("meta") for one in made.inputs),
        ties=(*ties_of(parts, slices), *fields.pop("ties", ())),
        loss=loss,
        batch=batch,
        optimizer=optimizer,
        precision=precision,
        **fields,
    )


@dataclass(frozen=True, eq=False, slots=True)
class Chained:
    """A module as a chain."""

    inputs: tuple[Tensor, ...]
    """Examples, as they were given."""
    captured: Capture
    alive: Alive
    parts: Sequence[Part]
    slices: Sequence[Slice]
    """One for each part."""

    def share_draws(self, seed: int) -> None:
        """Let layers of a function agree on the numbers that several of them draw."""
        record = self.slices[0].fake.record
        if record is not None:
            layers = ([o.tensor for o in one.owned.values()] for one in self.slices)
            record.share_draws(layers, seed)


def chained(
    module: nn.Module | Callable[[], nn.Module],
    example_inputs: Tensor | Sequence[Tensor],
    arguments: Sequence[str] = (),
    output: str | None = None,
    most_layers: int = MOST_LAYERS,
    precision: Precision = Precision.FP32,
) -> Chained:
    """Capture a module and cut it; see `from_module`.

    Raises:
        WorkloadError: it cannot be captured, or nothing in it is trained.
    """
    if most_layers < 1:
        raise WorkloadError(f"most_layers {most_layers} is below 1: give 1 or more")
    inputs = checked_inputs(example_inputs, arguments)
    if isinstance(module, nn.Module):
        check_hooks(module)
    fake = fake_module_of(module, DTYPES[precision])
    check_hooks(fake.module)
    before = torch.get_default_dtype()
    torch.set_default_dtype(DTYPES[precision])
    try:
        captured = capture(fake, inputs, arguments, output)
    finally:
        torch.set_default_dtype(before)
    check_trained(fake.name, captured)
    alive = alive_in(flow_of(captured), inputs[0].shape[0])
    cuts = [cut.position for cut in cuts_of(alive)]
    parts = parts_of(alive, cuts, most_layers)
    slices = [slice_of(fake, alive, part) for part in parts]
    return Chained(
        inputs=inputs, captured=captured, alive=alive, parts=parts, slices=slices
    )


def checked_inputs(
    given: Tensor | Sequence[Tensor], arguments: Sequence[str]
) -> tuple[Tensor, ...]:
    """Example inputs in order.

    Raises:
        WorkloadError: there are none, or one is no tensor of samples.
    """
    several: Sequence[object] = (given,) if isinstance(given, Tensor) else given
    inputs: list[Tensor] = []
    for at, one in enumerate(several):
        if not isinstance(one, Tensor) or not one.ndim:
            is_tensor = isinstance(one, Tensor)
            what = "a scalar" if is_tensor else f"of type {type(one).__name__}"
            raise WorkloadError(
                f"example input {at} is {what}: give a tensor whose first dimension "
                "counts samples, and set what is not per sample in the module"
            )
        inputs.append(one)
        if one.shape[0] != inputs[0].shape[0] or not one.shape[0]:
            raise WorkloadError(
                f"example input {at} has {one.shape[0]} samples and input 0 has "
                f"{inputs[0].shape[0]}: the first dimension of each counts samples; "
                "set what is not per sample in the module"
            )
    if not inputs:
        raise WorkloadError(
            "example_inputs is empty: give one tensor for each input of the module"
        )
    if arguments and len(arguments) != len(inputs):
        raise WorkloadError(
            f"arguments names {len(arguments)} inputs, {', '.join(arguments)}, but "
            f"example_inputs has {len(inputs)}: name each once"
        )
    return tuple(inputs)


def check_trained(name: str, captured: Capture) -> None:
    """Refuse a module without a parameter to train.

    Raises:
        WorkloadError: there is none that the output depends on.
    """
    if not any(owned.is_trained for owned in captured.owned.values()):
        raise WorkloadError(
            f"{name} has no parameter that is trained: let one require gradients"
        )


def value_names(
    captured: Capture, parts: Sequence[Part], arguments: Sequence[str]
) -> dict[fx.Node, str]:
    """Names of the values that are carried; inputs have those of their arguments."""
    names = dict(zip(captured.inputs, arguments, strict=False))
    taken = set(names.values())
    for node in (*captured.inputs, *(one for part in parts for one in part.gives)):
        if node not in names:
            name = node.name
            while name in taken:
                name += "_"
            names[node] = name
            taken.add(name)
    return names


def layers_of(
    parts: Sequence[Part], slices: Sequence[Slice], names: dict[fx.Node, str]
) -> Iterator[Layer]:
    """Yield the layers; equal ones are of one kind, named after the first of them."""
    kinds: dict[str, str] = {}
    for name, part, made in zip(layer_names(parts), parts, slices, strict=True):
        yield Layer(
            name=name,
            factory=made,
            kind=kinds.setdefault(digest_of(made, part), name),
            recomputable=not made.writes_buffers,
            takes=tuple(names[node] for node in part.takes),
            gives=tuple(names[node] for node in part.gives),
        )


def ties_of(parts: Sequence[Part], slices: Sequence[Slice]) -> Iterator[Tie]:
    """Yield the tensors of the module that several layers use."""
    places: dict[str, list[tuple[str, str]]] = {}
    shared: dict[str, OwnTensor] = {}
    for layer, made in zip(layer_names(parts), slices, strict=True):
        for name, owned in made.owned.items():
            places.setdefault(name, []).append((layer, name))
            shared[name] = owned
    for name, found in places.items():
        if len(found) > 1:
            is_parameter = isinstance(shared[name].tensor, nn.Parameter)
            yield Tie(places=tuple(found), constant=not is_parameter)
