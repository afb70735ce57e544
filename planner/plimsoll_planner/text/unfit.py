"""A plan that a person fixed and that no search would choose: what is proven of it.

In: a `Solution` of `Termination.FIXED`. Out: a few words. Called by `explain`, and by
the head of a report.
"""

from __future__ import annotations

from plimsoll_planner.records.certificate import Binding
from plimsoll_planner.records.solution import Solution

TOO_SLOW, UNFIT = "too slow for what was asked", "does not fit"
OPEN_RATE, OPEN_MEMORY = "not proven to be fast enough", "not proven to fit"


def unfit_text(answer: Solution) -> str:
    """Failure of a fixed plan, or what is not proven of it."""
    plan, certificate = answer.plan, answer.certificate
    count = certificate.counts[plan.num_gpus - 1]
    if answer.is_proven_unfit:
        return TOO_SLOW if count.binding is Binding.RATE else UNFIT
    memory_bytes = plan.offers[0].device_memory_bytes
    has_bytes = certificate.space.limits.usable_bytes(memory_bytes)
    is_slow = (plan.samples_per_s or 0.0) < count.floor_samples_per_s
    is_within = (plan.peak_bytes or 0) <= has_bytes
    return OPEN_RATE if is_slow and is_within else OPEN_MEMORY
