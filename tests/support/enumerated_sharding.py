"""State of layers that replicas divide, for the enumerator, by the text of ZeRO-1.

In: numbers of a problem, a mesh, a run of layers. Out: bytes. A layer has one
parameter. A layer of n numbers is padded to n' = whole multiples of 16 D, of which each
replica owns a D-th; one of fewer than 16 D numbers stays whole.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

from plimsoll_planner.records.model_profile import TiedLayers
from tests.support.enumerated_costs import Costs, Mesh

WHOLE = ("parameter", "gradient", "buffer", "optimizer")


def numbers_of(costs: Costs, mesh: Mesh, layer: int) -> int:
    """Trained numbers of a layer."""
    return divided_column(costs, mesh, "num_numbers", layer)


def divided_column(costs: Costs, mesh: Mesh, name: str, layer: int) -> int:
    """Read one column of divided layers."""
    columns = costs.costs.divided
    assert columns is not None
    return int(getattr(columns, name)[costs.row(mesh, layer)])


def is_divided(costs: Costs, mesh: Mesh, layer: int) -> bool:
    """Whether a layer has enough numbers."""
    return numbers_of(costs, mesh, layer) >= 16 * mesh.replicas


def padded(costs: Costs, mesh: Mesh, layer: int) -> int:
    """Numbers n' of a layer."""
    multiple = 16 * mesh.replicas
    return -(-numbers_of(costs, mesh, layer) // multiple) * multiple


@dataclass(frozen=True)
class Parts:
    """State of a rank, or of one layer on it."""

    parameter: int = 0
    gradient: int = 0
    buffer: int = 0
    optimizer: int = 0
    own: int = 0
    """Numbers that it steps on."""

    def __add__(self, other: Parts) -> Parts:
        return Parts(*(map(sum, zip(astuple(self), astuple(other), strict=True))))

    def times(self, count: int) -> Parts:
        """So many of them."""
        return Parts(*(count * value for value in astuple(self)))

    @property
    def state(self) -> int:
        """All bytes."""
        return self.parameter + self.gradient + self.buffer + self.optimizer


def whole_parts(costs: Costs, mesh: Mesh, layer: int) -> Parts:
    """One layer as every replica has it."""
    of = {name: costs.column(mesh, f"{name}_bytes", layer) for name in WHOLE}
    is_known = costs.costs.divided is not None
    own = numbers_of(costs, mesh, layer) if is_known else of["gradient"] // 4
    return Parts(**of, own=own)


def layer_parts(costs: Costs, mesh: Mesh, layer: int) -> Parts:
    """One layer on the fullest of its replicas."""
    if not is_divided(costs, mesh, layer):
        return whole_parts(costs, mesh, layer)
    numbers = padded(costs, mesh, layer)
    own, rest = (
        numbers // mesh.replicas,
        divided_column(costs, mesh, "optimizer_rest_bytes", layer),
    )
    stepped = own
    if costs.which == "lower":  # up to 15 numbers of the parameter may be none
        stepped = -(-max(numbers_of(costs, mesh, layer) - 15, 0) // mesh.replicas)
    of_number = divided_column(costs, mesh, "optimizer_bytes_per_number", layer)
    return Parts(
        parameter=numbers * 4,
        gradient=numbers * 4,
        buffer=costs.column(mesh, "buffer_bytes", layer),
        optimizer=stepped * of_number + rest,
        own=own,
    )


def stage_parts(
    costs: Costs, mesh: Mesh, run: tuple[int, int], *, split: bool
) -> Parts:
    """State of a stage on its fullest rank, tied parts once."""
    first, end = run
    total = Parts()
    for layer in range(first, end):
        total += (
            layer_parts(costs, mesh, layer)
            if split
            else whole_parts(costs, mesh, layer)
        )
    for tie in costs.ties(mesh):
        inside = [layer for layer in tie.layers if first <= layer < end]
        if len(inside) > 1:
            shared = tied_parts(costs, mesh, tie, split=split)
            total += shared.times(1 - len(inside))
    return total


def tied_parts(costs: Costs, mesh: Mesh, tie: TiedLayers, *, split: bool) -> Parts:
    """State that a rank saves with a second layer of a tie.

    Buffers end elsewhere without it: a padding more or less, on the safe side.
    """
    is_whole = tie.num_numbers == 0 or not all(
        is_divided(costs, mesh, layer) for layer in tie.layers
    )
    if not split or is_whole:
        of = {name: getattr(tie, f"{name}_bytes") for name in WHOLE}
        return Parts(**of, own=tie.num_numbers or tie.gradient_bytes // 4)
    margin = {"lower": 1, "expected": 0, "upper": -1}[costs.which] * 16 * mesh.replicas
    numbers = max(tie.num_numbers + margin, 0)
    own = max(tie.num_numbers // mesh.replicas + margin, 0)
    return Parts(
        parameter=numbers * 4,
        gradient=numbers * (tie.gradient_bytes // tie.num_numbers),
        buffer=tie.buffer_bytes,
        optimizer=own * tie.optimizer_bytes_per_number,
        own=own,
    )


def divided_step(costs: Costs, mesh: Mesh, layer: int) -> int:
    """Bytes of norm and optimizer step on top."""
    whole = costs.column(mesh, "optimizer_transient_bytes", layer)
    if not is_divided(costs, mesh, layer):
        return whole
    if costs.which == "lower":
        return whole // mesh.replicas
    of_number = divided_column(costs, mesh, "transient_bytes_per_number", layer)
    scalars = 512 if costs.which == "upper" else 0
    own = padded(costs, mesh, layer) // mesh.replicas
    return min(whole, own * of_number + scalars)


def divided_exchange(costs: Costs, mesh: Mesh, first: int, end: int) -> int:
    """Bytes whose all-reduce takes as long as the exchange with gloo.

    An all-reduce of all gradients; then each part of the parameters goes to all, which
    is half of an all-reduce of them.
    """
    total = 0
    for layer in range(first, end):
        total += costs.column(mesh, "gradient_bytes", layer)
        if is_divided(costs, mesh, layer):
            total += numbers_of(costs, mesh, layer) * 4 // 2
    for tie in costs.ties(mesh):
        inside = [layer for layer in tie.layers if first <= layer < end]
        shared = tie.gradient_bytes
        if tie.num_numbers and all(is_divided(costs, mesh, x) for x in tie.layers):
            shared += tie.num_numbers * 4 // 2
        total -= max(len(inside) - 1, 0) * shared
    return total
