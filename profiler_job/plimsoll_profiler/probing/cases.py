"""Which layers cost the same, so that each kind is probed once.

Two layers are of one kind when the workload says so, the same tensors enter them, with
or without gradients, they give as many, and they stand alike: first, last, and in the
same ties; also whether they are the last to take each value that they take.
"""

from __future__ import annotations

from plimsoll_profiler.probing.layer_probe import TakenSpec
from plimsoll_profiler.probing.messages import Case
from plimsoll_trainer.engine.boundaries import Boundaries
from plimsoll_trainer.workload import Workload

Key = tuple[object, ...]


def cases_of(
    workload: Workload, shapes: Boundaries
) -> tuple[tuple[Case, ...], tuple[int, ...]]:
    """One case for each kind of layer, and which case each layer is.

    The shapes are those of any micro-batch.
    """
    places: dict[Key, int] = {}
    cases: list[Case] = []
    kind_of_layer: list[int] = []
    for index, layer in enumerate(workload.layers):
        key = key_of(workload, index, shapes)
        if key not in places:
            places[key] = len(cases)
            taken = {case.name for case in cases}
            name = free_name(layer.kind, layer.name, taken)
            may_be = layer.recomputable and index not in shapes.overwritten
            cases.append(Case(name=name, layer=index, recomputable=may_be))
        kind_of_layer.append(places[key])
    return tuple(cases), tuple(kind_of_layer)


def key_of(workload: Workload, index: int, shapes: Boundaries) -> Key:
    """Key of a kind of layer."""
    incoming, is_untrained = shapes.between[index], index in shapes.untrained
    layer = workload.layers[index]
    ties = frozenset(
        place
        for place, tie in enumerate(workload.ties)
        if any(name == layer.name for name, _ in tie.places)
    )
    last = index == len(workload.layers) - 1
    carried = taken_by(workload, index, shapes), len(layer.gives)
    return layer.kind, incoming, is_untrained, index == 0, last, ties, carried


def taken_by(
    workload: Workload, index: int, shapes: Boundaries
) -> tuple[TakenSpec, ...]:
    """Carried values that a layer takes, in the order of its names."""
    known = {one.value.name: one for one in shapes.carried}
    return tuple(
        TakenSpec(
            spec=known[name].spec,
            needs_gradient=known[name].needs_gradient,
            is_last=not known[name].needs_gradient or known[name].value.target == index,
        )
        for name in workload.layers[index].takes or ()
    )


LONGEST_NAME = 200
"""Kinds named after a printed module can be long; a record's name holds 256."""


def free_name(kind: str, layer: str, taken: set[str]) -> str:
    """Name of a kind as the workload has it, with the layer's name if that is taken."""
    short = " ".join(kind.split())[:LONGEST_NAME]
    return short if short not in taken else f"{short} at {layer}"[-256:]


def num_untrained(shapes: Boundaries) -> int:
    """Layers in front of the first one that trains."""
    places = range(len(shapes.between))
    return next(place for place in places if place + 1 not in shapes.untrained)
