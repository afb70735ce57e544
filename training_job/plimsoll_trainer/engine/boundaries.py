"""Shape and type of every tensor between two layers, found without computing anything.

In: a workload and a micro-batch. Out: one `TensorSpec` for each boundary, the inputs
first. The layers run on fake tensors, each kind of layer and input once; a chain whose
layers do not fit together is refused here, by name.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from plimsoll_trainer.engine.batches import DEBUG, first_batch
from plimsoll_trainer.engine.built_layer import build_layer
from plimsoll_trainer.engine.stage import Received, passed_on
from plimsoll_trainer.engine.token_pieces import check_pieces
from plimsoll_trainer.engine.wrapped_modules import check_unwrapped
from plimsoll_trainer.errors import THEIR_ERRORS, WorkloadError, located
from plimsoll_trainer.sequence_parallel import SEQUENCE
from plimsoll_trainer.torch_internals.operators import (
    NEEDS_NUMBERS,
    FakeTensorMode,
    num_writes,
    storage_of,
)
from plimsoll_trainer.workload import TokenLoss, Workload

CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Form of the tensor at one boundary; the first dimension counts samples."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: Tensor) -> TensorSpec:
        """Form of a tensor."""
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
    given_back: frozenset[int] = frozenset()
    """Layers whose output lies in the memory of what enters them."""
    untrained: frozenset[int] = frozenset()
    """Boundaries that need no gradient, for nothing before them is trained."""

    def spec_of(self, boundary: int) -> Tensor:
        """What passes a boundary, without memory, with a gradient if it has one."""
        spec = self.between[boundary]
        is_trained = boundary > 0 and boundary not in self.untrained
        return spec.empty("meta", grad=is_trained and spec.dtype.is_floating_point)

    def in_parts(self, workload: Workload, num_parts: int) -> Boundaries:
        """The same for one of some ranks that split each sequence between layers.

        Raises:
            WorkloadError: a layer passes on what has no sequence, or cannot be divided.
        """
        between = list(self.between)
        for index in range(1, len(between) - 1):
            spec = between[index]
            if len(spec.shape) <= SEQUENCE or spec.shape[SEQUENCE] % num_parts:
                raise WorkloadError(
                    f"layer {workload.layers[index - 1].name!r} passes on {spec}, of "
                    f"which {num_parts} ranks cannot split the sequence, its second "
                    "dimension: give samples of a length that they divide, or split "
                    "the layers alone"
                )
            shape = list(spec.shape)
            shape[SEQUENCE] //= num_parts
            between[index] = TensorSpec(tuple(shape), spec.dtype)
        return replace(self, between=tuple(between))


@dataclass(frozen=True, kw_only=True, slots=True)
class Passed:
    """Findings about one layer and one input."""

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
        check_token_loss(workload, between[-2], TensorSpec.of(targets))
        check_overwritten(workload, between, passed)
    untrained = {place + 1 for place, made in enumerate(passed) if not made.trains}
    return Boundaries(
        between=tuple(between),
        targets=TensorSpec.of(targets),
        overwritten=frozenset(i for i, made in enumerate(passed) if made.overwrites),
        given_back=frozenset(i for i, made in enumerate(passed) if made.gives_back),
        untrained=frozenset({0, *untrained}),
    )


def cast_inputs(inputs: Tensor, workload: Workload) -> Tensor:
    """Bring floating inputs to the type that the layers compute in."""
    return inputs.to(workload.dtype) if inputs.is_floating_point() else inputs


def pass_through(
    workload: Workload, index: int, incoming: TensorSpec, *, trains: bool
) -> Passed:
    """Result of a layer for a fake tensor, which needs a gradient if something trains.

    Raises:
        WorkloadError: it cannot be built, does not turn a tensor into a tensor, or
            may not be recomputed and does not declare that.
    """
    name = workload.layers[index].name
    try:
        layer = build_layer(workload, index, CPU)
    except WorkloadError:
        raise
    except THEIR_ERRORS as error:
        raise WorkloadError(
            f"layer {name!r} cannot be built: {located(error)}; {DEBUG}"
        ) from error
    check_unwrapped(f"layer {name!r}", layer)
    check_one_input(name, layer)
    buffers = [(key, kept, num_writes(kept)) for key, kept in layer.named_buffers()]
    x = incoming.empty("cpu", grad=trains)
    x = Received.apply(x) if trains else x
    num_before = num_writes(x)
    try:
        output: object = layer(x)
    except THEIR_ERRORS as error:
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
    if index < len(workload.layers) - 1:
        output = passed_on(output)
    if workload.layers[index].recomputable:
        check_unwritten(name, layer, buffers)
    return Passed(
        output=TensorSpec.of(output),
        overwrites=num_writes(x) != num_before,
        gives_back=storage_of(output)[0] == storage_of(x)[0],
        trains=output.requires_grad,
    )


def check_one_input(name: str, layer: nn.Module) -> None:
    """Refuse a layer that cannot be called with one tensor.

    Raises:
        WorkloadError: its forward pass needs several.
    """
    needed = [
        key
        for key, parameter in inspect.signature(layer.forward).parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if len(needed) > 1:
        raise WorkloadError(
            f"layer {name!r} takes several inputs, {', '.join(needed)}, but layers "
            "pass one tensor on: make the others in the layer, keep them as its "
            "buffers, or put all into one tensor"
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
"""In torch's error of a backward pass that finds other values than it has saved."""


