"""Whether a layer can be called as the chain has it, and returns what it declares.

In: a layer as the workload declares it, the module, what that returned for fake
tensors. Called by `boundaries`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable

from torch import Tensor, nn

from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.torch_internals.operators import num_writes
from plimsoll_trainer.workload import Layer


def check_called(layer: Layer, module: nn.Module) -> None:
    """Refuse a module that cannot be called with what passes, and what it takes.

    Raises:
        WorkloadError: its forward pass needs more.
    """
    needed = [
        key
        for key, parameter in inspect.signature(module.forward).parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    taken = layer.takes or ()
    if len(needed) > 1 + len(taken):
        given = "one tensor" if not taken else f"one tensor and {', '.join(taken)}"
        raise WorkloadError(
            f"layer {layer.name!r} takes several inputs, {', '.join(needed)}, but "
            f"layers pass {given} on: name the others in its `takes`, make them in the "
            "layer, keep them as its buffers, or put all into one tensor"
        )


def check_returned(layer: Layer, output: object) -> None:
    """Refuse what a layer returns, unless it is one tensor, and each value it gives.

    Raises:
        WorkloadError: there are more or fewer, or something else.
    """
    name, gives = layer.name, layer.gives
    if not gives:
        if not isinstance(output, Tensor):
            raise WorkloadError(
                f"layer {name!r} returns {type(output).__name__}, but layers pass one "
                "tensor on: wrap it in a module that returns a tensor, or name what "
                "else it returns in `gives`"
            )
        return
    wanted = f"a tuple of the passed tensor and {', '.join(map(repr, gives))}"
    if not isinstance(output, tuple) or len(output) != 1 + len(gives):
        found = "one tensor" if isinstance(output, Tensor) else type(output).__name__
        if isinstance(output, tuple):
            found = f"a tuple of {len(output)}"
        raise WorkloadError(f"layer {name!r} returns {found}, but gives {wanted}")
    for value, tensor in zip(("the passed value", *gives), output, strict=True):
        if not isinstance(tensor, Tensor):
            raise WorkloadError(
                f"layer {name!r} returns {type(tensor).__name__} as {value!r}, but "
                f"{wanted} is needed"
            )


def check_read(name: str, value: str, *, is_written: bool) -> None:
    """Refuse a layer that writes to a carried value, which others take as well.

    Raises:
        WorkloadError: it does.
    """
    if is_written:
        raise WorkloadError(
            f"layer {name!r} writes to {value!r}, which it takes and others may need: "
            "let it make a tensor of its own, as without inplace=True"
        )


def check_unwritten(
    name: str, layer: nn.Module, buffers: Iterable[tuple[str, Tensor, int]]
) -> None:
    """Refuse a layer that a second forward pass would change, as a recompute runs it.

    Of each buffer it is known what it was before the pass, and how often written to.

    Raises:
        WorkloadError: the pass wrote to a buffer, or put another in its place.
    """
    for key, kept, count in buffers:
        if layer.get_buffer(key) is not kept or num_writes(kept) != count:
            raise WorkloadError(
                f"layer {name!r} writes its buffer {key!r} in the forward pass, which "
                "a recompute would do twice: declare it with recomputable=False, or "
                "name it in never_recomputed of the adapter"
            )
