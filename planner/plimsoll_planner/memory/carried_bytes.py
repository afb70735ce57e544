"""The bytes of carried values and of their gradients, as arrays for one chain.

In: the carried columns of a profile, which of the three bounds, b. Out: a
`CarriedBytes`, a part of `ChainBytes`. Read by the formula (`rank_peak`), by the search
(`run_options`, `stage_peaks`) and for the seconds of links.

A value has a giver i, or i = -1 for an input of the model, and a last taker j; others
in between take nothing of their own, as they add to its gradient in place.

    x, y     bytes of a value, and of its gradient, 0 where none comes back
    [A, B)   a stage

**Gradients of a stage.** Those of all values that cross the cut behind the stage are
received, and the engine holds them until the backward pass of the stage is over; what
takers inside the stage find is added to them, and the giver uses them. The last taker
of a value makes the buffer of its gradient. So there are, besides the received ones,

    alive     before layer l: y of each value with i < l < j < B

and a value that l gives and that is taken behind the stage (`straight`) has its
gradient among the received ones, where the transient of layer l counts it once more.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from plimsoll_planner.memory.bounds import Bound, Flags, Ints, bytes_at
from plimsoll_planner.records.bounds import LARGEST_DEVICE_BYTES
from plimsoll_planner.records.carried import AN_INPUT, CarriedColumns


@dataclass(frozen=True, kw_only=True, eq=False)
class CarriedBytes:
    """Carried values [n]; sums of them are capped as bytes of layers are."""

    num_layers: int
    """L."""
    value: Ints
    """[n]: x."""
    source: Ints
    """[n]: the giver, -1 for an input."""
    target: Ints
    """[n]: the last taker."""
    needs_gradient: Flags
    """[n]"""

    @property
    def is_empty(self) -> bool:
        """Whether no value is carried."""
        return not len(self.value)

    @cached_property
    def gradient(self) -> Ints:
        """[n]: y."""
        return self.value * self.needs_gradient

    @cached_property
    def given(self) -> Ints:
        """[l]: values that a layer gives."""
        found = np.zeros(self.num_layers, dtype=np.int64)
        own = self.source != AN_INPUT
        np.add.at(found, self.source[own], self.value[own])
        return capped(found)

    @cached_property
    def crossing(self) -> Ints:
        """[l]: values that cross the cut behind a layer."""
        return self._crossing(self.value)

    @cached_property
    def returning(self) -> Ints:
        """[l]: gradients that come back through the cut behind a layer."""
        return self._crossing(self.gradient)

    def _crossing(self, amounts: Ints) -> Ints:
        """[l]: amounts of the values that cross the cut behind a layer."""
        steps = np.zeros(self.num_layers + 1, dtype=np.int64)
        np.add.at(steps, np.maximum(self.source, 0), amounts)
        np.subtract.at(steps, self.target, amounts)
        return capped(np.cumsum(steps)[:-1])

    def alive(self, layer: int) -> Ints:
        """[B], B from 0 to L: gradients alive before a layer's backward pass."""
        is_alive = (self.source < layer) & (layer < self.target)
        made = np.zeros(self.num_layers + 1, dtype=np.int64)
        np.add.at(made, self.target[is_alive] + 1, self.gradient[is_alive])
        return capped(np.cumsum(made))

    def straight(self, layer: int) -> Ints:
        """[B]: received gradients of what a layer gives; 0 where it is behind B."""
        is_own = self.source == layer
        last = np.zeros(self.num_layers + 1, dtype=np.int64)
        np.add.at(last, self.target[is_own], self.gradient[is_own])
        found = np.cumsum(last[::-1])[::-1]
        return capped(np.where(np.arange(self.num_layers + 1) > layer, found, 0))

    def surely_held(self, layer: int) -> Ints:
        """[B]: gradients from behind B of what a layer or one before it gives.

        Those of later givers may be the very tensor that comes to this layer, where a
        giver hands on its input: no lower bound counts them twice.
        """
        own = self.source <= layer
        last = np.zeros(self.num_layers + 1, dtype=np.int64)
        np.add.at(last, self.target[own], self.gradient[own])
        return capped(np.cumsum(last[::-1])[::-1])

    def given_behind(self, layer: int) -> Ints:
        """[B]: values of a layer and those behind it that are taken behind B."""
        own = self.source >= layer
        steps = np.zeros(self.num_layers + 2, dtype=np.int64)
        np.add.at(steps, self.source[own] + 1, self.value[own])
        np.subtract.at(steps, self.target[own] + 1, self.value[own])
        return capped(np.cumsum(steps)[:-1])

    def crossing_from_front(self, first: Ints, end: Ints) -> Ints:
        """[A, B]: values from in front of stages that are taken behind them."""
        starts_before = (self.source[None, :] < first[:, None]) * self.value
        ends_behind = self.target[:, None] >= end[None, :]
        return capped(starts_before @ ends_behind.astype(np.int64))


def capped(values: Ints) -> Ints:
    """Sums that stay below `chain_bytes.LARGEST_BYTES`; more than any device has."""
    return np.minimum(values, LARGEST_DEVICE_BYTES + 1)


def carried_bytes(
    carried: CarriedColumns, num_layers: int, bound: Bound, micro_batch: int
) -> CarriedBytes:
    """Bytes of carried values for `micro_batch` samples."""
    found = [
        bytes_at(carried.value.at(row, micro_batch), bound)
        for row in range(len(carried.name))
    ]

    def column(values: tuple[int, ...]) -> Ints:
        return np.array(values, dtype=np.int64)

    return CarriedBytes(
        num_layers=num_layers,
        value=capped(column(tuple(found))),
        source=column(carried.source),
        target=column(carried.target),
        needs_gradient=np.array(carried.needs_gradient, dtype=np.bool_),
    )
