"""Values that layers hand to layers further behind, beside what passes on: columns.

A layer passes one tensor on to the next layer. A value that it gives besides is carried
from there, the giver, to each of its takers. It crosses every cut between the giver and
the last taker, so each stage in between receives it and sends it on. Inputs of a model
besides the first one are carried as well, from in front of the first layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from plimsoll_planner.records.bounds import LARGEST_INTEGER, Index, Name, Range
from plimsoll_planner.records.layer_costs import ByteColumns
from plimsoll_planner.records.record import Record

AN_INPUT = -1
"""Giver of the inputs of a model."""
Giver = Annotated[int, Range(minimum=AN_INPUT, maximum=LARGEST_INTEGER)]

NO_BYTES = ByteColumns(
    constant_bytes=(),
    slope_bytes_per_sample=(),
    residual_bytes=(),
    relative_error=(),
    source=(),
)
"""Of no rows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CarriedColumns(Record):
    """Carried values; entry i is one value, and row i of `value` its bytes."""

    name: tuple[Name, ...] = ()
    source: tuple[Giver, ...] = ()
    """Layer that gives it; -1 for an input of the model."""
    takers: tuple[tuple[Index, ...], ...] = ()
    """Layers that take it, in order."""
    needs_gradient: tuple[bool, ...] = ()
    """Whether a gradient of it comes back: it is of floating numbers, and something at
    its giver or in front of it is trained."""
    value: ByteColumns = NO_BYTES
    """Bytes of a micro-batch; a gradient has as many."""

    @property
    def target(self) -> tuple[int, ...]:
        """Last taker of each value."""
        return tuple(takers[-1] for takers in self.takers)

    def check_rules(self) -> None:
        """Values point forward, to at least one taker, and have distinct names."""
        self.require_equal_lengths("name", of="carried value")
        self.require_distinct("name", self.name)
        rows = zip(self.source, self.takers, self.needs_gradient, strict=True)
        for place, (source, takers, needs_gradient) in enumerate(rows):
            if not takers:
                raise self.refuse(f"takers[{place}]", "at least one layer", takers)
            if list(takers) != sorted(set(takers)):
                rule = "distinct layers in order"
                raise self.refuse(f"takers[{place}]", rule, takers)
            if takers[0] <= source:
                rule = f"layers after layer {source}"
                raise self.refuse(f"takers[{place}]", rule, takers[0])
            if needs_gradient and source == AN_INPUT:
                rule = "false of an input of the model"
                raise self.refuse(f"needs_gradient[{place}]", rule, needs_gradient)


NOTHING_CARRIED = CarriedColumns()
"""Of a plain chain."""
