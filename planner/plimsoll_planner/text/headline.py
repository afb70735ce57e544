"""An answer in one line: plan, proof and price, for people who read no more.

In: a problem and its `Solution`. Out: text. Called for the status of a plan; `explain`
has the whole of it.

    fewest at half the best rate: 3 devices of 256 MiB (at any speed: 3); 2 fail at
    rank 0, backward, short by 41.0 MiB
"""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll_planner.records.certificate import Binding, CountVerdict
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.objective import Goal
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Solution, Termination
from plimsoll_planner.text.counts import gpus_text
from plimsoll_planner.text.explain import (
    REASONS,
    fail_text,
    is_searched,
    offer_text,
    paid_text,
    place_of,
)
from plimsoll_planner.text.plans import cost_of, nodes_text, training_text
from plimsoll_planner.units import at_least, at_most, number_text

HALF = 0.5
ANY_SPEED = "fewest at any speed"


def headline_text(problem: Problem, answer: Solution) -> str:
    """Plan, proof and price."""
    plan, certificate = answer.plan, answer.certificate
    head = f"{goal_text(problem, answer)}: {devices_text(plan)}"
    slow = certificate.fewest_at_any_speed
    if certificate.space.is_fixed_by_hand:
        fixed = answer.termination is Termination.FIXED
        head += "" if fixed else " (within what is fixed by hand)"
    elif slow is not None and goal_text(problem, answer) != ANY_SPEED:
        head += f" (at any speed: {slow})"
    smaller = [c for c in certificate.counts[: plan.num_gpus - 1] if is_searched(c)]
    is_proof = bool(smaller) and smaller[-1].verdict is not Verdict.FITS
    proof = [shortfall_text(smaller[-1])] if is_proof else []
    if certificate.paid_gpus is not None:
        proof = [paid_text(certificate, certificate.paid_gpus)]
    return "; ".join([head, *proof, *bill_parts(answer, problem.num_steps)])


def bill_parts(answer: Solution, num_steps: int | None) -> Iterator[str]:
    """Yield what is paid for and what the training costs, where there is a price.

    If more GPUs are cheaper than few, the price of few is added.
    """
    plan = answer.plan
    if plan.price_per_hour is None:
        return
    price = f"{plan.price_per_hour:.2f} {plan.currency}/h"
    yield f"{offer_text(plan.offers[0])}: {nodes_text(plan)}, {price}"
    if num_steps is None:
        return
    yield training_text(plan, num_steps)
    few = min(answer.alternatives, key=lambda one: one.num_gpus, default=plan)
    is_dearer = (cost_of(few, num_steps) or 0) > (cost_of(plan, num_steps) or 0)
    is_dearer = is_dearer and few.currency == plan.currency
    if few.num_gpus < plan.num_gpus and is_dearer:
        count = gpus_text(few.num_gpus, few.offers)
        yield f"on {count}: {training_text(few, num_steps)}"


def goal_text(problem: Problem, answer: Solution) -> str:
    """Goal in which the plan is the best."""
    if answer.termination is Termination.FIXED:
        return "fixed by hand"
    objective = problem.objective
    if objective.goal is not Goal.MINIMIZE_GPUS:
        return {
            Goal.MINIMIZE_MEMORY: "least memory",
            Goal.MINIMIZE_COST: "cheapest",
            Goal.MAXIMIZE_THROUGHPUT: "fastest",
        }[objective.goal]
    if objective.min_samples_per_s or objective.deadline_s:
        return "fewest at the rate asked for"
    floor = problem.relative_floor
    if floor == 0:
        return ANY_SPEED
    part = "half" if floor == HALF else f"{floor:.0%} of"
    return f"fewest at {part} the best rate"


def devices_text(plan: HybridPlan) -> str:
    """Number and size of the devices that a plan needs."""
    offer = plan.offers[0]
    devices = f"{plan.num_gpus} {offer.device_product}"
    if offer.device_kind is DeviceKind.EMULATED:
        devices = gpus_text(plan.num_gpus, plan.offers)
    return f"{devices} of {size_text(offer.device_memory_bytes)}"


def size_text(num_bytes: int) -> str:
    """Size of a device as people call it, `256 MiB` or `80 GiB`."""
    number, unit = at_most(num_bytes).split()
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}"


def shortfall_text(count: CountVerdict) -> str:
    """Failure of a count, as in `2 fail at rank 0, backward, short by 41 MiB`."""
    if count.is_slow_at_equal_error:
        return f"{count.num_gpus} too slow at equal relative error, not proven"
    if count.verdict is Verdict.UNDECIDED:
        return f"{count.num_gpus} undecided"
    fails = fail_text(count.num_gpus)
    miss = count.nearest_miss
    if miss is None:
        return f"{fails}: {REASONS.get(count.binding, '')}" if count.binding else fails
    if miss.binding in {Binding.MEMORY, Binding.HOST_MEMORY}:
        place = place_of(miss, count.num_gpus)
        where = f" at {place}" if place else ""
        return f"{fails}{where}, short by {at_least(miss.short_bytes)}"
    return (
        f"{fails}: {number_text(miss.samples_per_s or 0.0)} samples/s at most, "
        f"{number_text(miss.needed_samples_per_s or 0.0)} needed"
    )
