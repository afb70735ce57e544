"""Samples of a workload, made and checked.

In: a workload, a step, the first sample and how many. Out: inputs, of which a model may
have several, and targets. Called by the trainer for every micro-batch, and by the
prober, which refuses samples that are not the same each time or under every
micro-batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from plimsoll_trainer.emulated.device import host_memory
from plimsoll_trainer.engine.tensor_specs import TensorSpec
from plimsoll_trainer.errors import WorkloadError, located
from plimsoll_trainer.out_of_memory import is_out_of_memory
from plimsoll_trainer.workload import BatchOfSeveral, Workload

DEBUG = "--debug shows the traceback"


def first_batch(workload: Workload, micro_batch: int) -> BatchOfSeveral:
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
    for (what, left), (_, right) in zip(named(once), named(again), strict=True):
        if not torch.equal(left, right):
            raise WorkloadError(
                f"batch(0, 0, {micro_batch}) gives other {what} when called again: "
                "derive each sample from step and index alone, as with a seeded "
                "torch.Generator"
            )
    return once


def make_batch(workload: Workload, step: int, first: int, count: int) -> BatchOfSeveral:
    """Make samples of a step, in the host's memory, and check their form.

    Returns:
        All inputs, the first one and those that the workload names; targets.

    Raises:
        WorkloadError: no such tensors, of `count` samples each.
    """
    with host_memory():
        made: object = workload.batch(step, first, count)
    call = f"batch({step}, {first}, {count})"
    match made:
        case (Tensor() as inputs, Tensor() as targets) if not workload.inputs:
            batch: BatchOfSeveral = (inputs,), targets
        case (tuple() as several, Tensor() as targets) if workload.inputs:
            check_inputs(several, workload.inputs, call)
            batch = several, targets
        case _:
            raise WorkloadError(f"{call} gives {shape_of(made)}, {needed(workload)}")
    for what, part in named(batch):
        if part.ndim == 0 or part.shape[0] != count:
            raise WorkloadError(
                f"{call} gives {what} of shape {list(part.shape)}, but the first "
                f"dimension must be {count} samples"
            )
    check_forms(batch[0], workload, call)
    return batch


def named(batch: BatchOfSeveral) -> list[tuple[str, Tensor]]:
    """Tensors of a batch, by what they are in a message."""
    inputs, targets = batch
    return [*(("inputs", part) for part in inputs), ("targets", targets)]


def needed(workload: Workload) -> str:
    """Form that a batch should have, in a message."""
    if workload.inputs:
        names = ", ".join(map(repr, workload.inputs))
        return (
            "but a tuple of a tuple of tensors and a tensor is needed: the first "
            f"input and {names}, then the targets"
        )
    return (
        "but a tuple of two tensors is needed, inputs and targets: put several "
        "targets into one tensor, and name further inputs in the workload's `inputs`"
    )


def check_inputs(
    several: tuple[object, ...], names: tuple[str, ...], call: str
) -> None:
    """Refuse other inputs than the workload names.

    Raises:
        WorkloadError: their number is another one, or one is no tensor.
    """
    if len(several) != len(names) + 1:
        raise WorkloadError(
            f"{call} gives {len(several)} inputs, but the workload has "
            f"{len(names) + 1}: the first one and {', '.join(map(repr, names))}"
        )
    for name, part in zip(names_of(names), several, strict=True):
        if not isinstance(part, Tensor):
            raise WorkloadError(
                f"{call} gives {type(part).__name__} as {name}, but a tensor is needed"
            )


def names_of(further: tuple[str, ...]) -> tuple[str, ...]:
    """Names of all inputs in a message."""
    return ("the first input", *map(repr, further))


def check_forms(inputs: Sequence[Tensor], workload: Workload, call: str) -> None:
    """Refuse inputs that are not like the examples that layers were made from.

    Raises:
        WorkloadError: another shape behind the samples, or another type, unless both
            are floating: those are brought to the type that layers compute in.
    """
    names, examples = names_of(workload.inputs), workload.example_inputs
    for name, part, example in zip(names, inputs, examples or inputs, strict=True):
        are_floating = part.is_floating_point() and example.is_floating_point()
        is_same = are_floating or part.dtype is example.dtype
        if not is_same or part.shape[1:] != example.shape[1:]:
            raise WorkloadError(
                f"{call} gives {TensorSpec.of(part)} as {name}, but the model was "
                f"captured with {TensorSpec.of(example)}: give samples of that shape "
                "and type, or such example_inputs"
            )


def shape_of(made: object) -> str:
    """Form of a batch in words, as in 'a tuple of dict and Tensor'."""
    if not isinstance(made, tuple):
        return type(made).__name__
    *rest, last = ["nothing"] if not made else [type(part).__name__ for part in made]
    return f"a tuple of {', '.join(rest)}{' and ' if rest else ''}{last}"


CLOSE = 1e-5
"""Difference, relative to the largest number, that adding up in another order makes."""


def check_samples(workload: Workload) -> None:
    """Make the first two samples of step 0 together and apart, and compare.

    What cannot make two samples, or one alone, is left for others to find.

    Raises:
        WorkloadError: a sample depends on what shares a micro-batch with it, which
            differs between plans.
    """
    try:
        both = make_batch(workload, 0, 0, 2)
        alone = [make_batch(workload, 0, first, 1) for first in range(2)]
    except Exception as error:
        if is_out_of_memory(error):
            raise
        return
    for (what, together), *others in zip(named(both), *map(named, alone), strict=True):
        apart = [sample for _, sample in others]
        if not all(
            is_same(together[place : place + 1], sample)
            for place, sample in enumerate(apart)
        ):
            raise WorkloadError(
                f"batch(0, 0, 2) gives other {what} than batch(0, 0, 1) and "
                "batch(0, 1, 1) do together: derive each sample from step and its own "
                "place alone, as with a generator that is seeded for each sample"
            )


def is_same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are alike but for the rounding of floating numbers."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not one.is_floating_point() or torch.equal(one, other):
        return torch.equal(one, other)
    close = max(CLOSE, 2 * torch.finfo(one.dtype).eps)
    one, other = one.double(), other.double()
    finite = one[one.isfinite()].abs()
    largest = float(finite.max()) if finite.numel() else 0.0
    return torch.allclose(one, other, rtol=0.0, atol=close * largest, equal_nan=True)
