"""A workload from an `nn.Sequential`, from a list of own layers, or from factories.

A model that exists is taken apart: of each layer its form is kept, on the meta device,
and its values in host memory that no device counts. So every rank must be able to hold
the whole model once, in the entry point; afterwards it builds its own layers alone. A
list of factories builds what a rank needs and no more.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from plimsoll_trainer.emulated.device import host_memory
from plimsoll_trainer.engine.tensor_specs import TensorSpec
from plimsoll_trainer.engine.wrapped_modules import check_unwrapped
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.torch_internals.operators import FakeTensor
from plimsoll_trainer.workload import Layer, Tie, Workload

Factories = Sequence[Callable[[], nn.Module]] | Mapping[str, Callable[[], nn.Module]]


def from_sequential(
    model: nn.Sequential | Iterable[nn.Module],
    *,
    never_recomputed: Collection[str] = (),
    **fields: Any,
) -> Workload:
    """Build a workload from a model that exists, with the values that it has.

    Layers that are made alike are of one kind. Parameters that several layers hold are
    tied. Layers that keep running statistics, as BatchNorm does, are not recomputed.

    Args:
        model: its children are the layers; or a list of layers.
        never_recomputed: names of layers whose forward pass must not run twice.
        fields: the other fields of `Workload`; loss, batch and optimizer are required.

    Raises:
        WorkloadError: the model does more than to call its children in turn.
    """
    children = children_of(model)
    first_of: dict[str, str] = {}
    layers = tuple(
        Layer(
            name=name,
            factory=taken_over(module),
            kind=first_of.setdefault(signature(module), name),
            recomputable=not keeps_statistics(module),
        )
        for name, module in children
    )
    parameters = (
        (name, *named)
        for name, module in children
        for named in module.named_parameters(remove_duplicate=False)
    )
    ties = (*ties_of(parameters), *fields.pop("ties", ()))
    layers = without_recompute(layers, never_recomputed)
    return Workload(layers=layers, ties=ties, **fields)


def from_factories(
    factories: Factories, *, never_recomputed: Collection[str] = (), **fields: Any
) -> Workload:
    """Build a workload from functions that each build one layer.

    Args:
        factories: in order; a mapping gives the layers' names as well. Factories that
            are one and the same object build layers of one kind.
        never_recomputed: names of layers whose forward pass must not run twice.
        fields: the other fields of `Workload`; loss, batch and optimizer are required.

    Raises:
        WorkloadError: there is no layer of such a name.
    """
    if not isinstance(factories, Mapping):
        factories = {str(place): factory for place, factory in enumerate(factories)}
    first_of: dict[int, str] = {}
    layers = tuple(
        Layer(name=name, factory=factory, kind=first_of.setdefault(id(factory), name))
        for name, factory in factories.items()
    )
    return Workload(layers=without_recompute(layers, never_recomputed), **fields)


def without_recompute(
    layers: Sequence[Layer], names: Collection[str]
) -> tuple[Layer, ...]:
    """Mark layers whose forward pass must not run twice.

    Raises:
        WorkloadError: there is no layer of such a name.
    """
    known = [layer.name for layer in layers]
    if unknown := sorted(set(names) - set(known)):
        raise WorkloadError(
            f"never_recomputed names {unknown[0]!r}: there is no such layer; the "
            f"layers are {', '.join(known[:8])}, ..."
        )
    return tuple(
        replace(layer, recomputable=False) if layer.name in names else layer
        for layer in layers
    )


def children_of(
    model: nn.Sequential | Iterable[nn.Module],
) -> list[tuple[str, nn.Module]]:
    """Layers in order by name; a module that is used twice occurs twice.

    Raises:
        WorkloadError: the model does more than to call its children in turn, or is
            wrapped, or no list of modules.
    """
    if isinstance(model, nn.Module):
        check_unwrapped("the model", model)
    if isinstance(model, nn.Module) and not isinstance(model, LISTS):
        raise WorkloadError(
            f"from_sequential is given {type(model).__name__}, which is no "
            "nn.Sequential: only its own code knows in which order its parts are "
            "called; give them as a list of modules that each map one tensor to one"
        )
    if isinstance(model, nn.Sequential):
        if type(model).forward is not nn.Sequential.forward:
            raise WorkloadError(
                f"{type(model).__name__} has a forward pass of its own, so its "
                "children are not the whole of it: give a plain nn.Sequential, or "
                "factories"
            )
        modules = model.named_modules(remove_duplicate=False)
        return [(name, module) for name, module in modules if name and "." not in name]
    children = [(str(place), module) for place, module in enumerate(model)]
    for name, child in children:
        if not isinstance(child, nn.Module):
            raise WorkloadError(
                f"layer {name!r} of the list is {type(child).__name__}, but an "
                "nn.Module is needed: give modules in the order they are called in"
            )
        check_unwrapped(f"layer {name!r}", child)
    return children


LISTS = (nn.Sequential, nn.ModuleList)
"""Modules that are their children in order, and nothing else."""


def keeps_statistics(module: nn.Module) -> bool:
    """Whether a forward pass of one of torch's norms changes what it keeps."""
    return any(getattr(m, "track_running_stats", False) for m in module.modules())


