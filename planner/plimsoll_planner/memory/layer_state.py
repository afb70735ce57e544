"""State of layers that replicas divide, or that several layers share.

In: a profile, the rows of its layers, which of the three bounds. Out: a `DividedBytes`,
a `Tie`. Called by `chain_bytes`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from plimsoll_planner.memory.bounds import Bound, Ints
from plimsoll_planner.records.bounds import LARGEST_DEVICE_BYTES
from plimsoll_planner.records.model_profile import (
    NUMBER_BYTES,
    ModelProfile,
    Recipe,
    TiedLayers,
)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class DividedBytes:
    """`DividedColumns` of each layer, [L]."""

    num_parameters: Ints
    num_buffers: Ints
    num_numbers: Ints
    smallest_buffer: Ints
    parameter: Ints
    optimizer_per_number: Ints
    optimizer_rest: Ints
    transient_per_number: Ints
    computed: int
    """Bytes of a number in the type that is computed in."""
    added: int
    """Bytes of a number in the type that gradients are added up in."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Tie:
    """Layers of which a rank holds one copy."""

    members: Ints
    """Their places in the chain."""
    parameter: int
    gradient: int
    buffer: int
    optimizer: int
    """Bytes of the copy, named as the columns of `ChainBytes`."""
    waiting_bytes: int
    """Held during backward on a rank with several members: the first gradient that is
    computed waits for the others, in the parameters' type. 0 for the lower bound: the
    peak may lie before."""
    exchanged: int
    owned: int
    host: int = 0
    """As the columns of `ChainBytes`."""
    num_numbers: int = 0
    """As in `TiedLayers`, and so is `optimizer_per_number`."""
    optimizer_per_number: int = 0

    @property
    def state(self) -> int:
        """All state of the copy."""
        return self.parameter + self.gradient + self.buffer + self.optimizer


def divided_bytes(profile: ModelProfile, rows: Ints) -> DividedBytes | None:
    """`DividedColumns` of each layer, of which `rows` are those of the table."""
    columns = profile.costs.divided
    if columns is None:
        return None

    def column(values: tuple[int, ...]) -> Ints:
        return np.minimum(np.array(values, dtype=np.int64), LARGEST_DEVICE_BYTES)[rows]

    return DividedBytes(
        num_parameters=column(columns.num_parameters),
        num_buffers=column(columns.num_buffers),
        num_numbers=column(columns.num_numbers),
        smallest_buffer=column(columns.smallest_buffer),
        parameter=column(columns.parameter_bytes),
        optimizer_per_number=column(columns.optimizer_bytes_per_number),
        optimizer_rest=column(columns.optimizer_rest_bytes),
        transient_per_number=column(columns.transient_bytes_per_number),
        computed=NUMBER_BYTES[profile.recipe.precision],
        added=NUMBER_BYTES[profile.recipe.sums_in],
    )


def tie_of(recipe: Recipe, tied: TiedLayers, bound: Bound) -> Tie:
    """Bytes that a rank saves, and holds a while, with several of some tied layers."""
    computed, added = NUMBER_BYTES[recipe.precision], NUMBER_BYTES[recipe.sums_in]
    waiting_bytes = tied.gradient_bytes * computed // added
    return Tie(
        members=np.array(sorted(tied.layers), dtype=np.int64),
        parameter=tied.parameter_bytes,
        gradient=tied.gradient_bytes,
        buffer=tied.buffer_bytes,
        optimizer=tied.optimizer_bytes,
        waiting_bytes=0 if bound is Bound.LOWER else waiting_bytes,
        exchanged=tied.gradient_bytes,
        owned=tied.num_numbers or tied.gradient_bytes // added,
        num_numbers=tied.num_numbers,
        optimizer_per_number=tied.optimizer_bytes_per_number,
    )
