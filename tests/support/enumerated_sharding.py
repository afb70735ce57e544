"""State of layers that replicas divide, for the enumerator, by the text of ZeRO.

In: numbers of a problem, a mesh, a run of layers, a level. Out: bytes. A layer has one
parameter. A layer of n numbers is padded to n' = whole multiples of 16 D, of which each
replica owns a D-th; one of fewer than 16 D numbers stays whole. Levels above the
optimizer divide gradients, or parameters as well, of layers that share none: these are
whole while the layer is at work.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from operator import add

from plimsoll_planner.records.model_profile import TiedLayers
from tests.support.enumerated_costs import Costs, Mesh

WHOLE = ("parameter", "gradient", "buffer", "optimizer")
NONE, OPTIMIZER, GRADIENTS, PARAMETERS = "none", "optimizer", "gradients", "parameters"


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


def is_sharded(costs: Costs, mesh: Mesh, layer: int, level: str) -> bool:
    """Whether replicas divide the gradients of a layer as well."""
    shares = any(
        layer in tie.layers and (tie.parameter_bytes or tie.gradient_bytes)
        for tie in costs.ties(mesh)
    )
    above = level in (GRADIENTS, PARAMETERS)
    return above and is_divided(costs, mesh, layer) and not shares


def at_work(costs: Costs, mesh: Mesh, layer: int, level: str) -> tuple[int, int]:
    """Bytes that a layer has on top in its forward and its backward pass.

    They do not depend on D: the lower bound counts what all numbers of replicas divide,
    the upper one what pads a buffer for the most of them.
    """
    most = costs.problem.limits.max_gpus
    few = replace(mesh, replicas=most if costs.which == "lower" else 2)
    if not is_sharded(costs, few, layer, level):
        return 0, 0
    more = 16 * most * 4 if costs.which == "upper" else 0
    one = numbers_of(costs, mesh, layer) * 4 + more
    gradient = costs.column(mesh, "gradient_bytes", layer) + more
    return (one, one + gradient) if level == PARAMETERS else (0, gradient)


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
        return Parts(*(map(add, self.each, other.each)))

    def times(self, count: int) -> Parts:
        """So many of them."""
        return Parts(*(count * value for value in self.each))

    @property
    def each(self) -> tuple[int, ...]:
        """Its parts; `astuple` would copy each number."""
        return self.parameter, self.gradient, self.buffer, self.optimizer, self.own

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


def layer_parts(costs: Costs, mesh: Mesh, layer: int, level: str) -> Parts:
    """One layer on the fullest of its replicas."""
    if level == NONE or not is_divided(costs, mesh, layer):
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
    is_above = is_sharded(costs, mesh, layer, level)
    return Parts(
        parameter=(own if is_above and level == PARAMETERS else numbers) * 4,
        gradient=(own if is_above else numbers) * 4,
        buffer=costs.column(mesh, "buffer_bytes", layer),
        optimizer=stepped * of_number + rest,
        own=own,
    )


@lru_cache(maxsize=2**10)
def stage_parts(costs: Costs, mesh: Mesh, run: tuple[int, int], *, level: str) -> Parts:
    """State of a stage on its fullest rank, tied parts once."""
    first, end = run
    total = Parts()
    for layer in range(first, end):
        total += layer_parts(costs, mesh, layer, level)
    for tie in costs.ties(mesh):
        inside = [layer for layer in tie.layers if first <= layer < end]
        if len(inside) > 1:
            shared = tied_parts(costs, mesh, tie, level)
            total += shared.times(1 - len(inside))
    return total


def tied_parts(costs: Costs, mesh: Mesh, tie: TiedLayers, level: str) -> Parts:
    """State that a rank saves with a second layer of a tie.

    Buffers end elsewhere without it: a padding more or less, on the safe side.
    """
    is_whole = tie.num_numbers == 0 or not all(
        is_divided(costs, mesh, layer) for layer in tie.layers
    )
    if level == NONE or is_whole:
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


def exchanged(
    costs: Costs, mesh: Mesh, run: tuple[int, int], level: str
) -> tuple[int, int]:
    """Bytes whose all-reduce takes as long as the exchange at the end, with gloo.

    And the number of layers that exchange any. An all-reduce of all gradients, if these
    are not reduced in each pass; then each part of the parameters goes to all, which is
    half of an all-reduce of them, unless these are gathered in each pass.
    """
    found = []
    for layer in range(*run):
        num_bytes = costs.column(mesh, "gradient_bytes", layer)
        spread = numbers_of(costs, mesh, layer) * 4 // 2 if level != NONE else 0
        if is_sharded(costs, mesh, layer, level):
            num_bytes = 0 if level == PARAMETERS else spread
        elif level != NONE and is_divided(costs, mesh, layer):
            num_bytes += spread
        found.append(num_bytes)
    total = sum(found)
    for tie in costs.ties(mesh):
        inside = [layer for layer in tie.layers if layer in range(*run)]
        shared = tie.gradient_bytes
        is_split = level != NONE and tie.num_numbers > 0
        if is_split and all(is_divided(costs, mesh, x) for x in tie.layers):
            shared += tie.num_numbers * 4 // 2
        total -= max(len(inside) - 1, 0) * shared
    return total, sum(num_bytes > 0 for num_bytes in found)


def exchanged_in_passes(
    costs: Costs, mesh: Mesh, run: tuple[int, int], level: str
) -> tuple[tuple[int, int], tuple[int, int]]:
    """The same of each forward pass, and of each backward pass."""
    layers = [x for x in range(*run) if is_sharded(costs, mesh, x, level)]
    reduced = sum(costs.column(mesh, "gradient_bytes", x) for x in layers)
    if level != PARAMETERS:
        return (0, 0), (reduced, len(layers))
    gathered = sum(numbers_of(costs, mesh, x) * 4 // 2 for x in layers)
    return (gathered, len(layers)), (gathered + reduced, len(layers))
