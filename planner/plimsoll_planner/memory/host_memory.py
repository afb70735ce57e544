"""Memory of the machine that a rank takes, besides that of its device.

    interpreter and libraries
    + what a stage keeps there: optimizer state, with copies of gradients and parameters
    + one layer's gradients in the type of a step, where they are added up in another
    + a checkpoint, which copies parameters, buffers and optimizer state there

In: the matrices of a stage's bytes. Out: bytes [A, B] of one rank. Called by the search
for stages that keep something there, and for what pods ask for.

A device has an equal share of the memory of its machine: all pods of a job are alike,
so a machine that is full of them holds as many shares.
"""

from __future__ import annotations

from plimsoll_planner.memory.bounds import Bound, Ints
from plimsoll_planner.memory.stage_peaks import StageBytes
from plimsoll_planner.records.model_profile import NUMBER_BYTES, DeviceKind, Recipe
from plimsoll_planner.records.offer import Offer

PROCESS_BYTES = {
    DeviceKind.EMULATED: {
        Bound.LOWER: 2**28,
        Bound.EXPECTED: 2**29,
        Bound.UPPER: 2**30,
    },
    DeviceKind.CUDA: {
        Bound.LOWER: 2**29,
        Bound.EXPECTED: 2**31,
        Bound.UPPER: 2**32,
    },
}
"""Interpreter, libraries and a little data of one rank; beside a GPU not measured."""


def copied_bytes(recipe: Recipe) -> int:
    """Bytes of each number that is stepped on there, besides optimizer state.

    Its gradient, and its parameter: the one that the step works on, or a copy in the
    type of the device.
    """
    return NUMBER_BYTES[recipe.sums_in] + NUMBER_BYTES[recipe.precision]


def share(offer: Offer) -> int:
    """Bytes of a machine for each of its devices; 0 if not known, or no link is."""
    if offer.link_to_host is None or offer.host_memory_bytes is None:
        return 0
    each = offer.host_memory_bytes // offer.devices_per_node
    # Emulated devices have their own memory from it. What is known is above 0.
    is_emulated = offer.device_kind is DeviceKind.EMULATED
    return max(each - offer.device_memory_bytes * is_emulated, 1)


def rank_bytes(
    stages: StageBytes,
    kind: DeviceKind,
    recipe: Recipe,
    bound: Bound,
    largest_layer: int,
) -> Ints:
    """[A, B]: memory of the machine that one rank takes.

    Args:
        stages: bytes of all runs of layers.
        kind: of the device.
        recipe: types of numbers.
        bound: which of the three numbers. The lower one has no checkpoint.
        largest_layer: numbers that the optimizer steps on in the largest layer.
    """
    found = PROCESS_BYTES[kind][bound] + stages.host
    if bound is Bound.LOWER:
        return found
    if recipe.casts_sums:
        stepped_in = NUMBER_BYTES[recipe.precision.stepped_in]
        found = found + (stages.host > 0) * stepped_in * largest_layer
    on_host = (stages.host - stages.owned * copied_bytes(recipe)) * (stages.host > 0)
    return found + stages.state - stages.gradient + on_host