def ties_of(parameters: Iterable[tuple[str, str, nn.Parameter]]) -> Iterator[Tie]:
    """Yield what several layers hold, of (layer, name inside it, parameter)."""
    places: dict[int, list[tuple[str, str]]] = {}
    for layer, name, parameter in parameters:
        places.setdefault(id(parameter), []).append((layer, name))
    for held in places.values():
        if len({layer for layer, _ in held}) > 1:
            yield Tie(places=tuple(held))


def signature(module: nn.Module) -> str:
    """Text of all of a layer that its costs can depend on, but for its values."""
    known = vars(nn.Module())
    facts: list[object] = []
    for path, inner in module.named_modules():
        own = {name: value for name, value in vars(inner).items() if name not in known}
        facts.append((path, type(inner), [(n, fact(v, n)) for n, v in own.items()]))
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        facts.append((name, fact(tensor), tensor.requires_grad))
    return repr(facts)


RATES = ("p", "drop_prob")
"""Attributes that are the rate at which a layer drops out, as torch and timm have it.
"""


def fact(value: object, name: str = "") -> object:
    """Text or value that an attribute is compared by; of a tensor its form.

    What a layer costs does not depend on how often it drops out, if it does.
    """
    if name in RATES and isinstance(value, float) and 0 < value < 1:
        return "some"
    return str(TensorSpec.of(value)) if isinstance(value, Tensor) else value


@dataclass(frozen=True, eq=False, slots=True)
class TakenOver:
    """Builds a layer that existed: its form, filled with its values."""

    form: nn.Module
    """On the meta device, where tensors have no bytes."""
    values: tuple[Tensor, ...]
    """Of the form's tensors, in order."""

    def __call__(self) -> nn.Module:
        """Build it on torch's default device, in its default type."""
        memo: dict[int, Any] = {
            id(form): filled(form, value)
            for form, value in zip(tensors_in(self.form), self.values, strict=True)
        }
        return copy.deepcopy(self.form, memo)


def taken_over(module: nn.Module) -> TakenOver:
    """Part a layer's form from its values; the layer itself is free to go."""
    tensors = list(tensors_in(module))
    memo: dict[int, Any] = {
        id(t): like(t, torch.empty(t.shape, dtype=t.dtype, device="meta"))
        for t in tensors
    }
    values = tuple(on_host(tensor) for tensor in tensors)
    return TakenOver(copy.deepcopy(module, memo), values)


def tensors_in(module: nn.Module) -> Iterator[Tensor]:
    """Yield each tensor once, also those that are neither parameter nor buffer."""
    yield from module.parameters()
    yield from module.buffers()
    plain = (value for inner in module.modules() for value in vars(inner).values())
    yield from {id(t): t for t in plain if isinstance(t, Tensor)}.values()


def like(tensor: Tensor, made: Tensor) -> Tensor:
    """Let a new tensor be what another one is: a parameter, frozen or not, or none."""
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(made, requires_grad=tensor.requires_grad)
    return made


def filled(form: Tensor, value: Tensor) -> Tensor:
    """Make a tensor with its values; one that is traced has none."""
    dtype = torch.get_default_dtype() if form.is_floating_point() else form.dtype
    made = torch.empty(form.shape, dtype=dtype)
    if not isinstance(made, FakeTensor):
        made.copy_(value)
    return like(form, made)


def on_host(tensor: Tensor) -> Tensor:
    """Copy of values in host memory, which an emulated device does not count."""
    with host_memory():
        made = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
        return made.copy_(tensor.detach())
