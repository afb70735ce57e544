"""The bytes of a chain of layers, as arrays for one bound and one micro-batch.

In: a profile, which of the three bounds, b. Out: a `ChainBytes`. Called by the formula
(`rank_peak`) and by the search (`option_arrays`, `stage_peaks`).

    l, L    a layer, their number       c   way of a layer (`WAYS`)
    b       samples in a micro-batch    u   bytes of the boundary behind a layer
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plimsoll_planner.errors import CannotPlanError
from plimsoll_planner.records.bounds import LARGEST_DEVICE_BYTES
from plimsoll_planner.records.interval import ByteInterval
from plimsoll_planner.records.layer_costs import ByteColumns
from plimsoll_planner.records.model_profile import (
    NUMBER_BYTES,
    ModelProfile,
    Recipe,
    TiedLayers,
    Variant,
)

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]
Values = Ints | Floats
UNSPLIT = Variant()
WIDEST = 4
"""Bytes of a number, at most."""
KEPT, RECOMPUTED = 0, 1
WAYS = (KEPT, RECOMPUTED)
"""Ways of a layer: what becomes of its activations between forward and backward."""
LARGEST_BYTES = 2**60
"""Above every sum of bytes that a device could hold; stands for `impossible` in arrays
of bytes. A million amounts of `LARGEST_DEVICE_BYTES` come up to it: those of 1,000
layers in 1,000 micro-batches in flight, or a boundary in a million of them."""
STATE = ("parameter", "gradient", "buffer", "optimizer")
"""The columns of state of a `ChainBytes`, of which tied layers share a copy (`Tie`)."""
COUNTED = (
    *(*STATE, "exchanged", "exchanged_forward", "exchanged_backward"),
    *("owned", "host", "optimizer_transient"),
    *("boundary", "saved", "held_input"),
    *("forward_transient", "backward_transient", "backward_transient_at_end"),
)
"""The columns of bytes of a `ChainBytes`."""


class Bound(StrEnum):
    """Which of the three numbers of an interval is meant."""

    LOWER = "lower"
    EXPECTED = "expected"
    UPPER = "upper"


def bytes_at(interval: ByteInterval, bound: Bound) -> int:
    """One of the three numbers."""
    match bound:
        case Bound.LOWER:
            return interval.lower_bytes
        case Bound.EXPECTED:
            return interval.expected_bytes
        case Bound.UPPER:
            return interval.upper_bytes


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


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ChainBytes:
    """Arrays over the layers, shape [L], or [c, L] over their ways."""

    bound: Bound
    """Which of the three numbers these are."""
    parameter: Ints
    gradient: Ints
    buffer: Ints
    """State that is not trained."""
    optimizer: Ints
    exchanged: Ints
    """Bytes whose all-reduce takes as long as what replicas exchange in a step."""
    exchanged_forward: Ints
    """The same of what they exchange in a forward pass."""
    exchanged_backward: Ints
    """The same of what they exchange in a backward pass."""
    owned: Ints
    """Numbers that the optimizer of a rank steps on."""
    host: Ints
    """Bytes in the memory of the machine."""
    optimizer_transient: Ints
    boundary: Ints
    saved: Ints
    """[c, l]"""
    keeps_input: Flags
    """[c, l]"""
    keeps_output: Flags
    """[c, l]"""
    forward_transient: Ints
    """[c, l]"""
    backward_transient: Ints
    """[c, l]: where another layer of the stage follows."""
    backward_transient_at_end: Ints
    """[c, l]: where none follows; never less, but `with_outputs_held_once`."""
    held_input: Ints
    """[c, l]: more in backward where the input outlives the layer's own pass."""
    own_output: Flags
    """[l]: the output of a stage that ends there is memory that nothing else counts."""
    past_output: bool
    """An output that the engine holds on to past its micro-batch counts."""
    allowed: Flags
    """[c, l]: ways that a layer has."""
    row: Ints
    """Layers of one row are alike."""
    ties: tuple[Tie, ...]
    inputs_per_sample: int
    targets_per_sample: int
    divided: DividedBytes | None
    """None where replicas cannot divide the optimizer state."""

    @property
    def num_layers(self) -> int:
        """L."""
        return len(self.row)

    @property
    def state(self) -> Ints:
        """Parameters, gradients, buffers and optimizer state."""
        return self.parameter + self.gradient + self.buffer + self.optimizer

    def tied_more_than_once(self, first: int, end: int) -> Iterator[tuple[int, Tie]]:
        """Yield (n - 1, tie) for each tie with n >= 1 members from first to end."""
        for tie in self.ties:
            inside = (tie.members >= first) & (tie.members < end)
            yield max(int(inside.sum()) - 1, 0), tie


def rows_of(profile: ModelProfile, variant: Variant = UNSPLIT) -> tuple[int, ...]:
    """For each layer its row in the table of costs, in one variant.

    Raises:
        CannotPlanError: the profile does not hold that variant.
    """
    if variant not in profile.variants:
        split = f"no variant of tensor_degree {variant.tensor_degree}"
        missing = (
            "no unsplit variant (tensor_degree 1)" if variant == UNSPLIT else split
        )
        raise CannotPlanError(f"the profile has {missing}, profile it again")
    place = profile.variants.index(variant)
    costs = profile.costs
    rows = {
        kind: row for row, kind in enumerate(costs.kind) if costs.variant[row] == place
    }
    return tuple(rows[kind] for kind in profile.layers.kind)


