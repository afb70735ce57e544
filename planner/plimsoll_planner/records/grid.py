"""What other numbers of devices and other micro-batches would do, cell by cell.

In an answer it stands beside the plan, if asked for. Each cell is an answer of its own,
to the same question with one offer, one number of devices and one micro-batch.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_planner.records.bounds import (
    Bytes,
    Count,
    GPUCount,
    Index,
    Price,
    Seconds,
)
from plimsoll_planner.records.certificate import Binding
from plimsoll_planner.records.frontier import FrontierPoint
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.record import Record

GRID_LIMIT_S = 10.0
"""Wall seconds that a grid may take unless asked otherwise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GridCell(Record):
    """The answer for one offer, number of devices and micro-batch."""

    offer: Index
    """Which entry of the `offers` of the certificate's space."""
    num_gpus: GPUCount
    micro_batch: Count
    """b, samples."""
    verdict: Verdict | None
    """Null: there was no time to search it."""
    binding: Binding | None = None
    """On what it fails; null if it does not fail."""
    least_bytes: Bytes = 0
    """Where it does not fit for lack of memory: the fullest device of every plan needs
    that or more; 0 if that is not known."""
    plan: FrontierPoint | None = None
    """The plan that the goal asks for; null if none fits."""
    price_per_hour: Price | None = None
    """Of all nodes of the plan, in the currency of the offer."""

    def check_rules(self) -> None:
        """A plan is there exactly where one fits, and is that of the cell."""
        if (self.verdict is Verdict.FITS) != (self.plan is not None):
            raise self.refuse("plan", "given exactly where the cell fits")
        if (self.verdict is Verdict.FAILS) != (self.binding is not None):
            raise self.refuse("binding", "given exactly where the cell fails")
        if self.plan is None:
            if self.price_per_hour is not None:
                raise self.refuse("price_per_hour", "null, where there is no plan")
            return
        if self.plan.mesh.num_gpus != self.num_gpus:
            rule = f"a mesh of {self.num_gpus} devices"
            raise self.refuse("plan", rule, str(self.plan.mesh))
        if self.plan.micro_batch != self.micro_batch:
            rule = f"a micro-batch of {self.micro_batch}"
            raise self.refuse("plan", rule, self.plan.micro_batch)


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid(Record):
    """Numbers of devices times micro-batches, for each kind of device."""

    cells: tuple[GridCell, ...]
    """By offer, number of devices and micro-batch."""
    num_offers_left_out: Index = 0
    """Offers of other machines that no cell is about."""
    limit_s: Seconds
    """Wall seconds that it was allowed to take."""
    search_s: Seconds
    """Wall seconds that it took."""

    def check_rules(self) -> None:
        """Cells are there, in order, and once."""
        if not self.cells:
            raise self.refuse("cells", "at least one cell")
        keys = [(one.offer, one.num_gpus, one.micro_batch) for one in self.cells]
        self.require_distinct("cells", keys)
        if keys != sorted(keys):
            rule = "cells by offer, number of devices and micro-batch"
            raise self.refuse("cells", rule, keys[0])

    @property
    def num_unsearched(self) -> int:
        """Cells that there was no time for."""
        return sum(one.verdict is None for one in self.cells)
