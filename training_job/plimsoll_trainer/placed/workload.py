"""A training job whose model is one module, with branches or without.

Beside `plimsoll_trainer.workload`, which has a chain of layers: here the operators of
one step are placed one by one. Every rank calls the same functions, so nothing may
depend on the rank, on the clock or on an unseeded source.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from plimsoll_planner.records.precision import Precision
from plimsoll_trainer.engine.batches import make_batch
from plimsoll_trainer.engine.boundaries import cast_inputs
from plimsoll_trainer.engine.shared_tensors import first_places
from plimsoll_trainer.engine.tied_tensors import put_in, tensor_in
from plimsoll_trainer.errors import WorkloadError, located
from plimsoll_trainer.random_keys import random_key, seed_process
from plimsoll_trainer.torch_internals.operators import convertible, storage_of
from plimsoll_trainer.workload import (
    BatchOfSeveral,
    MakeOptimizer,
    TokenLoss,
    Workload,
    constant,
)

Tensors = tuple[Tensor, ...]
MakeTensors = Callable[[int, int, int], Tensors]
"""(step, first sample, number of samples) -> tensors of those samples, in host memory;
the same each time."""
ModuleLoss = Callable[[nn.Module, Tensors], Tensor]
"""(model, tensors of a micro-batch) -> mean loss over its samples, a scalar."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A module whose first weights depend on no other part of the model."""

    make: Callable[[], nn.Module]
    """Builds it; called under the seed of the part."""
    key: int
    """That the process is seeded with."""
    name_of: Callable[[str], str | None]
    """Name of one of its tensors -> that in checkpoints, which is its own in the model;
    None: another part's values count."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacedWorkload:
    """A training job, apart from which device runs what."""

    model: Callable[[], nn.Module]
    """Builds the model with its first weights; called under the seed."""
    loss: ModuleLoss
    batch: MakeTensors
    optimizer: MakeOptimizer
    """Called once for each parameter, wherever that is."""
    max_gradient_norm: float | None = 1.0
    """Gradients are scaled down to this 2-norm over the model; None: never."""
    learning_rate_factor: Callable[[int], float] = constant
    seed: int = 0
    """Of weights and dropout."""
    dtype: torch.dtype = torch.float32
    """Default type as the model is built."""

    parts: tuple[Part, ...] = ()
    """Layers of the model, each built without the others; none: it is one module."""
    name_of: Callable[[str], str] = str
    """Name of a tensor in `model` -> that in checkpoints."""
    module_name_of: Callable[[str], str] = str
    """Path of a module in `model` -> that in names of operators; both may be empty."""

    input_names: tuple[str, ...] = ()
    """Tensors of the batch in messages; none: they have numbers."""

    def input_name(self, place: int) -> str:
        """A tensor of the batch in a message."""
        if self.input_names:
            return self.input_names[place]
        return f"tensor {place} of its batch"

    @property
    def all_parts(self) -> tuple[Part, ...]:
        """Parts of the model, or the model as one."""
        key = random_key(self.seed, 0)
        return self.parts or (Part(make=self.model, key=key, name_of=self.name_of),)

    def built(self) -> nn.Module:
        """The model with its first weights.

        Raises:
            WorkloadError: it cannot be built.
        """
        key = random_key(self.seed, 0)
        return self.build(Part(make=self.model, key=key, name_of=self.name_of))

    def build(self, part: Part) -> nn.Module:
        """A part of the model with its first weights.

        Raises:
            WorkloadError: it cannot be built.
        """
        seed_process(part.key)
        before = torch.get_default_dtype()
        torch.set_default_dtype(self.dtype)
        try:
            with convertible():
                module: object = part.make()
        except Exception as error:
            raise WorkloadError(
                f"the model cannot be built: {located(error)}"
            ) from error
        finally:
            torch.set_default_dtype(before)
        if not isinstance(module, nn.Module):
            raise WorkloadError(
                f"model() gives {type(module).__name__}, but an nn.Module is needed: "
                "return one"
            )
        register_attributes(module)
        return module


def register_attributes(module: nn.Module) -> None:
    """Let tensors that are plain attributes be buffers, which no checkpoint has.

    Those that lie in a parameter, or are computed from one, are made by the model.
    """
    registered = (*module.parameters(), *module.buffers())
    known = {storage_of(tensor)[0] for tensor in registered}
    for one in module.modules():
        plain = [
            (name, value)
            for name, value in vars(one).items()
            if isinstance(value, Tensor) and not value.requires_grad
        ]
        for name, value in plain:
            if storage_of(value)[0] not in known:
                delattr(one, name)
                one.register_buffer(name, value, persistent=False)


class Chain(nn.Module):
    """The layers of a workload as one module; `ChainNames` has their names.

    They are in a list, for a layer may be named as an attribute of a module is.
    """

    def __init__(self, workload: Workload) -> None:
        """Build all layers, each under its own seed, as ranks of a pipeline do."""
        super().__init__()
        self.inputs, self.chain = workload.inputs, workload.layers
        self.layers = nn.ModuleList()
        for index, layer in enumerate(workload.layers):
            seed_process(random_key(workload.seed, index))
            self.layers.append(layer.factory())
        place = {layer.name: index for index, layer in enumerate(workload.layers)}
        for tie in workload.ties:
            (first, path), *others = tie.places
            shared = tensor_in(self.layers[place[first]], path)
            for name, other in others:
                put_in(self.layers[place[name]], other, shared)

    def forward(self, x: Tensor, *further: Tensor) -> Tensor:
        """Pass a micro-batch through all layers, with what they carry past others."""
        carried = dict(zip(self.inputs, further, strict=True))
        for layer, module in zip(self.chain, self.layers, strict=True):
            taken = [carried[name] for name in layer.takes or ()]
            found = module(x, *taken)
            x, *given = found if layer.gives else (found,)
            carried.update(zip(layer.gives, given, strict=True))
        return x


class ChainNames:
    """Names that a pipeline's checkpoints have for the tensors of a chain."""

    def __init__(self, workload: Workload) -> None:
        """Read layers and ties."""
        self._layers = tuple(layer.name for layer in workload.layers)
        self._first = first_places(workload)

    def of(self, name: str) -> str:
        """Name of a tensor of `Chain`, such as `layers.3.weight`."""
        _, index, tensor = name.split(".", 2)
        place = self._layers[int(index)], tensor
        return ".".join(self._first.get(place, place))

    def of_module(self, path: str) -> str:
        """Path of a module of `Chain`, such as `layers.3.attention`."""
        _, *inner = path.split(".")
        if not inner:
            return ""
        return ".".join((self._layers[int(inner[0])], *inner[1:]))

    def inside(self, layer: str, tensor: str) -> str | None:
        """Name of a tensor of a layer; None: it has the values of another layer's."""
        place = layer, tensor
        return ".".join(place) if self._first.get(place, place) == place else None


