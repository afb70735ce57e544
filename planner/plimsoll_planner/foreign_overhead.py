"""What others saw on their devices: it may widen a bound of ours, and never narrow it.

In: what is known of devices here, and what was learned of them elsewhere, where
namespaces share it. Out: overheads to plan with. Called by the store. Who reports for
another namespace is trusted to warn, and not to promise. So what counts is the own
overhead, or what is assumed, and residuals grow

    where foreign ranks were   until each line has what theirs has within, at both ends
    where foreign ranks ran    until the shortage is no surprise, as for an own one
    out of memory              (`observed_overhead`)

What is assumed elsewhere, because too few ranks were seen there, says nothing here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from plimsoll_planner.observed_overhead import Shortage, assumed, widened
from plimsoll_planner.records.device_overhead import (
    DeviceOverhead,
    OverheadLine,
    SeenAt,
)


def with_foreign(
    own: Iterable[DeviceOverhead],
    foreign: Iterable[DeviceOverhead],
    shortages: Sequence[Shortage],
) -> tuple[DeviceOverhead, ...]:
    """Return own overheads, and those that only others know of, none narrower for it.

    Args:
        own: one for each key.
        foreign: those of others, any number for each key.
        shortages: of others; one whose version of NCCL is open counts for all.
    """
    found = {overhead.key: overhead for overhead in own}
    for theirs in foreign:
        key = theirs.key
        found[key] = covering(found.get(key) or assumed(key), theirs)
    for shortage in shortages:
        for key, before in found.items():
            if shortage.key in (key, replace(key, nccl_version="")):
                found[key] = widened(before, shortage)
    return tuple(found.values())


def covering(overhead: DeviceOverhead, foreign: DeviceOverhead) -> DeviceOverhead:
    """Return an overhead that allows for what others measured, where they did."""
    return replace(
        overhead,
        allocator=no_narrower_at(foreign.seen, overhead.allocator, foreign.allocator),
        outside=no_narrower_at(foreign.seen, overhead.outside, foreign.outside),
    )


def no_narrower_at(
    places: Sequence[SeenAt], line: OverheadLine, other: OverheadLine
) -> OverheadLine:
    """Return a line whose interval has that of another within, at some places."""
    residual_bytes = line.residual_bytes
    for place in places:
        at = place.micro_batch, place.num_communicators
        ours, theirs = line.at(*at), other.at(*at)
        missing = [theirs.upper_bytes - ours.upper_bytes]
        if ours.lower_bytes > theirs.lower_bytes:
            below = ours.lower_bytes - theirs.lower_bytes
            missing.append(math.ceil(below / (1 - line.relative_error)))
        residual_bytes = max(residual_bytes, line.residual_bytes + max(missing))
    return replace(line, residual_bytes=residual_bytes)
