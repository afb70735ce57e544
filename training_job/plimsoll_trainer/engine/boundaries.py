"""Shape and type of every tensor between two layers, found without computing anything.

In: a workload and a micro-batch. Out: one `TensorSpec` for each boundary, the inputs
first. The layers run on fake tensors, each kind of layer and input once; a chain whose
layers do not fit together is refused here, by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from plimsoll_trainer.carried import CarriedValue, whence
from plimsoll_trainer.engine.batches import DEBUG, first_batch
from plimsoll_trainer.engine.built_layer import build_layer
from plimsoll_trainer.engine.carried_values import (
    GradientSum,
    Taken,
    behind_joint,
    joined,
    returned,
)
from plimsoll_trainer.engine.layer_forms import (
    check_called,
    check_read,
    check_returned,
    check_unwritten,
)
from plimsoll_trainer.engine.learned import (
    Learning,
    Names,
    kept_in_python,
    learning_of,
    unlearned_in,
    with_frozen,
)
from plimsoll_trainer.engine.loss_checks import check_loss, check_token_loss
from plimsoll_trainer.engine.stage import Received
from plimsoll_trainer.engine.tensor_specs import TensorSpec
from plimsoll_trainer.engine.wrapped_modules import check_unwrapped
from plimsoll_trainer.errors import THEIR_ERRORS, WorkloadError, located
from plimsoll_trainer.sequence_parallel import SEQUENCE
from plimsoll_trainer.torch_internals.operators import (
    NEEDS_NUMBERS,
    FakeTensorMode,
    num_writes,
    storage_of,
)
from plimsoll_trainer.workload import Workload

CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True, slots=True)
class CarriedSpec:
    """Form of one carried value."""

    value: CarriedValue
    spec: TensorSpec
    needs_gradient: bool
    """Whether something before its giver, or in it, is trained by what is given."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Boundaries:
    """All tensors of one micro-batch."""

    between: tuple[TensorSpec, ...]
    """between[i] is passed to layer i; the last one enters the loss."""
    targets: TensorSpec
    overwritten: frozenset[int] = frozenset()
    """Layers that write to what enters them, so that no recompute could start there."""
    given_back: frozenset[int] = frozenset()
    """Layers whose output lies in the memory of what enters them."""
    untrained: frozenset[int] = frozenset()
    """Boundaries whose passed value needs no gradient: nothing before is trained by
    it."""
    carried: tuple[CarriedSpec, ...] = ()
    """Values beside the passed ones, in the order in which they are sent."""
    unlearned: Mapping[int, Names] = field(default_factory=dict)
    """Parameters that no gradient comes back to, of all that are or were trained, by
    layer."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Inputs of the model, in the order of the batch."""
        return self.crossing(0)

    def crossing(self, boundary: int) -> tuple[TensorSpec, ...]:
        """All that crosses a boundary: what is passed, then what is carried."""
        return (self.between[boundary], *(one.spec for one in self.entering(boundary)))

    def entering(self, boundary: int) -> tuple[CarriedSpec, ...]:
        """Carried values that cross a boundary."""
        return tuple(one for one in self.carried if one.value.enters(boundary))

    def specs_of(self, boundary: int) -> tuple[Tensor, ...]:
        """What crosses a boundary, without memory, with the gradients there are."""
        spec = self.between[boundary]
        is_trained = boundary > 0 and boundary not in self.untrained
        passed = spec.empty("meta", grad=is_trained and spec.dtype.is_floating_point)
        carried = (
            one.spec.empty("meta", grad=one.needs_gradient)
            for one in self.entering(boundary)
        )
        return passed, *carried

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
    given: tuple[tuple[TensorSpec, bool], ...]
    """Values that it gives, and whether they need gradients."""
    learning: Learning


Form = tuple[TensorSpec, bool]
"""Of a carried value, and whether it needs a gradient."""


def boundaries_of(workload: Workload, micro_batch: int) -> Boundaries:
    """Run every kind of layer on fake tensors.

    Raises:
        WorkloadError: the layers do not chain, or the loss is not a scalar.
    """
    inputs, targets = first_batch(workload, micro_batch)
    first, *others = map(TensorSpec.of, cast_inputs(inputs, workload))
    between, passed, trains = [first], list[Passed](), False
    forms = {n: (spec, False) for n, spec in zip(workload.inputs, others, strict=True)}
    known: dict[tuple[object, ...], Passed] = {}
    with FakeTensorMode():
        for index, layer in enumerate(workload.layers):
            taken = tuple(forms[name] for name in layer.takes or ())
            place = (layer.kind, between[-1], trains, taken, len(layer.gives))
            if place not in known:
                known[place] = pass_through(
                    workload, index, between[-1], taken, trains=trains
                )
            made = known[place]
            passed.append(made)
            between.append(made.output)
            forms |= zip(layer.gives, made.given, strict=True)
            trains = made.trains
        check_trains(workload, passed)
        check_loss(workload, between[-1], TensorSpec.of(targets))
        if not workload.layers[-1].takes:
            check_token_loss(workload, between[-2], TensorSpec.of(targets))
        check_overwritten(workload, between, passed, forms)
    untrained = {place + 1 for place, made in enumerate(passed) if not made.trains}
    return Boundaries(
        between=tuple(between),
        targets=TensorSpec.of(targets),
        overwritten=frozenset(i for i, made in enumerate(passed) if made.overwrites),
        given_back=frozenset(i for i, made in enumerate(passed) if made.gives_back),
        untrained=frozenset({0, *untrained}),
        carried=tuple(
            CarriedSpec(value=value, spec=spec, needs_gradient=needs_gradient)
            for value in workload.carried
            for spec, needs_gradient in [forms[value.name]]
        ),
        unlearned=unlearned_in(workload, [made.learning for made in passed]),
    )