def countable_bytes(values: Ints) -> Ints:
    """Bytes whose sums stay below `LARGEST_BYTES`; see `countable`."""
    return np.minimum(values, LARGEST_DEVICE_BYTES + 1)


def countable(chain: ChainBytes) -> ChainBytes:
    """Chain whose sums stay below `LARGEST_BYTES`.

    What is more than any device has stays more: it becomes one byte more.
    """
    arrays: dict[str, Ints] = {name: getattr(chain, name) for name in COUNTED}
    samples = (chain.inputs_per_sample, chain.targets_per_sample)
    largest = max(*(int(value.max()) for value in arrays.values()), *samples)
    if largest <= LARGEST_DEVICE_BYTES:
        return chain
    most = LARGEST_DEVICE_BYTES + 1
    capped: dict[str, Any] = {
        name: np.minimum(value, most) for name, value in arrays.items()
    }
    return replace(
        chain,
        **capped,
        ties=tuple(
            replace(
                tie,
                **{
                    name: min(getattr(tie, name), most)
                    for name in (*STATE, "waiting_bytes", "exchanged", "owned")
                },
            )
            for tie in chain.ties
        ),
        inputs_per_sample=min(samples[0], most),
        targets_per_sample=min(samples[1], most),
    )


def with_outputs_held_once(chain: ChainBytes) -> ChainBytes:
    """Lower bytes of a chain for an engine that keeps the output of a stage.

    The output may be memory that is counted already: that of the last layer's input,
    changed in place or looked at as a view, for a layer that takes less than its output
    in forward. Or the layer keeps it as well; then the profile counts it until the
    layer lets go, beside the received gradient, which such an engine has elsewhere. And
    what a send has held past its micro-batch, gloo lets go late, and NCCL once it is
    waited for.
    """
    own = np.all(chain.forward_transient >= chain.boundary, axis=0)
    twice = chain.boundary * (chain.keeps_output | ~own)
    at_end = np.maximum(chain.backward_transient_at_end - twice, 0)
    return replace(
        chain,
        own_output=np.asarray(own),
        past_output=False,
        backward_transient_at_end=at_end,
    )


def chain_bytes(
    profile: ModelProfile,
    bound: Bound,
    micro_batch: int,
    variant: Variant = UNSPLIT,
) -> ChainBytes:
    """Bytes of a chain (`search.searched`) for `micro_batch` samples.

    They are those of one rank of a tensor group, if the variant splits layers.
    """
    costs, recipe, rows = profile.costs, profile.recipe, rows_of(profile, variant)
    place = np.array(rows, dtype=np.int64)

    def line(columns: ByteColumns | None) -> Ints:
        if columns is None:
            return np.zeros(len(rows), dtype=np.int64)
        found = {
            row: bytes_at(columns.at(row, micro_batch), bound) for row in set(rows)
        }
        return np.array([found[row] for row in rows], dtype=np.int64)

    def column(values: tuple[int, ...]) -> Ints:
        return np.array(values, dtype=np.int64)[place]

    def flags(values: tuple[bool, ...]) -> Flags:
        return np.array(values, dtype=np.bool_)[place]

    ways = (costs.kept, costs.recomputed)
    divided = divided_bytes(profile, place)
    # Some numbers may be of the widest type.
    number_bytes = WIDEST if bound is Bound.LOWER else NUMBER_BYTES[recipe.sums_in]
    gradient = column(costs.gradient_bytes)
    inside = np.stack([line(c.backward_transient) for c in ways])
    at_end = np.stack([line(c.backward_transient_at_end) for c in ways])
    late = line(costs.held_messages) if bound is Bound.UPPER else np.zeros_like(place)
    return ChainBytes(
        bound=bound,
        parameter=column(costs.parameter_bytes),
        gradient=gradient,
        buffer=column(costs.buffer_bytes),
        optimizer=column(costs.optimizer_bytes),
        exchanged=gradient,
        exchanged_forward=np.zeros_like(gradient),
        exchanged_backward=np.zeros_like(gradient),
        owned=gradient // number_bytes if divided is None else divided.num_numbers,
        host=np.zeros_like(gradient),
        optimizer_transient=column(costs.optimizer_transient_bytes),
        boundary=line(costs.boundary),
        saved=np.stack([line(c.saved) for c in ways]),
        keeps_input=np.stack([flags(c.keeps_input) for c in ways]),
        keeps_output=np.stack([flags(c.keeps_output) for c in ways]),
        forward_transient=np.stack([line(c.forward_transient) for c in ways]) + late,
        backward_transient=inside + late,
        backward_transient_at_end=np.maximum(inside, at_end) + late,
        held_input=np.stack([line(c.held_input) for c in ways]),
        own_output=np.ones(len(rows), dtype=np.bool_),
        past_output=True,
        allowed=np.stack(
            [np.ones(len(rows), dtype=np.bool_), flags(costs.recomputable)]
        ),
        row=place,
        ties=tuple(
            tie_of(recipe, tied, bound)
            for tied in profile.tied
            if profile.variants[tied.variant] == variant
        ),
        inputs_per_sample=profile.input_bytes_per_sample,
        targets_per_sample=profile.target_bytes_per_sample,
        divided=divided,
    )


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
