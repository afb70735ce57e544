"""An answer of the search in the few words of a status.

In: a `Solution`. Out: the parts of a `Status` that people look at first. Called by
`decide`; the whole answer lies in the store.
"""

from __future__ import annotations

from plimsoll_operator.api.status import CertificateStatus, PlanStatus
from plimsoll_planner.explain import reason_text, space_text
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.problem import Limits
from plimsoll_planner.records.solution import Solution

MOST_ALTERNATIVES = 5


def plan_status(plan: HybridPlan, limits: Limits) -> PlanStatus:
    """Return a plan in short."""
    pipeline, data, tensor = plan.mesh() or (len(plan.stages), 1, 1)
    offer = plan.offers[0]
    return PlanStatus(
        digest=digest_of(plan),
        product=offer.device_product,
        gpus=plan.num_gpus,
        nodes=plan.num_nodes,
        pipeline=pipeline,
        data=data,
        tensor=tensor,
        micro_batch=plan.micro_batch,
        schedule=plan.schedule,
        predicted_peak_bytes=plan.peak_bytes or 0,
        capacity_bytes=limits.usable_bytes(offer.device_memory_bytes),
        hourly_cost=plan.price_per_hour,
        currency=plan.currency or "",
    )


def alternatives_of(answer: Solution) -> tuple[PlanStatus, ...]:
    """Return what else could be had, the first few."""
    limits = answer.certificate.space.limits
    return tuple(
        plan_status(plan, limits) for plan in answer.alternatives[:MOST_ALTERNATIVES]
    )


def certificate_status(answer: Solution) -> CertificateStatus:
    """Return why the count just below the plan's will not do."""
    certificate = answer.certificate
    smaller = answer.plan.num_gpus - 1
    below = next((c for c in certificate.counts if c.num_gpus == smaller), None)
    return CertificateStatus(
        smaller_gpus=smaller if below is not None else 0,
        verdict=None if below is None else below.verdict,
        reason=""
        if below is None
        else reason_text(below, certificate.space.offers)[:1024],
        fewest_at_any_speed=certificate.fewest_at_any_speed,
        space=space_text(certificate.space)[:1024],
    )
