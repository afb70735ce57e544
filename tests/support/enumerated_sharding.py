"""State of layers that replicas divide, for the enumerator, by the text of ZeRO-1.

In: numbers of a problem, D, a run of layers. Out: bytes. A layer has one parameter.
A layer of n numbers is padded to n' = whole multiples of 16 D, of which each replica
owns a D-th; one of fewer than 16 D numbers stays whole.
"""

from __future__ import annotations

from plimsoll_planner.records.model_profile import TiedLayers
from tests.support.enumerated_costs import Costs

WHOLE = ("parameter", "gradient", "buffer", "optimizer")


def numbers_of(costs: Costs, layer: int) -> int:
    """Trained numbers of a layer."""
    return divided_column(costs, "num_numbers", layer)


def divided_column(costs: Costs, name: str, layer: int) -> int:
    """Read one column of divided layers."""
    columns = costs.costs.divided
    assert columns is not None
    return int(getattr(columns, name)[costs.costs.kind.index(costs.kinds[layer])])


def is_divided(costs: Costs, replicas: int, layer: int) -> bool:
    """Whether a layer has enough numbers."""
    return numbers_of(costs, layer) >= 16 * replicas


def padded(costs: Costs, replicas: int, layer: int) -> int:
    """Numbers n' of a layer."""
    multiple = 16 * replicas
    return -(-numbers_of(costs, layer) // multiple) * multiple


def layer_state(costs: Costs, replicas: int, layer: int) -> int:
    """State of one layer on the fullest of its replicas."""
    if not is_divided(costs, replicas, layer):
        return sum(costs.column(f"{name}_bytes", layer) for name in WHOLE)
    numbers = padded(costs, replicas, layer)
    own, rest = (
        numbers // replicas,
        divided_column(costs, "optimizer_rest_bytes", layer),
    )
    if costs.which == "lower":  # up to 15 numbers of the parameter may be none
        own = -(-max(numbers_of(costs, layer) - 15, 0) // replicas)
    of_number = divided_column(costs, "optimizer_bytes_per_number", layer)
    buffers = costs.column("buffer_bytes", layer)
    return numbers * 4 + numbers * 4 + buffers + own * of_number + rest


def divided_state(costs: Costs, replicas: int, first: int, end: int) -> int:
    """State of a stage, tied parts once."""
    total = sum(layer_state(costs, replicas, layer) for layer in range(first, end))
    for tie in costs.problem.profile.tied:
        inside = [layer for layer in tie.layers if first <= layer < end]
        if len(inside) > 1:
            total -= (len(inside) - 1) * tied_state(costs, replicas, tie)
    return total


def tied_state(costs: Costs, replicas: int, tie: TiedLayers) -> int:
    """State that a rank saves with a second layer of a tie.

    Buffers end elsewhere without it: a padding more or less, on the safe side.
    """
    if tie.num_numbers == 0 or not all(
        is_divided(costs, replicas, layer) for layer in tie.layers
    ):
        return sum(getattr(tie, f"{name}_bytes") for name in WHOLE)
    margin = {"lower": 1, "expected": 0, "upper": -1}[costs.which] * 16 * replicas
    numbers = max(tie.num_numbers + margin, 0)
    own = max(tie.num_numbers // replicas + margin, 0)
    state = numbers * 4 + numbers * (tie.gradient_bytes // tie.num_numbers)
    return state + own * tie.optimizer_bytes_per_number + tie.buffer_bytes


def divided_step(costs: Costs, replicas: int, layer: int) -> int:
    """Bytes of norm and optimizer step on top."""
    whole = costs.column("optimizer_transient_bytes", layer)
    if not is_divided(costs, replicas, layer):
        return whole
    if costs.which == "lower":
        return whole // replicas
    of_number = divided_column(costs, "transient_bytes_per_number", layer)
    scalars = 512 if costs.which == "upper" else 0
    own = padded(costs, replicas, layer) // replicas
    return min(whole, own * of_number + scalars)


def divided_exchange(costs: Costs, replicas: int, first: int, end: int) -> int:
    """Bytes whose all-reduce takes as long as the exchange with gloo.

    An all-reduce of all gradients; then each part of the parameters goes to all, which
    is half of an all-reduce of them.
    """
    total = 0
    for layer in range(first, end):
        total += costs.column("gradient_bytes", layer)
        if is_divided(costs, replicas, layer):
            total += numbers_of(costs, layer) * 4 // 2
    for tie in costs.problem.profile.tied:
        inside = [layer for layer in tie.layers if first <= layer < end]
        shared = tie.gradient_bytes
        if tie.num_numbers and all(is_divided(costs, replicas, x) for x in tie.layers):
            shared += tie.num_numbers * 4 // 2
        total -= max(len(inside) - 1, 0) * shared
    return total