def run_both_ways(
    workload: Workload, first: int, last: int, incoming: TensorSpec
) -> None:
    """Run some layers forward and backward."""
    x = incoming.empty("cpu", grad=incoming.dtype.is_floating_point)
    x = Received.apply(x)
    for index in range(first, last + 1):
        x = passed_on(build_layer(workload, index, CPU)(x))
    if x.requires_grad:
        x.sum().backward()  # type: ignore[no-untyped-call]


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
            nothing could learn from, or a count that is none.
    """
    last = workload.layers[-1].name
    try:
        made = output.empty("cpu", grad=True)
        found: object = workload.loss(made, targets.empty("cpu"))
    except NEEDS_NUMBERS as error:
        raise WorkloadError(
            "the loss asks for the value of a tensor, as .item(), int(), a condition "
            "or a mask do, and no value is known before training: return tensors, not "
            f"numbers made from them; {DEBUG}"
        ) from error
    except Exception as error:
        raise WorkloadError(
            f"the loss fails on {output} from layer {last!r} and targets {targets}: "
            f"{located(error)}; {DEBUG}"
        ) from error
    loss, count = parted(found)
    if not isinstance(loss, Tensor) or loss.ndim or not loss.is_floating_point():
        raise WorkloadError(
            f"the loss is {form_of(loss)}, but a scalar is needed: the mean over the "
            "samples, or a tuple of the sum over what counts and how many count"
        )
    if isinstance(count, Tensor) and (count.ndim or count.requires_grad):
        raise WorkloadError(
            f"the loss counts {form_of(count)}, but a scalar without a gradient is "
            "needed: a number, or a tensor made from the targets alone"
        )
    if not isinstance(count, Tensor) and not 0 < count < math.inf:
        raise WorkloadError(
            f"the loss counts {count}, but a finite number above 0 is needed: how many "
            "of the micro-batch count, as the number of its targets"
        )
    if not loss.requires_grad:
        raise WorkloadError(
            "nothing would be trained: the loss needs no gradient, though the output "
            "that it is made from does; let it detach nothing"
        )


def check_token_loss(
    workload: Workload, incoming: TensorSpec, targets: TensorSpec
) -> None:
    """Refuse a `TokenLoss` behind a layer that does not take tokens apart.

    Raises:
        WorkloadError: see `check_pieces`.
    """
    if isinstance(workload.loss, TokenLoss):
        last = build_layer(workload, len(workload.layers) - 1, CPU)
        name, x = workload.layers[-1].name, incoming.empty(CPU)
        check_pieces(name, last, workload.loss, x, targets.empty(CPU))


def parted(found: object) -> tuple[object, Tensor | float]:
    """Loss and count in what a loss gives.

    Raises:
        WorkloadError: a list, or a tuple of something else.
    """
    match found:
        case list():
            raise WorkloadError(
                f"the loss is a list of {', '.join(map(form_of, found))}, but a scalar "
                "or a tuple is needed: return (sum over what counts, how many count)"
            )
        case (loss, (Tensor() | int() | float()) as count):
            return loss, count
        case tuple():
            forms = ", ".join(map(form_of, found))
            raise WorkloadError(
                f"the loss is a tuple of {forms}, but one of two scalars is needed: "
                "the sum over what counts, and how many count"
            )
        case _:
            return found, 1.0


def form_of(made: object) -> str:
    """Form of what a loss gave, in a message."""
    return str(TensorSpec.of(made)) if isinstance(made, Tensor) else type(made).__name__
