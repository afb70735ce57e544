"""Values that layers carry past others: which layer gives each, and which take it.

    layer      0        1        2        3
    gives      a        b
    takes                        b        a, b
    carried    a: 0 -> 3         b: 1 -> 2, 3

Such a value goes beside the passed value, which every layer hands to the next one. It
crosses the cut behind layer c if its giver is no later than c and its last taker is.
Further inputs of the model are given by layer -1. In: names, as the layers of a
workload declare them. Out: `CarriedValue`s. Called by `workload`, so that one that no
rank could run is refused, and by whoever needs to know what crosses a cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from plimsoll_trainer.errors import WorkloadError

OF_THE_BATCH = -1
"""Giver of a further input of the model."""


class GivingLayer(Protocol):
    """A layer as far as names go; `workload.Layer` is one."""

    @property
    def name(self) -> str:
        """Tells the layer apart."""
        ...

    @property
    def takes(self) -> tuple[str, ...] | None:
        """Values that it is called with, behind the passed one."""
        ...

    @property
    def gives(self) -> tuple[str, ...]:
        """Values that it returns, behind the passed one."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class CarriedValue:
    """One value, from its giver to its takers."""

    name: str
    source: int
    """Layer that gives it, -1 for an input of the model."""
    takers: tuple[int, ...]
    """Layers that take it, the first one first."""

    @property
    def target(self) -> int:
        """The last layer that takes it."""
        return self.takers[-1]

    def enters(self, layer: int) -> bool:
        """Whether it crosses the cut in front of a layer."""
        return self.source < layer <= self.target


def carried_values(
    layers: Sequence[GivingLayer], inputs: Sequence[str]
) -> tuple[CarriedValue, ...]:
    """All values that the layers carry, in the order in which they are given.

    Inputs of the model come first, in the order of the batch. So they are sent.

    Raises:
        WorkloadError: a name is given twice, never taken, or taken where it is not
            known.
    """
    givers = givers_of(layers, inputs)
    takers: dict[str, list[int]] = {name: [] for name in givers}
    for index, layer in enumerate(layers):
        for name in layer.takes or ():
            check_taken(layers, index, name, givers)
            takers[name].append(index)
    for name, source in givers.items():
        if not takers[name]:
            raise WorkloadError(
                f"{whence(layers, source)} gives {name!r}, which no layer takes: let "
                "one take it, or give it no more"
            )
    return tuple(
        CarriedValue(name=name, source=source, takers=tuple(takers[name]))
        for name, source in givers.items()
    )


def givers_of(layers: Sequence[GivingLayer], inputs: Sequence[str]) -> dict[str, int]:
    """Giver of every name.

    Raises:
        WorkloadError: a name has two.
    """
    givers: dict[str, int] = {}
    named = [(OF_THE_BATCH, tuple(inputs))]
    named += [(index, tuple(layer.gives)) for index, layer in enumerate(layers)]
    for source, names in named:
        for name in names:
            if name in givers:
                raise WorkloadError(
                    f"{whence(layers, source)} gives {name!r}, as "
                    f"{whence(layers, givers[name])} does: give each value a name of "
                    "its own"
                )
            givers[name] = source
    return givers


def check_taken(
    layers: Sequence[GivingLayer], index: int, name: str, givers: dict[str, int]
) -> None:
    """Refuse a value that a layer cannot take.

    Raises:
        WorkloadError: nobody gives it, or not before this layer, or it is named twice.
    """
    layer = layers[index]
    if name not in givers:
        known = f"; known are {', '.join(sorted(givers)[:8])}" if givers else ""
        raise WorkloadError(
            f"layer {layer.name!r} takes {name!r}, which nothing gives: let a layer "
            f"before it give it, or name it in the inputs of the workload{known}"
        )
    if givers[name] >= index:
        raise WorkloadError(
            f"layer {layer.name!r} takes {name!r}, which "
            f"{whence(layers, givers[name])} gives and does not run before it: a "
            "value goes to later layers alone"
        )
    if Counter(layer.takes or ())[name] > 1:
        raise WorkloadError(
            f"layer {layer.name!r} takes {name!r} twice: name it once, and let the "
            "module use it twice"
        )


def whence(layers: Sequence[GivingLayer], source: int) -> str:
    """The giver of a value, in a message."""
    return "the batch" if source == OF_THE_BATCH else f"layer {layers[source].name!r}"


def carrying_layer(layers: Sequence[GivingLayer]) -> str:
    """What the first layer that takes or gives a value does, in words; empty: none."""
    for layer in layers:
        for names, does in ((layer.takes, "takes"), (layer.gives, "gives")):
            if names:
                return f"layer {layer.name!r} {does} {names[0]!r} besides what passes"
    return ""
