"""Layers as one rank of a tensor group has them, probed without the other ranks.

The process is the first of T ranks, in a group in which nothing is sent: bytes are the
same, and what a collective would give is there, with other values. Each layer is built
whole and split as the trainer does it.

In: a workload, T. Out: a mesh; which degrees the layers can be split by, and why
others are left out. Called by the prober.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from plimsoll_planner.records.model_profile import NotSplit
from plimsoll_profiler.probing.messages import Case
from plimsoll_profiler.probing.split_check import compare_splits
from plimsoll_trainer.engine.boundaries import Boundaries, TensorSpec
from plimsoll_trainer.engine.elementwise import is_elementwise
from plimsoll_trainer.engine.stage import build_layer
from plimsoll_trainer.engine.world import join_world
from plimsoll_trainer.errors import located
from plimsoll_trainer.torch_internals import (
    FakeTensorMode,
    single_process,
    without_modes,
)
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
class SplitDegrees:
    """Degrees that layers are probed by, and what is known of the others."""

    possible: tuple[int, ...] = (1,)
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


def split_degrees(
    workload: Workload,
    degrees: Sequence[int],
    cases: Sequence[Case],
    shapes: Boundaries,
) -> SplitDegrees:
    """Degrees by which every layer can be split, and why others cannot be had."""
    layers = workload.layers
    split = [c.layer for c in cases if layers[c.layer].parallelize is not None]
    why_none = "" if split else NOBODY_SPLITS
    if split and not is_elementwise(workload.optimizer):
        why_none = MIXES
    whys = {
        degree: why_none or why_not_split(workload, degree, cases, shapes)
        for degree in sorted(degrees)
        if degree > 1
    }
    possible, too_large = (
        [degree for degree, why in whys.items() if not why],
        list[int](),
    )
    if possible:
        why, too_large = compare_splits(workload, possible[0], split, shapes)
        whys |= dict.fromkeys(possible, why)
    return SplitDegrees(
        possible=(1, *(degree for degree, why in whys.items() if not why)),
        left_out=tuple(
            NotSplit(tensor_degree=degree, why=why)
            for degree, why in whys.items()
            if why
        ),
        not_compared=tuple(too_large),
    )


def why_not_split(
    workload: Workload, degree: int, cases: Sequence[Case], shapes: Boundaries
) -> str:
    """Why a group of ranks cannot share every layer; empty where it can.

    Each kind of layer is split and run forward on tensors without data.
    """
    for case in cases:
        name = workload.layers[case.layer].name
        whole = shapes.between[case.layer + 1]
        try:
            found = split_output(workload, degree, case.layer, shapes)
        except Exception as error:  # noqa: BLE001 - their code
            return f"layer {name!r} on {degree} ranks: {located(error)}"
        if found != whole:
            return (
                f"layer {name!r} gives {found} on {degree} ranks, and {whole} on one: "
                "let parallelize leave inputs and outputs whole"
            )
    return ""


def split_output(
    workload: Workload, degree: int, index: int, shapes: Boundaries
) -> TensorSpec | str:
    """Form of what a layer gives where a group shares it."""
    incoming = shapes.between[index]
    with tensor_group(degree) as mesh, FakeTensorMode():
        layer = build_layer(workload, index, CPU, mesh)
        given: object = layer(incoming.empty("cpu"))
    if not isinstance(given, Tensor) or isinstance(given, DTensor):
        return f"a {type(given).__name__}"
    return TensorSpec.of(given)
