"""Overheads that come with Plimsoll, measured by its own benchmarks.

An emulated device counts tensors and nothing else, so what it holds beside the formula
are the scalars of a step: losses, norms, counters. Whoever asks adds these to the
overheads that were calibrated; those win (`allowance`), for their keys state
the version more closely.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from plimsoll_planner.overhead.allowance import (
    mesh_around,
    num_communicators,
    overhead_for,
)
from plimsoll_planner.records.device_overhead import (
    DeviceOverhead,
    OverheadKey,
    OverheadLine,
)
from plimsoll_planner.records.offer import EMULATED_PRODUCT, Offer
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.text.counts import counted
from plimsoll_planner.units import at_least

EMULATED = DeviceOverhead(
    key=OverheadKey(device_product=EMULATED_PRODUCT, torch_version="2.15"),
    allocator=OverheadLine(),
    outside=OverheadLine(residual_bytes=1024),
    num_observations=232,
    num_plans=72,
)
"""Ranks of `make bench-truth`, 2026-11-21, torch 2.15.0: at most 1,000 bytes."""

BUILT_IN = (EMULATED,)


def with_built_in(
    given: Iterable[DeviceOverhead], offers: Iterable[Offer]
) -> tuple[DeviceOverhead, ...]:
    """Overheads for offers: the given ones and those that are built in."""
    mine = tuple(given)
    keys = {overhead.key for overhead in mine}
    products = {offer.device_product for offer in offers}
    return mine + tuple(
        o for o in BUILT_IN if o.key.device_product in products and o.key not in keys
    )


def basis_text(
    offer: Offer, overheads: Iterable[DeviceOverhead], plan: HybridPlan
) -> str:
    """Bound of the bytes besides tensors, and its evidence."""
    peaks = (peak for stage in plan.stages for peak in stage.peaks)
    beside = (peak.device.upper_bytes - peak.allocated.upper_bytes for peak in peaks)
    most = at_least(max(beside, default=0))
    found = overhead_for(offer, tuple(overheads), plan.fingerprint)
    return (
        f"beside tensors: up to {most} for each device, {basis_of(found, offer, plan)}"
    )


def basis_of(found: DeviceOverhead | None, offer: Offer, plan: HybridPlan) -> str:
    """Evidence of the overhead that counts for a plan."""
    if found is None or found.num_observations == 0:
        text = f"assumed, for {offer.device_product} was never measured"
    else:
        plans = f" of {counted(found.num_plans, 'plan')}" if found.num_plans else ""
        text = (
            f"from {counted(found.num_observations, 'rank')}{plans} measured on "
            f"{offer.device_product} with torch {found.key.torch_version}"
        )
        mesh = mesh_around(plan, plan.stages[0])
        number = num_communicators(mesh, num_ties=0)[0]
        if not found.seen_above(plan.micro_batch, number):
            text += (
                f", none of them with a micro-batch of {plan.micro_batch} and "
                f"{counted(number, 'communicator')} or more"
            )
    return "; ".join([text, *(widening_texts(found) if found else ())])


def widening_lines(problem: Problem) -> Iterator[str]:
    """Yield what devices have less for tensors, for what happened on some."""
    fingerprint = problem.profile.fingerprint
    found = (overhead_for(o, problem.overheads, fingerprint) for o in problem.offers)
    for overhead in dict.fromkeys(found):
        if overhead is None:
            continue
        for text in widening_texts(overhead):
            product = overhead.key.device_product
            yield f"the bound beside tensors of {product} is {text}"


def widening_texts(overhead: DeviceOverhead) -> Iterator[str]:
    """Yield what an overhead is wider for, and how that is forgotten."""
    if overhead.num_shortages:
        product = shlex.quote(overhead.key.device_product)
        yield (
            f"wider for {counted(overhead.num_shortages, 'rank')} that ran out of "
            f"memory (`plimsoll calibrations --forget {product}`, where the reason is "
            "gone)"
        )
    if overhead.is_warned:
        yield "wider for what other namespaces saw"
