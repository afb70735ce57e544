"""The bytes of a chain of layers, as arrays for one bound and one micro-batch.

In: a profile, which of the three bounds, b, the way of layers that are not kept. Out: a
`ChainBytes`. Called by the formula (`rank_peak`) and by the search (`option_arrays`,
`stage_peaks`).

    l, L    a layer, their number       c   way of a layer (`WAYS`)
    b       samples in a micro-batch    u   bytes of the boundary behind a layer
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from plimsoll_planner.errors import CannotPlanError
from plimsoll_planner.memory.bounds import Bound, Flags, Ints, bytes_at
from plimsoll_planner.memory.carried_bytes import CarriedBytes, carried_bytes
from plimsoll_planner.memory.layer_state import DividedBytes, Tie, divided_bytes, tie_of
from plimsoll_planner.records.bounds import LARGEST_DEVICE_BYTES
from plimsoll_planner.records.engine import Way
from plimsoll_planner.records.layer_costs import ByteColumns, LayerCosts
from plimsoll_planner.records.model_profile import NUMBER_BYTES, ModelProfile, Variant

UNSPLIT = Variant()
WIDEST = 4
"""Bytes of a number, at most."""
KEPT, RECOMPUTED = 0, 1
WAYS = (KEPT, RECOMPUTED)
"""Ways of a layer on one stage: kept, or the other way that the stage has. That is to
recompute, unless a technique has another (`ChainBytes.other`), which then stands in the
place of recomputing everywhere."""
LARGEST_BYTES = 2**60
"""Above every sum of bytes that a device could hold; stands for `impossible` in arrays
of bytes. A million amounts of `LARGEST_DEVICE_BYTES` come up to it: those of 1,000
layers in 1,000 micro-batches in flight, or a boundary in a million of them."""
STATE = ("parameter", "gradient", "buffer", "optimizer")
"""The columns of state of a `ChainBytes`, of which tied layers share a copy (`Tie`)."""
TRANSIENTS = ("forward_transient", "backward_transient", "backward_transient_at_end")
"""Peaks of a layer's passes: the last one where no layer follows in the stage."""
COUNTED = (
    *(*STATE, "exchanged", "exchanged_forward", "exchanged_backward"),
    *("owned", "host", "optimizer_transient"),
    *("boundary", "saved", "held_input", "on_host"),
    *TRANSIENTS,
)
"""The columns of bytes of a `ChainBytes`."""


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
    """What layers pass on."""
    saved: Ints
    """[c, l]: with the carried values that the layer gives: the engine holds them from
    its forward pass until its backward pass begins."""
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
    on_host: Ints
    """[c, l]: of a micro-batch in the memory of the machine, between its passes."""
    carried: CarriedBytes
    """Values that skip layers."""
    other: Way
    """Way of the layers that are not kept."""
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
    num_untrained: int
    """Layers in front of the first that trains: a stage that begins with one of them,
    or behind them, sends no gradient back."""
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

    @property
    def received(self) -> Ints:
        """[l]: what a stage behind layer l receives: passed on, and carried."""
        return self.boundary + self.carried.crossing

    @property
    def linked(self) -> Ints:
        """[l]: what the link behind a stage that ends with layer l carries each way.

        Gradients are taken to be as much as what is sent, but in lower bytes: there
        they count, which are no more. That decides where carried values have none.
        """
        is_lower = self.bound is Bound.LOWER
        carried = self.carried.returning if is_lower else self.carried.crossing
        return self.boundary + carried

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
    in forward. Or the layer keeps it as well, or a carried value that it gives; then
    the profile counts that until the layer lets go, beside the received gradient, which
    such an engine has elsewhere. And what a send has held past its micro-batch, gloo
    lets go late, and NCCL once it is waited for.
    """
    made = chain.boundary + chain.carried.given
    own = np.all(chain.forward_transient >= made, axis=0)
    twice = chain.boundary * (chain.keeps_output | ~own)
    given = chain.carried.given
    at_end = np.maximum(chain.backward_transient_at_end - twice - given, 0)
    return replace(
        chain,
        own_output=np.asarray(own),
        past_output=False,
        backward_transient=np.maximum(chain.backward_transient - given, 0),
        backward_transient_at_end=at_end,
    )


def chain_bytes(
    profile: ModelProfile,
    bound: Bound,
    micro_batch: int,
    variant: Variant = UNSPLIT,
    other: Way = Way.RECOMPUTED,
) -> ChainBytes:
    """Bytes of a chain (`search.searched`) for `micro_batch` samples.

    They are those of one rank of a tensor group, if the variant splits layers. Layers
    are kept or run in the `other` way, for which they were profiled.
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

    ways = (costs.kept, costs.ways[other])
    carried = carried_bytes(profile.carried, len(rows), bound, micro_batch)
    divided = divided_bytes(profile, place)
    # Some numbers may be of the widest type.
    number_bytes = WIDEST if bound is Bound.LOWER else NUMBER_BYTES[recipe.sums_in]
    gradient = column(costs.gradient_bytes)
    activations: dict[str, Ints] = {
        name: np.stack([line(getattr(columns, name)) for columns in ways])
        for name in ("saved", "held_input", "on_host", *TRANSIENTS)
    }
    activations["saved"] = activations["saved"] + carried.given
    inside, at_end = (activations[name] for name in TRANSIENTS[1:])
    activations[TRANSIENTS[-1]] = np.maximum(inside, at_end)
    late = line(costs.held_messages) if bound is Bound.UPPER else np.zeros_like(place)
    for name in TRANSIENTS:
        activations[name] = activations[name] + late
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
        keeps_input=np.stack([flags(c.keeps_input) for c in ways]),
        keeps_output=np.stack([flags(c.keeps_output) for c in ways]),
        **activations,
        carried=carried,
        other=other,
        own_output=np.ones(len(rows), dtype=np.bool_),
        past_output=True,
        allowed=np.stack(
            [np.ones(len(rows), dtype=np.bool_), flags(can_be(costs, other))]
        ),
        row=place,
        ties=tuple(
            tie_of(recipe, tied, bound)
            for tied in profile.tied
            if profile.variants[tied.variant] == variant
        ),
        inputs_per_sample=profile.input_bytes_per_sample,
        num_untrained=profile.num_untrained,
        targets_per_sample=profile.target_bytes_per_sample,
        divided=divided,
    )


def can_be(costs: LayerCosts, way: Way) -> tuple[bool, ...]:
    """Whether each row has a way."""
    return costs.recomputable if way.recomputes else (True,) * len(costs.kind)
