"""Layers as one rank of a tensor group has them, probed without the other ranks.

The process is the first of T ranks, in a group in which nothing is sent: bytes are the
same, and what a collective would give is there, with other values. Each layer is built
whole and split as the trainer does it.

In: a workload, T. Out: a mesh; which variants the layers can be had in, and why others
are left out. Called by the prober.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from plimsoll_planner.records.model_profile import NotSplit, Variant
from plimsoll_profiler.probing.messages import Case
from plimsoll_profiler.probing.split_check import compare_splits
from plimsoll_trainer.carried import carrying_layer
from plimsoll_trainer.engine import split_tensors
from plimsoll_trainer.engine.boundaries import Boundaries
from plimsoll_trainer.engine.built_layer import build_layer
from plimsoll_trainer.engine.elementwise import is_elementwise
from plimsoll_trainer.engine.tensor_specs import TensorSpec
from plimsoll_trainer.engine.world import join_world
from plimsoll_trainer.errors import THEIR_ERRORS, WorkloadError, located
from plimsoll_trainer.torch_internals.operators import FakeTensorMode, without_modes
from plimsoll_trainer.torch_internals.pipeline import single_process
from plimsoll_trainer.workload import Workload

CPU = torch.device("cpu")
MIXES = (
    "a step of the optimizer on a part of a tensor is not that part of a step on all "
    "of it"
)
"""Why no degree can be had, if the optimizer mixes numbers of a tensor."""
NOBODY_SPLITS = "no layer has a `parallelize`; docs/workload.md has one to copy"
"""Why no degree can be had of most models."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitVariants:
    """Variants that layers are probed in, and what is known of the others."""

    possible: tuple[Variant, ...] = (Variant(),)
    left_out: tuple[NotSplit, ...] = ()
    not_compared: tuple[int, ...] = ()
    """Layers that are too large for their split to be compared with them."""


@contextmanager
def tensor_group(
    degree: int, device: torch.device = CPU
) -> Iterator[DeviceMesh | None]:
    """Be the first rank of a group of `degree`; None for one rank alone."""
    if degree == 1:
        yield None
        return
    with single_process(0, degree):
        with without_modes():  # a mesh reads numbers, which those of a trace are not
            mesh = join_world(1, 1, device, num_parts=degree).tensor_mesh
        yield mesh


def splits_layers(workload: Workload) -> bool:
    """Whether some layer says how it is split."""
    return any(layer.parallelize is not None for layer in workload.layers)


def splits_sequences(workload: Workload) -> bool:
    """Whether some layer says how it is split with its sequences."""
    return any(layer.parallelize_sequence is not None for layer in workload.layers)


def split_variants(
    workload: Workload,
    degrees: Sequence[int],
    cases: Sequence[Case],
    shapes: Boundaries,
) -> SplitVariants:
    """Variants that every layer can be had in, and why others cannot.

    What cannot be split as it is, is not tried with sequences split as well. A model of
    which nobody says how its layers are split has one variant.
    """
    ways = splits_layers(workload), splits_sequences(workload)
    carries = carrying_layer(workload.layers)
    reason = "" if any(ways) else workload.not_split or NOBODY_SPLITS
    if any(ways) and not is_elementwise(workload.optimizer):
        reason = MIXES
    if any(ways) and carries:
        reason = f"{carries}, which is not split over ranks"
    whys: dict[Variant, str] = {}
    for degree in sorted(degree for degree in degrees if degree > 1):
        plain = Variant(tensor_degree=degree)
        if ways[0] or reason:
            whys[plain] = reason or why_not_split(workload, plain, cases, shapes)
        if ways[1] and not whys.get(plain):
            by_sequence = replace(plain, sequence_parallel=True)
            whys[by_sequence] = why_not_split(workload, by_sequence, cases, shapes)
    too_large: set[int] = set()
    for has_parts in (False, True):
        possible = [one for one, why in whys.items() if not why]
        alike = [one for one in possible if one.sequence_parallel is has_parts]
        if not alike:
            continue
        split = [case.layer for case in cases if is_split(workload, case, alike[0])]
        why, larger = compare_splits(workload, alike[0], split, shapes)
        too_large |= set(larger)
        if why:
            whys |= dict.fromkeys(alike if has_parts else possible, why)
    return SplitVariants(
        possible=(Variant(), *(one for one, why in whys.items() if not why)),
        left_out=tuple(
            NotSplit(
                tensor_degree=one.tensor_degree,
                sequence_parallel=one.sequence_parallel,
                why=why,
            )
            for one, why in whys.items()
            if why and not (one.sequence_parallel and whys.get(plain_of(one)))
        ),
        not_compared=tuple(sorted(too_large)),
    )


def is_split(workload: Workload, case: Case, variant: Variant) -> bool:
    """Whether the layer of a case says how it is split."""
    layer = workload.layers[case.layer]
    by_sequence = variant.sequence_parallel
    split = layer.parallelize_sequence if by_sequence else layer.parallelize
    return split is not None


def plain_of(variant: Variant) -> Variant:
    """The same with whole sequences."""
    return replace(variant, sequence_parallel=False)


def why_not_split(
    workload: Workload, variant: Variant, cases: Sequence[Case], shapes: Boundaries
) -> str:
    """Why a group of ranks cannot share every layer; empty where it can.

    Each kind of layer is split and run forward on tensors without data.
    """
    degree, advice = variant.tensor_degree, "parallelize leave inputs and outputs whole"
    if variant.sequence_parallel:
        advice = "parallelize_sequence give this rank's part of the sequence"
        for layer in workload.layers:
            if layer.parallelize_sequence is None:
                return f"layer {layer.name!r} has no parallelize_sequence"
        try:
            shapes = shapes.in_parts(workload, degree)
        except WorkloadError as error:
            return str(error)
    for case in cases:
        name = workload.layers[case.layer].name
        expected = shapes.between[case.layer + 1]
        try:
            found = split_output(workload, variant, case.layer, shapes)
        except WorkloadError as error:
            return str(error)
        except THEIR_ERRORS as error:
            return f"layer {name!r} on {degree} ranks: {located(error)}"
        if found != expected:
            return (
                f"layer {name!r} gives {found} on {degree} ranks, but {expected} is "
                f"needed: let {advice}"
            )
    return ""


def require_split(module: nn.Module, named: str) -> None:
    """Refuse a `parallelize` that leaves all of a layer's matrices whole.

    Raises:
        WorkloadError: it has names of no modules, which torch passes over.
    """
    matrices = [one for one in module.parameters() if one.ndim > 1]
    if matrices and not any(map(split_tensors.is_split, matrices)):
        raise WorkloadError(
            f"parallelize of {named} splits none of its matrices: give it names as "
            "`named_modules()` has them, or leave it out"
        )


def split_output(
    workload: Workload, variant: Variant, index: int, shapes: Boundaries
) -> TensorSpec | str:
    """Form of what a layer gives where a group shares it."""
    incoming, by_sequence = shapes.between[index], variant.sequence_parallel
    with tensor_group(variant.tensor_degree) as mesh, FakeTensorMode():
        layer = build_layer(workload, index, CPU, mesh, sequence_parallel=by_sequence)
        if not by_sequence and workload.layers[index].parallelize is not None:
            require_split(layer, f"layer {workload.layers[index].name!r}")
        given: object = layer(incoming.empty("cpu"))
    if not isinstance(given, Tensor) or isinstance(given, DTensor):
        return f"a {type(given).__name__}"
    return TensorSpec.of(given)
