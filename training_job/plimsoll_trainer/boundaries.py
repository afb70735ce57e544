"""Shape and type of every tensor between two layers, found without computing anything.

In: a workload and a micro-batch. Out: one `TensorSpec` for each boundary, the inputs
first. The layers run on fake tensors, each kind of layer and input once; a chain whose
layers do not fit together is refused here, by name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from plimsoll_trainer.errors import WorkloadError, located
from plimsoll_trainer.stage import Received, build_layer
from plimsoll_trainer.torch_internals import FakeTensorMode, num_writes, storage_of
from plimsoll_trainer.workload import Workload

CPU = torch.device("cpu")
DEBUG = "--debug shows the traceback"


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """What one boundary carries; the first dimension counts samples."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: Tensor) -> TensorSpec:
        """Describe a tensor."""
        return cls(tuple(tensor.shape), tensor.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of such a tensor."""
        return math.prod(self.shape) * self.dtype.itemsize

    def empty(self, device: torch.device | str, *, grad: bool = False) -> Tensor:
        """Make a tensor like it, without values."""
        return torch.empty(
            self.shape, dtype=self.dtype, device=device, requires_grad=grad
        )

    def __str__(self) -> str:
        """Show it as in `float32[4, 128, 64]`."""
        return f"{str(self.dtype).removeprefix('torch.')}{list(self.shape)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Boundaries:
    """All tensors of one micro-batch."""

    between: tuple[TensorSpec, ...]
    """between[i] enters layer i; the last one enters the loss."""
    targets: TensorSpec
    overwritten: frozenset[int] = frozenset()
    """Layers that write to what enters them, so that no recompute could start there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Passed:
    """What one layer makes of what enters it."""

    output: TensorSpec
    overwrites: bool
    """It writes to its input."""
    gives_back: bool
    """Its output lies in the memory of its input."""
    trains: bool
    """Its output needs a gradient, for something here or before is trained."""


def boundaries_of(workload: Workload, micro_batch: int) -> Boundaries:
    """Run every kind of layer on fake tensors.

    Raises:
        WorkloadError: the layers do not chain, or the loss is not a scalar.
    """
    inputs, targets = first_batch(workload, micro_batch)
    between = [TensorSpec.of(cast_inputs(inputs, workload))]
    known: dict[tuple[str, TensorSpec, bool], Passed] = {}
    passed: list[Passed] = []
    trains = False
    with FakeTensorMode():
        for index, layer in enumerate(workload.layers):
            place = (layer.kind, between[-1], trains)
            if place not in known:
                known[place] = pass_through(workload, index, between[-1], trains=trains)
            passed.append(known[place])
            between.append(known[place].output)
            trains = known[place].trains
        check_trains(workload, passed)
        check_loss(workload, between[-1], TensorSpec.of(targets))
        check_overwritten(workload, between, passed)
    return Boundaries(
        between=tuple(between),
        targets=TensorSpec.of(targets),
        overwritten=frozenset(i for i, made in enumerate(passed) if made.overwrites),
    )


def first_batch(workload: Workload, micro_batch: int) -> tuple[Tensor, Tensor]:
    """Make the first samples of step 0, twice, and compare.

    Raises:
        WorkloadError: it raises, or gives no pair of tensors, another length, or not
            the same twice.
    """
    try:
        once, again = (make_batch(workload, 0, 0, micro_batch) for _ in range(2))
    except WorkloadError:
        raise
    except Exception as error:
        raise WorkloadError(
            f"batch(0, 0, {micro_batch}) raises {located(error)}; {DEBUG}"
        ) from error
    for what, left, right in zip(("inputs", "targets"), once, again, strict=True):
        if not torch.equal(left, right):
            raise WorkloadError(
                f"batch(0, 0, {micro_batch}) gives other {what} when called again: "
                "derive each sample from step and index alone, as with a seeded "
                "torch.Generator"
            )
    return once


def make_batch(
    workload: Workload, step: int, first: int, count: int
) -> tuple[Tensor, Tensor]:
    """Make samples of a step and check their form.

    Raises:
        WorkloadError: no pair of tensors of `count` samples.
    """
    made: object = workload.batch(step, first, count)
    match made:
        case (Tensor() as inputs, Tensor() as targets):
            pass
        case _:
            raise WorkloadError(
                f"batch({step}, {first}, {count}) gives {type(made).__name__}, but a "
                "tuple of two tensors is needed: inputs and targets"
            )
    for what, part in (("inputs", inputs), ("targets", targets)):
        if part.ndim == 0 or part.shape[0] != count:
            raise WorkloadError(
                f"batch({step}, {first}, {count}) gives {what} of shape "
                f"{list(part.shape)}, but the first dimension must be {count} samples"
            )
    return inputs, targets


def cast_inputs(inputs: Tensor, workload: Workload) -> Tensor:
    """Bring floating inputs to the type that the layers compute in."""
    return inputs.to(workload.dtype) if inputs.is_floating_point() else inputs


def pass_through(
    workload: Workload, index: int, incoming: TensorSpec, *, trains: bool
) -> Passed:
    """Run one layer on a fake tensor.

    Args:
        workload: the chain.
        index: of the layer.
        incoming: what enters it.
        trains: whether what enters needs a gradient.

    Raises:
        WorkloadError: it cannot be built, does not turn a tensor into a tensor, or
            may not be recomputed without saying so.
    """
    name = workload.layers[index].name
    try:
        layer = build_layer(workload, index, CPU)
    except WorkloadError:
        raise
    except Exception as error:
        raise WorkloadError(
            f"layer {name!r} cannot be built: {located(error)}; {DEBUG}"
        ) from error
    buffers = [(key, kept, num_writes(kept)) for key, kept in layer.named_buffers()]
    x = incoming.empty("cpu", grad=trains)
    x = Received.apply(x) if trains else x
    num_before = num_writes(x)
    try:
        output: object = layer(x)
    except Exception as error:
        before = workload.layers[index - 1].name if index else "the batch"
        raise WorkloadError(
            f"layer {name!r} fails on {incoming}, which {before!r} gives: "
            f"{located(error)}; {DEBUG}"
        ) from error
    if not isinstance(output, Tensor):
        raise WorkloadError(
            f"layer {name!r} returns {type(output).__name__}, but layers pass one "
            "tensor on: wrap it in a module that returns a tensor"
        )
    if workload.layers[index].recomputable:
        check_unwritten(name, layer, buffers)
    return Passed(
        output=TensorSpec.of(output),
        overwrites=num_writes(x) != num_before,
        gives_back=storage_of(output)[0] == storage_of(x)[0],
        trains=output.requires_grad,
    )


def check_unwritten(
    name: str, layer: nn.Module, buffers: Iterable[tuple[str, Tensor, int]]
) -> None:
    """Refuse a layer that a second forward pass would change, as a recompute runs it.

    Args:
        name: of the layer.
        layer: after a forward pass.
        buffers: before it: name, tensor, and how often it had been written to.

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


def check_overwritten(
    workload: Workload, between: Sequence[TensorSpec], passed: Sequence[Passed]
) -> None:
    """Refuse a layer that overwrites what the one before needs for its backward pass.

    Raises:
        WorkloadError: torch would refuse to train it.
    """
    tried: set[tuple[str, ...]] = set()
    for index in range(1, len(passed)):
        first = index - 1
        while first > 0 and passed[first].gives_back:
            first -= 1
        kinds = tuple(layer.kind for layer in workload.layers[first : index + 1])
        if not passed[index].overwrites or kinds in tried:
            continue
        tried.add(kinds)
        try:
            run_both_ways(workload, first, index, between[first])
        except RuntimeError as error:
            if OVERWRITTEN not in str(error):
                raise
            name, before = workload.layers[index].name, workload.layers[first].name
            raise WorkloadError(
                f"layer {name!r} overwrites what layer {before!r} gives and needs in "
                f"its backward pass: let {name!r} make a tensor of its own, as without "
                "inplace=True"
            ) from error


OVERWRITTEN = "modified by an inplace operation"
"""What torch says in a backward pass that finds other values than it has saved."""


def run_both_ways(
    workload: Workload, first: int, last: int, incoming: TensorSpec
) -> None:
    """Run some layers forward and backward."""
    x = incoming.empty("cpu", grad=incoming.dtype.is_floating_point)
    x = Received.apply(x)
    for index in range(first, last + 1):
        x = build_layer(workload, index, CPU)(x)
    if x.requires_grad:
        x.sum().backward()


def check_trains(workload: Workload, passed: Sequence[Passed]) -> None:
    """Refuse a chain whose output no parameter could learn from.

    Raises:
        WorkloadError: all is frozen, or a layer lets no gradient through.
    """
    if passed[-1].trains:
        return
    trained = [index for index, made in enumerate(passed) if made.trains]
    if not trained:
        raise WorkloadError(
            "nothing would be trained: no layer gives an output that needs a gradient; "
            "let some parameters have requires_grad=True"
        )
    before, name = (workload.layers[trained[-1] + i].name for i in range(2))
    raise WorkloadError(
        f"nothing would be trained: layer {name!r} gives an output that needs no "
        f"gradient, though what {before!r} gives it does: let it detach nothing"
    )


def check_loss(workload: Workload, output: TensorSpec, targets: TensorSpec) -> None:
    """Run the loss on fake tensors.

    Raises:
        WorkloadError: it fails on the output, or gives no floating scalar, or one that
            nothing could learn from.
    """
    last = workload.layers[-1].name
    try:
        made = output.empty("cpu", grad=True)
        loss: object = workload.loss(made, targets.empty("cpu"))
    except Exception as error:
        raise WorkloadError(
            f"the loss fails on {output} from layer {last!r} and targets {targets}: "
            f"{located(error)}; {DEBUG}"
        ) from error
    if not isinstance(loss, Tensor) or loss.ndim or not loss.is_floating_point():
        form = TensorSpec.of(loss) if isinstance(loss, Tensor) else type(loss).__name__
        raise WorkloadError(
            f"the loss is {form}, but a scalar is needed: the mean over the samples"
        )
    if not loss.requires_grad:
        raise WorkloadError(
            "nothing would be trained: the loss needs no gradient, though the output "
            "that it is made from does; let it detach nothing"
        )
