"""The bytes of carried values and of their gradients, as arrays for one chain.

In: the carried columns of a profile, which of the three bounds, b. Out: a
`CarriedBytes`, a part of `ChainBytes`. Read by the formula (`rank_peak`), by the search
(`run_options`, `stage_peaks`) and for the seconds of links.

A value has a giver i, or i = -1 for an input of the model, and takers q_1 < ... < q_n.
Its way is cut into legs: from the giver to the first taker, from there to the second,
and so on. A gradient comes back leg by leg: the backward pass of the last taker makes
it, each taker in front adds to it in place, and the giver's backward pass uses it.

    x, y     bytes of a value, and of its gradient, 0 where none comes back
    [A, B)   a stage

**Gradients of a stage.** Those of all values that cross the cut behind the stage are
received, and the engine holds them until the backward pass of the stage is over. So
the sum of one that was received and of one that a taker of the stage made is another
buffer. A value that a stage receives, hands on and does not take has its gradient
copied at the beginning of the backward pass, as autograd accumulates it for the stage
in front. Hence there are, besides the received ones,

    alive    before layer l, of each value that is given in front of l and taken behind
             l inside the stage: y
    through  during the whole pass, of each value from in front of the stage that
             nothing in the stage takes and something behind it does: y

and a value that is given by l and taken behind the stage alone has its gradient among
the received ones (`straight`), where the transient of layer l counts it a second time.
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
    """Carried values [n] and their legs [e]; sums are capped as bytes of layers are."""

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
    of: Ints
    """[e]: the value that takes the leg."""
    begin: Ints
    """[e]: the giver, or the taker where the leg begins."""
    end: Ints
    """[e]: the taker where it ends."""

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

    @cached_property
    def _leg_gradient(self) -> Ints:
        """[e]: y."""
        return self.gradient[self.of]

    @cached_property
    def _is_first(self) -> Flags:
        """[e]: whether a leg begins at the giver."""
        return np.asarray(self.begin == self.source[self.of])

    def alive(self, layer: int) -> Ints:
        """[B], B from 0 to L: gradients alive before a layer's backward pass."""
        is_alive = (self.begin + self._is_first <= layer) & (layer < self.end)
        made = np.zeros(self.num_layers + 1, dtype=np.int64)
        np.add.at(made, self.end[is_alive] + 1, self._leg_gradient[is_alive])
        return capped(np.cumsum(made))

    def straight(self, layer: int) -> Ints:
        """[B]: received gradients of what a layer gives that nothing inside takes."""
        is_own = self._is_first & (self.begin == layer)
        last = np.zeros(self.num_layers + 2, dtype=np.int64)
        np.add.at(last, self.end[is_own], self._leg_gradient[is_own])
        found = np.cumsum(last[::-1])[::-1][:-1]
        return capped(np.where(np.arange(self.num_layers + 1) > layer, found, 0))

    def through(self, first: Ints, end: Ints) -> Ints:
        """[A, B]: gradients of values that go through stages untouched."""
        return stretching(self._leg_gradient, (self.begin, self.end), first, end)

    def crossing_from_front(self, first: Ints, end: Ints) -> Ints:
        """[A, B]: values from in front of stages that are taken behind them."""
        return stretching(self.value, (self.source, self.target), first, end)


def stretching(amounts: Ints, ways: tuple[Ints, Ints], first: Ints, end: Ints) -> Ints:
    """[A, B]: amounts whose way begins in front of A and ends at B or behind it."""
    begin, stop = ways
    starts_before = (begin[None, :] < first[:, None]) * amounts
    ends_behind = stop[:, None] >= end[None, :]
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
    legs = [
        (row, begin, end)
        for row, (source, takers) in enumerate(
            zip(carried.source, carried.takers, strict=True)
        )
        for begin, end in zip((source, *takers[:-1]), takers, strict=True)
    ]
    of, begin, end = np.array(legs, dtype=np.int64).reshape(-1, 3).T

    def column(values: tuple[int, ...]) -> Ints:
        return np.array(values, dtype=np.int64)

    return CarriedBytes(
        num_layers=num_layers,
        value=capped(column(tuple(found))),
        source=column(carried.source),
        target=column(carried.target),
        needs_gradient=np.array(carried.needs_gradient, dtype=np.bool_),
        of=of,
        begin=begin,
        end=end,
    )
