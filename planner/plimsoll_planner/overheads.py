"""Overheads that come with Plimsoll, measured by its own benchmarks.

An emulated device counts tensors and nothing else, so what it holds beside the formula
are the scalars of a step: losses, norms, counters. Whoever asks adds these to the
overheads that were calibrated; those win (`memory.device_bytes`), for their keys state
the version more closely.
"""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll_planner.memory.device_bytes import overhead_for
from plimsoll_planner.records.device_overhead import (
    DeviceOverhead,
    OverheadKey,
    OverheadLine,
)
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.units import at_least

EMULATED = DeviceOverhead(
    key=OverheadKey(device_product="process", torch_version="2.15"),
    allocator=OverheadLine(),
    outside=OverheadLine(residual_bytes=1024),
    num_observations=232,
)
"""Ranks of `make bench-truth`, 2026-11-21, torch 2.15.0: at most 1,000 bytes."""

BUILT_IN = (EMULATED,)
MOST_COMMUNICATORS = 3
"""Of a rank: all ranks, its pipeline, its replicas."""


def with_built_in(
    given: Iterable[DeviceOverhead], offers: Iterable[Offer]
) -> tuple[DeviceOverhead, ...]:
    """Return overheads for offers: the given ones and those that are built in."""
    mine = tuple(given)
    keys = {overhead.key for overhead in mine}
    products = {offer.device_product for offer in offers}
    return mine + tuple(
        o for o in BUILT_IN if o.key.device_product in products and o.key not in keys
    )


def basis_text(
    offer: Offer, overheads: Iterable[DeviceOverhead], plan: HybridPlan
) -> str:
    """Return what the bound beside tensors is, and how many ranks stand behind it."""
    found = overhead_for(offer, tuple(overheads), plan.fingerprint)
    if found is None or found.num_observations == 0:
        return f"beside tensors: assumed; {offer.device_product} was never measured"
    at = plan.micro_batch, MOST_COMMUNICATORS
    lines = (found.allocator.at(*at), found.outside.at(*at))
    most = at_least(sum(line.upper_bytes for line in lines))
    ranks = "rank" if found.num_observations == 1 else "ranks"
    return (
        f"beside tensors: up to {most} for each device, from {found.num_observations} "
        f"measured {ranks} of {offer.device_product} on torch {found.key.torch_version}"
    )
