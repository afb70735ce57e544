"""Observations of other namespaces: they may widen a bound here, never narrow it.

In: own observations, and those of other namespaces that share theirs. Out: overheads
to plan with. Called by the store. Another namespace is trusted to warn, and not to
promise. So the overhead stays the one that would count without the others
(`overhead_for`), an own one or an assumption, and its residuals grow, for ranks of
others with the same product, image and version of torch

    where they were      until each line has what theirs has within, at both ends
    where they ran out   until the shortage is no surprise, as for an own one
    of memory            (`observed_overhead`)

Assumptions elsewhere, made because too few ranks were seen there, do not count here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from plimsoll_planner.overhead.allowance import key_of, overhead_for, runs_like
from plimsoll_planner.overhead.built_in import with_built_in
from plimsoll_planner.overhead.observed import Shortage, unobserved, widened
from plimsoll_planner.records.device_overhead import (
    DeviceOverhead,
    OverheadKey,
    OverheadLine,
    SeenAt,
)
from plimsoll_planner.records.model_profile import Fingerprint
from plimsoll_planner.records.offer import Offer


def with_other_namespaces(
    offers: Iterable[Offer],
    fingerprint: Fingerprint,
    own: Sequence[DeviceOverhead],
    others: Sequence[DeviceOverhead],
    shortages: Sequence[Shortage],
) -> tuple[DeviceOverhead, ...]:
    """Overheads of which none that counts is narrower for what others saw.

    Others may have any number of overheads for a key.
    """
    found = list(own)
    for offer in {one.device_product: one for one in offers}.values():
        mine = here(offer, fingerprint, found)
        wider = widened_by(
            mine,
            [one for one in others if counts(one.key, offer, fingerprint)],
            [one for one in shortages if counts(one.key, offer, fingerprint)],
        )
        if wider == mine:
            continue
        if mine in found:  # and in its place, for of equally near ones the first counts
            found[found.index(mine)] = wider
        else:
            found.append(wider)
    return tuple(found)


def here(
    offer: Offer, fingerprint: Fingerprint, own: Sequence[DeviceOverhead]
) -> DeviceOverhead:
    """Overhead that counts without the others."""
    known = with_built_in(own, (offer,))
    return overhead_for(offer, known, fingerprint) or unobserved(
        key_of(offer, fingerprint)
    )


def counts(key: OverheadKey, offer: Offer, fingerprint: Fingerprint) -> bool:
    """Whether observations of a key count for an offer and a fingerprint."""
    return key.image == fingerprint.image and runs_like(key, offer, fingerprint)


def widened_by(
    overhead: DeviceOverhead,
    others: Iterable[DeviceOverhead],
    shortages: Iterable[Shortage],
) -> DeviceOverhead:
    """Overhead that allows for observations of others, marked as warned."""
    wider = overhead
    for theirs in others:
        wider = replace(
            wider,
            allocator=no_narrower_at(theirs.seen, wider.allocator, theirs.allocator),
            outside=no_narrower_at(theirs.seen, wider.outside, theirs.outside),
        )
    for shortage in shortages:
        # Own ones alone are counted: a person can have those forgotten.
        wider = replace(widened(wider, shortage), num_shortages=overhead.num_shortages)
    return replace(wider, is_warned=True) if wider != overhead else overhead


def no_narrower_at(
    places: Sequence[SeenAt], line: OverheadLine, other: OverheadLine
) -> OverheadLine:
    """Line whose interval has that of another within, at some places."""
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