def settled(workload: Workload, micro_batch: int) -> tuple[Workload, Boundaries]:
    """A workload with what learns nothing frozen, and what is between its layers.

    Raises:
        WorkloadError: see `boundaries_of`.
    """
    boundaries = boundaries_of(workload, micro_batch)
    if not boundaries.unlearned:
        return workload, boundaries
    workload = with_frozen(workload, boundaries.unlearned)
    found = boundaries_of(workload, micro_batch)
    return workload, replace(found, unlearned=boundaries.unlearned)


def cast_inputs(inputs: Sequence[Tensor], workload: Workload) -> tuple[Tensor, ...]:
    """Bring floating inputs to the type that the layers compute in."""
    return tuple(
        part.to(workload.dtype) if part.is_floating_point() else part for part in inputs
    )


def pass_through(
    workload: Workload,
    index: int,
    incoming: TensorSpec,
    taken: Sequence[Form] = (),
    *,
    trains: bool,
) -> Passed:
    """Result of a layer for fake tensors, which need gradients if something trains.

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
    check_called(workload.layers[index], layer)
    buffers = [(key, kept, num_writes(kept)) for key, kept in layer.named_buffers()]
    x, values = entering(incoming, taken, trains=trains)
    before = [num_writes(tensor) for tensor in (x, *values)]
    entries = [tensor.grad_fn for tensor in (x, *values)]
    kept = kept_in_python(layer)
    output = called(workload, index, layer, x, values)
    check_returned(workload.layers[index], output)
    for value, tensor, count in zip(
        workload.layers[index].takes or (), values, before[1:], strict=True
    ):
        check_read(name, value, is_written=num_writes(tensor) != count)
    passed, given = returned(output, x, values, layer)
    if index == len(workload.layers) - 1:
        assert isinstance(output, Tensor)  # noqa: S101 - it gives nothing
        passed = output
    if workload.layers[index].recomputable:
        check_unwritten(name, layer, buffers)
    return Passed(
        output=TensorSpec.of(passed),
        overwrites=num_writes(x) != before[0],
        gives_back=storage_of(passed)[0] == storage_of(x)[0],
        trains=passed.requires_grad,
        given=tuple((TensorSpec.of(one), one.requires_grad) for one in given),
        learning=learning_of(
            layer, entries, (passed, *given), is_steady=kept == kept_in_python(layer)
        ),
    )


def called(
    workload: Workload, index: int, layer: nn.Module, x: Tensor, values: list[Tensor]
) -> object:
    """Result of a layer's forward pass.

    Raises:
        WorkloadError: it fails, or asks for numbers.
    """
    name = workload.layers[index].name
    try:
        output: object = layer(x, *values)
    except NEEDS_NUMBERS as error:
        raise WorkloadError(
            f"layer {name!r} asks for numbers ({located(error)}), and which operators "
            "run, and on what sizes, may not depend on them: use torch.where or fixed "
            f"shapes there; {DEBUG}"
        ) from error
    except THEIR_ERRORS as error:
        raise WorkloadError(
            f"layer {name!r} fails on {described_inputs(workload, index, x, values)}: "
            f"{located(error)}; {DEBUG}"
        ) from error
    return output


def entering(
    incoming: TensorSpec, taken: Sequence[Form], *, trains: bool
) -> tuple[Tensor, list[Tensor]]:
    """Fake tensors that enter a layer: what is passed, what is carried."""
    x = incoming.empty("cpu", grad=trains)
    values = [spec.empty("cpu", grad=grad) for spec, grad in taken]
    return (
        Received.apply(x) if trains else x,
        [joined(Taken, value, GradientSum()) for value in values],
    )


def described_inputs(
    workload: Workload, index: int, x: Tensor, values: Sequence[Tensor]
) -> str:
    """What a layer was called with, and who gave it, in a message."""
    before = workload.layers[index - 1].name if index else "the batch"
    text = f"{TensorSpec.of(x)}, which {before!r} gives"
    names = workload.layers[index].takes or ()
    sources = {value.name: value.source for value in workload.carried}
    for name, value in zip(names, values, strict=True):
        giver = whence(workload.layers, sources[name])
        text += f", and {name!r}, {TensorSpec.of(value)}, which {giver} gives"
    return text


def check_overwritten(
    workload: Workload,
    between: Sequence[TensorSpec],
    passed: Sequence[Passed],
    forms: Mapping[str, Form],
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
            run_both_ways(workload, first, index, between[first], forms)
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
    workload: Workload,
    first: int,
    last: int,
    incoming: TensorSpec,
    forms: Mapping[str, Form],
) -> None:
    """Run some layers forward and backward; carried values are new ones for each."""
    x = incoming.empty("cpu", grad=incoming.dtype.is_floating_point)
    x = Received.apply(x)
    for index in range(first, last + 1):
        layer = build_layer(workload, index, CPU)
        place = workload.layers[index]
        taken = [forms[name] for name in place.takes or ()]
        values = [spec.empty("cpu", grad=grad) for spec, grad in taken]
        passed, given = returned(layer(x, *values), x, values, layer)
        x, *_ = behind_joint([GradientSum() for _ in given], passed, given)
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
