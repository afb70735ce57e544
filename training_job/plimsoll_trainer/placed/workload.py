"""A training job whose model is one module, with branches or without.

Beside `plimsoll_trainer.workload`, which has a chain of layers: here the operators of
one step are placed one by one. Every rank calls the same functions, so nothing may
depend on the rank, on the clock or on an unseeded source.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from plimsoll_planner.records.precision import Precision
from plimsoll_trainer.engine.batches import make_batch
from plimsoll_trainer.engine.boundaries import cast_inputs
from plimsoll_trainer.errors import WorkloadError, located
from plimsoll_trainer.random_keys import random_key, seed_process
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

    def built(self) -> nn.Module:
        """The model with its first weights.

        Raises:
            WorkloadError: it cannot be built.
        """
        seed_process(random_key(self.seed, 0))
        before = torch.get_default_dtype()
        torch.set_default_dtype(self.dtype)
        try:
            model: object = self.model()
        except Exception as error:
            raise WorkloadError(
                f"the model cannot be built: {located(error)}"
            ) from error
        finally:
            torch.set_default_dtype(before)
        if not isinstance(model, nn.Module):
            raise WorkloadError(
                f"model() gives {type(model).__name__}, but an nn.Module is needed: "
                "return one"
            )
        return model


class Chain(nn.Module):
    """The layers of a workload as one module, each under its own name."""

    def __init__(self, workload: Workload) -> None:
        """Build all layers, each under its own seed, as ranks of a pipeline do."""
        super().__init__()
        self.inputs, self.chain = workload.inputs, workload.layers
        for index, layer in enumerate(workload.layers):
            seed_process(random_key(workload.seed, index))
            parent: nn.Module = self
            *path, last = layer.name.split(".")
            for name in path:
                if name not in dict(parent.named_children()):
                    parent.add_module(name, nn.Module())
                parent = parent.get_submodule(name)
            parent.add_module(last, layer.factory())
        for tie in workload.ties:
            (first, tensor), *others = tie.places
            shared = getattr_path(self, f"{first}.{tensor}")
            for name, other in others:
                set_path(self, f"{name}.{other}", shared)

    def forward(self, x: Tensor, *further: Tensor) -> Tensor:
        """Pass a micro-batch through all layers, with what they carry past others."""
        carried = dict(zip(self.inputs, further, strict=True))
        for layer in self.chain:
            taken = [carried[name] for name in layer.takes or ()]
            found = self.get_submodule(layer.name)(x, *taken)
            x, *given = found if layer.gives else (found,)
            carried.update(zip(layer.gives, given, strict=True))
        return x


def getattr_path(module: nn.Module, path: str) -> Any:
    """A tensor of a module by its whole name."""
    owner, _, name = path.rpartition(".")
    return getattr(module.get_submodule(owner), name)


def set_path(module: nn.Module, path: str, tensor: Tensor) -> None:
    """Put a tensor in the place of another one of a module."""
    owner, _, name = path.rpartition(".")
    setattr(module.get_submodule(owner), name, tensor)


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

    return PlacedWorkload(
        model=lambda: Chain(workload),
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
    """Error for a loss that tells what it is over."""
    return WorkloadError(
        f"{what} is a sum over what counts, and a placed graph averages the means of "
        "its micro-batches: give a loss that is a mean over samples, or train it as a "
        "chain of layers (engine plimsoll)"
    )


def flat_batch(workload: Workload, batch: BatchOfSeveral) -> Tensors:
    """Inputs and targets as the tensors of a micro-batch."""
    inputs, targets = batch
    return *cast_inputs(inputs, workload), targets