def of_chain(workload: Workload) -> PlacedWorkload:
    """A workload of layers, to be placed operator by operator.

    Its tensors have the names that a checkpoint of a pipeline gives them.

    Raises:
        WorkloadError: it needs what only pipelines do.
    """
    if workload.precision is not Precision.FP32:
        raise WorkloadError(
            f"precision {workload.precision} has several types of numbers, and a "
            "placed graph adds gradients up in the type of their parameters: give "
            "precision fp32"
        )
    if isinstance(workload.loss, TokenLoss):
        raise only_means(f"TokenLoss({workload.loss.name}, ...)")

    def loss(model: nn.Module, tensors: Tensors) -> Tensor:
        *inputs, targets = tensors
        found = workload.loss(model(*inputs), targets)
        if isinstance(found, tuple):
            raise only_means("the loss")
        return found

    names = ChainNames(workload)
    return PlacedWorkload(
        model=lambda: Chain(workload),
        parts=tuple(
            Part(
                make=layer.factory,
                key=random_key(workload.seed, index),
                name_of=partial(names.inside, layer.name),
            )
            for index, layer in enumerate(workload.layers)
        ),
        name_of=names.of,
        module_name_of=names.of_module,
        input_names=("its first input", *map(repr, workload.inputs), "the targets"),
        loss=loss,
        batch=lambda step, first, count: flat_batch(
            workload, make_batch(workload, step, first, count)
        ),
        optimizer=workload.optimizer,
        max_gradient_norm=workload.max_gradient_norm,
        learning_rate_factor=workload.learning_rate_factor,
        seed=workload.seed,
        dtype=workload.dtype,
    )


def only_means(what: str) -> WorkloadError:
    """Error for a loss that returns what it is over."""
    return WorkloadError(
        f"{what} is a sum over what counts, and a placed graph averages the means of "
        "its micro-batches: give a loss that is a mean over samples, or train it as a "
        "chain of layers (engine plimsoll)"
    )


def flat_batch(workload: Workload, batch: BatchOfSeveral) -> Tensors:
    """Inputs and targets as the tensors of a micro-batch."""
    inputs, targets = batch
    return *cast_inputs(inputs, workload), targets
