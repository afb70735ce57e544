"""An answer in words, and why no smaller one does.

In: a `Solution` or `Infeasible`. Out: lines of text. Called by `plimsoll plan` and
`plimsoll explain`, here and on a cluster alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from plimsoll_planner.records.certificate import (
    Binding,
    Certificate,
    CountVerdict,
    NearestMiss,
    Rule,
)
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.layer_costs import UNCOUNTED
from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_planner.records.objective import Goal
from plimsoll_planner.records.offer import CapacityType, Offer
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import (
    LEAST_GAP,
    Infeasible,
    Solution,
    Termination,
)
from plimsoll_planner.records.space import Space
from plimsoll_planner.text.counts import device_noun, gpus_text, numbers_text
from plimsoll_planner.text.rules import RULE_NAMES, advice_text, rule_lines
from plimsoll_planner.text.space import space_text
from plimsoll_planner.text.unfit import unfit_text
from plimsoll_planner.units import at_least, at_most, number_text


def uncounted_text(profile: ModelProfile, *, is_measured: bool = False) -> str:
    """Operators that nobody could count, in words; empty if all are counted.

    If the seconds of the device are measured, that concerns other devices alone.
    """
    names = sorted({one.operator for one in profile.uncounted})
    if not names:
        return ""
    kinds = sorted({profile.kinds[one.kind] for one in profile.uncounted})
    advice = (
        "measure them with --source measured on the device, or write the layer with "
        "products that torch counts"
    )
    if is_measured:
        advice = "that concerns other devices alone, as on this one they are measured"
    return (
        f"no FLOP formula for {', '.join(names)} in {', '.join(kinds)}: seconds "
        "estimated from counted work rest on an assumption, from nothing to "
        f"{UNCOUNTED['upper']:g} times a product of matrices of that size; {advice}"
    )


def fail_text(num_gpus: int) -> str:
    """Failure of a count: `1 fails`, `2 fail`."""
    return f"{num_gpus} {'fails' if num_gpus == 1 else 'fail'}"


def offer_text(offer: Offer) -> str:
    """Name of an offer, with its terms where they are special."""
    if offer.capacity_type is CapacityType.ON_DEMAND:
        return offer.name
    return f"{offer.name} ({offer.capacity_type})"


def too_large_text(layer: str | None, operator: str | None = None) -> str:
    """End of a sentence on memory that lacks, where one part is too large."""
    if layer is not None:
        return f", which layer {layer!r} alone exceeds"
    if operator is None:
        return ""
    kind, _, name = operator.rpartition(" ")
    beside = "gradient and optimizer" if kind == "state" else "inputs and results"
    return f", which {name!r} alone exceeds, with its {beside}"


def place_of(miss: NearestMiss, num_gpus: int) -> str:
    """Place where memory is short; one device has no ranks to tell apart."""
    if num_gpus > 1:
        return miss.place
    return miss.place.removeprefix("some rank").removeprefix("'s ")


def need_text(miss: NearestMiss) -> str:
    """Memory that is needed and there is, and what alone exceeds it."""
    needed, has = miss.needed_bytes or 0, miss.capacity_bytes or 0
    too_large = too_large_text(miss.layer, miss.operator)
    return f"needs {at_least(needed)}, has {at_most(has)}{too_large}"


def miss_text(miss: NearestMiss, offers: Sequence[Offer], num_gpus: int) -> str:
    """By what a count fails, and on which offer."""
    where = "" if miss.offer is None else f"on {offer_text(offers[miss.offer])}, "
    if miss.binding in {Binding.MEMORY, Binding.HOST_MEMORY}:
        place = place_of(miss, num_gpus)
        where += f"{place}: " if place else ""
        return f"{where}{need_text(miss)}"
    if miss.binding is Binding.RATE:
        most = number_text(miss.samples_per_s or 0.0)
        rate = number_text(miss.needed_samples_per_s or 0.0)
        short = f"at most {most} samples/s, needs {rate}"
        return f"{where}{short} (for all seconds inside their intervals)"
    return str(miss.binding)


EQUAL_ERROR = (
    "too slow at equal relative error; not proven for all seconds inside their "
    "intervals"
)
OUTSIDE_FIXED = "outside what was fixed by hand"
REASONS = {
    Binding.BATCH: "the global batch does not divide",
    Binding.ENGINE: "fewer micro-batches than stages, and the engine needs as many",
    Binding.GPU_LIMIT: "not that many machines, or outside the limits",
    Binding.TENSOR_GROUP: "the tensor degree is above the devices of a node",
}


def decided_text(count: CountVerdict) -> str:
    """Combinations of a count that each rule decided."""
    rules = count.decisions.num_decided().most_common()
    return ", ".join(f"{number} {RULE_NAMES[rule]}" for rule, number in rules)


def count_text(count: CountVerdict, space: Space) -> str:
    """One line on one count."""
    width = len(heading(space.offers))
    verdict = f"{count.num_gpus:>{width}}  {count.verdict.value:<9}"
    decided = decided_text(count)
    reason = reason_text(count, space)
    return f"{verdict}  {reason} ({decided})" if reason else f"{verdict}  ({decided})"


def heading(offers: Sequence[Offer]) -> str:
    """Heading of the numbers of devices."""
    return f"{device_noun(offers)}s".rjust(5)


def reason_text(count: CountVerdict, space: Space) -> str:
    """Reason why a count fails or is open; empty if it fits."""
    if count.nearest_miss is not None:
        return miss_text(count.nearest_miss, space.offers, count.num_gpus)
    if is_excluded(count.num_gpus, space):
        return OUTSIDE_FIXED
    if count.binding is not None and count.binding in REASONS:
        return REASONS[count.binding]
    if count.is_slow_at_equal_error:
        return EQUAL_ERROR
    if count.verdict is Verdict.UNDECIDED:
        every = sum(count.decisions.num_members)
        open_now = f"{count.num_undecided} of {every} combinations"
        return f"{open_now} are open: {advice_text(count.decisions.rule)}"
    return ""


def is_excluded(num_gpus: int, space: Space) -> bool:
    """Whether no mesh of so many devices has the parts that a person fixed."""
    fixed, stages = space.override, space.override.stages
    if fixed.num_gpus is not None and num_gpus != fixed.num_gpus:
        return True
    degrees = (stages or 1) * (fixed.data_degree or 1)
    tensor_degrees = space.limits.tensor_degrees or (fixed.tensor_degree or 1,)
    products = [degrees * tensor for tensor in tensor_degrees]
    if stages and fixed.data_degree:
        return num_gpus not in products
    return all(num_gpus % product for product in products)


def certificate_lines(certificate: Certificate) -> list[str]:
    """Reason why the answer is the fewest, and other findings of the search."""
    lines: list[str] = []
    fewest = certificate.fewest_at_floor
    if fewest is not None:
        lines.append(fewest_text(certificate, fewest))
    slow, rate = certificate.fewest_at_any_speed, certificate.rate_at_any_speed
    if slow is not None and slow != fewest:
        offers = certificate.space.offers
        best = f"the best rate per {device_noun(offers)}"
        share = "" if rate is None else f", at {rate:.0%} of {best}"
        lines.append(f"fewest at any speed: {gpus_text(slow, offers)}{share}")
    if certificate.cut_off:
        lines.append(f"not searched: {certificate.cut_off}")
    if certificate.pruned:
        lines.append(f"not compared: {certificate.pruned}")
    return lines


def fewest_text(certificate: Certificate, fewest: int) -> str:
    """Headline: the fewest, and why one fewer does not do."""
    offers = certificate.space.offers
    if certificate.paid_gpus is not None:
        return paid_text(certificate, certificate.paid_gpus)
    head = f"fewest: {gpus_text(fewest, offers)}"
    floor = certificate.counts[fewest - 1].floor_samples_per_s
    head += f" at {number_text(floor)} samples/s or more" if floor else ""
    smaller = [c for c in certificate.counts[: fewest - 1] if is_searched(c)]
    if not smaller:
        fewer = f"fewer {device_noun(offers)}s"
        outside = f"; {fewer} are outside what was fixed or allowed"
        return head + (outside if fewest > 1 else "")
    open_counts = [c for c in smaller if c.verdict is not Verdict.FAILS]
    if open_counts:
        numbers = numbers_text(count.num_gpus for count in open_counts)
        slow = all(count.is_slow_at_equal_error for count in open_counts)
        note = f" ({EQUAL_ERROR})" if slow else ""
        return f"{head} found; undecided: {numbers}{note}"
    last = smaller[-1]
    why = REASONS.get(last.binding) if last.binding else None
    if last.nearest_miss is not None:
        why = miss_text(last.nearest_miss, offers, last.num_gpus)
    return f"{head}; {fail_text(last.num_gpus)}: {why}"


def paid_text(certificate: Certificate, paid: int) -> str:
    """Fewest devices of whole nodes, and that no plan pays for fewer."""
    used = next(
        count.num_gpus
        for count in certificate.counts
        if (paid, Verdict.FITS) in certificate.paid_by(count)
    )
    head = f"fewest paid for: {gpus_text(paid, certificate.space.offers)}, {used} used"
    least = certificate.fewest_paid_open
    if least is not None:
        return f"{head}; undecided: plans that pay for {least}"
    return f"{head}; every plan that pays for fewer fails"


def is_searched(count: CountVerdict) -> bool:
    """Whether limits and override left the count any degrees."""
    return any(rule is not Rule.OUTSIDE_LIMITS for rule in count.decisions.rule)


def why_text(problem: Problem, answer: Solution) -> str:
    """By what the plan was chosen among all that were searched."""
    if answer.termination is Termination.FIXED:
        return "why: what was fixed by hand, at the least memory"
    objective = problem.objective
    noun = device_noun(problem.offers)
    floor = f"{problem.relative_floor:.0%} of the best samples/s per {noun}"
    floor += " (`objective.rate_floor`)"
    if problem.places_operators:
        floor = "any speed"
    if objective.min_samples_per_s or objective.deadline_s:
        floor = "the samples/s that were asked for"
    paid = " of whole nodes" if problem.limits.whole_nodes else ""
    slower = f"{objective.throughput_tolerance:.0%} slower than the fastest"
    return (
        "why: "
        + {
            Goal.MINIMIZE_GPUS: f"the fewest {noun}s{paid} at {floor}; there, the "
            f"least memory at most {slower} (`objective.throughput_tolerance`)",
            Goal.MINIMIZE_MEMORY: f"the least memory of any device at {floor}",
            Goal.MINIMIZE_COST: "the least cost of the whole training",
            Goal.MAXIMIZE_THROUGHPUT: f"the most samples/s, then fewer {noun}s",
        }[objective.goal]
        + open_text(answer)
    )


def open_text(answer: Solution) -> str:
    """How much less memory, or more speed, a plan of the count may have; may be empty.

    The count is proven by the certificate; this is about the plan within it.
    """
    parts: list[str] = []
    if answer.memory_gap >= LEAST_GAP:
        parts.append(
            f"a plan as fast with up to {percent(answer.memory_gap)} less memory"
        )
    if answer.rate_gap >= LEAST_GAP:
        parts.append(f"a fastest plan that is up to {percent(answer.rate_gap)} faster")
    return f"; not excluded: {', '.join(parts)}" if parts else ""


def percent(part: float) -> str:
    """A part in percent, rounded up to one decimal: it stands for a bound."""
    return f"{math.ceil(part * 1000) / 10:g} %"


ENDINGS = {
    Termination.OPTIMAL: "proven, every combination was searched",
    Termination.WORK_LIMIT: "the best of what was searched before the work limit",
    Termination.TIME_LIMIT: "the best of what was searched in time",
    Termination.WITHIN_GAP: "everything was searched",
}


def ending_text(answer: Solution) -> str:
    """How good the answer is known to be."""
    if answer.termination is Termination.FIXED:
        return f"fixed by hand: {unfit_text(answer)}"
    text = ENDINGS[answer.termination]
    is_optimal = answer.termination is Termination.OPTIMAL
    undecided = undecided_text(answer.certificate)
    if is_optimal and undecided:
        return f"what is paid for is proven; undecided: {undecided} in use"
    if is_optimal and answer.certificate.space.is_fixed_by_hand:
        return "proven within what is fixed by hand"
    if is_optimal and not answer.certificate.is_exhaustive:
        return "proven, though not every plan was compared"
    if is_optimal and open_text(answer):
        return "the count is proven, the plan within it is not the least for sure"
    if answer.termination is Termination.WITHIN_GAP:
        paid = answer.certificate.fewest_paid_open
        parts = [f"undecided: {undecided}"] if undecided else []
        parts += [f"undecided: plans that pay for {paid}"] if paid else []
        if answer.gap >= LEAST_GAP and answer.gap != answer.certificate.count_gap:
            parts.append(f"a plan up to {percent(answer.gap)} better is not excluded")
        text = "; ".join([text, *parts])
    return text


def undecided_text(certificate: Certificate) -> str:
    """The counts below the fewest that are not proven to fail, `2 GPUs`; or nothing."""
    numbers = certificate.undecided_counts
    if not numbers:
        return ""
    noun = device_noun(certificate.space.offers)
    return f"{numbers_text(numbers)} {noun}{'s' * (numbers[-1] > 1)}"


def explain(answer: Solution | Infeasible) -> list[str]:
    """Whole explanation, count by count."""
    certificate = answer.certificate
    lines: list[str] = []
    if isinstance(answer, Infeasible):
        lines += infeasible_lines(answer)
    else:
        count = gpus_text(answer.plan.num_gpus, answer.plan.offers)
        lines.append(f"{count}: {ending_text(answer)}")
    lines += certificate_lines(certificate)
    lines.append(f"searched: {space_text(certificate.space)}")
    lines += [f"warning: {warning}" for warning in answer.warnings]
    offers = certificate.space.offers
    counts = [count_text(count, certificate.space) for count in certificate.counts]
    rules = (rule for count in certificate.counts for rule in count.decisions.rule)
    meanings = rule_lines(rules, has_tensor=certificate.has_tensor)
    return [*lines, f"{heading(offers)}  verdict", *counts, *meanings]


def infeasible_lines(answer: Infeasible) -> list[str]:
    """Reason why there is no plan, and the change that would help."""
    lines = [f"no plan: {REASONS.get(answer.binding, f'{answer.binding} binds')}"]
    counts, offers = answer.certificate.counts, answer.certificate.space.offers
    if answer.nearest_miss is not None:
        nearest = (c for c in counts if c.nearest_miss == answer.nearest_miss)
        count = next(nearest, counts[-1])
        text = miss_text(answer.nearest_miss, offers, count.num_gpus)
        lines.append(f"nearest miss: {text}")
    if undecided := undecided_text(answer.certificate):
        lines.append(f"undecided: {undecided}, which no proof rules out")
    lines.append(f"would do: {answer.nearest_change}")
    return lines
