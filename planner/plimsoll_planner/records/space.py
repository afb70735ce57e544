"""Space that a certificate holds within.

In: nothing. Out: the record. Made by the search, read by texts and tables.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from plimsoll_planner.records.bounds import Count, Name
from plimsoll_planner.records.engine import Schedule
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.record import Record


@dataclass(frozen=True, kw_only=True, slots=True)
class Space(Record):
    """Within what the certificate holds."""

    limits: Limits
    offers: tuple[Offer, ...]
    without: tuple[Name, ...]
    """Techniques that were left out, such as tensor parallelism."""
    override: Override = dataclasses.field(default_factory=Override)
    """Parts that a person fixed; the certificate holds within that."""
    needed_override: Override = dataclasses.field(default_factory=Override)
    """The part of `override` without which the question has no answer: the micro-batch,
    where layers such as BatchNorm compute over it. It makes no plan by hand."""
    least_micro_batch: Count = 1
    """The smallest that was profiled; nothing is known of smaller ones."""
    micro_batches: tuple[Count, ...] = ()
    """All that were searched, where each has a graph of its own; empty: all there are
    from the smallest on."""

    @property
    def is_fixed_by_hand(self) -> bool:
        """Whether a person fixed more of the plan than the question needs."""
        return self.override != self.needed_override

    @property
    def places_operators(self) -> bool:
        """Whether operators are placed, in the place of layers."""
        return Schedule.PLACED in self.limits.schedules
