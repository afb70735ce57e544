"""Says in words what an answer is and why no smaller one does.

In: a `Solution` or `Infeasible`. Out: lines of text. Called by `plimsoll plan` and
`plimsoll explain`, here and on a cluster alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal

from plimsoll_planner.records.certificate import (
    Binding,
    Certificate,
    CountVerdict,
    NearestMiss,
    Rule,
    Space,
)
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.offer import CapacityType, Offer
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.problem import Goal, Problem
from plimsoll_planner.records.solution import Infeasible, Solution, Termination
from plimsoll_planner.units import S_PER_HOUR, at_least, at_most


def counted(number: int, noun: str) -> str:
    """Return a number of things in words."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def device_noun(offers: Iterable[Offer]) -> str:
    """Return what devices are called everywhere: emulated ones are no GPUs."""
    is_emulated = any(one.device_kind is DeviceKind.EMULATED for one in offers)
    return "device" if is_emulated else "GPU"


def gpus_text(num_gpus: int, offers: Iterable[Offer]) -> str:
    """Return a number of GPUs in words, or of devices that are emulated."""
    return counted(num_gpus, device_noun(offers))


def fail_text(num_gpus: int) -> str:
    """Return that a count fails: `1 fails`, `2 fail`."""
    return f"{num_gpus} {'fails' if num_gpus == 1 else 'fail'}"


def offer_text(offer: Offer) -> str:
    """Return the name of an offer, with its terms where they are special."""
    if offer.capacity_type is CapacityType.ON_DEMAND:
        return offer.name
    return f"{offer.name} ({offer.capacity_type})"


def miss_text(miss: NearestMiss, offers: Sequence[Offer]) -> str:
    """Return by what a count fails, and on which offer."""
    where = "" if miss.offer is None else f"on {offer_text(offers[miss.offer])}, "
    if miss.binding is Binding.MEMORY:
        needed, has = miss.needed_bytes or 0, miss.capacity_bytes or 0
        return (
            f"{where}rank {miss.rank}, {miss.phase}: needs {at_least(needed)}, "
            f"has {at_most(has)}"
        )
    if miss.binding is Binding.RATE:
        return (
            f"{where}at most {miss.samples_per_s or 0:.4g} samples/s, "
            f"needs {miss.needed_samples_per_s:.4g} (by lower bounds of seconds)"
        )
    return str(miss.binding)


REASONS = {
    Binding.BATCH: "the global batch does not divide",
    Binding.ENGINE: "the engine cannot run it",
    Binding.GPU_LIMIT: "not that many machines, or outside the limits",
}


RULES = {
    Rule.BATCH_DOES_NOT_DIVIDE: "replicas x micro-batch does not divide the batch",
    Rule.OUTSIDE_LIMITS: "limits or what was fixed leave it no mesh or micro-batch",
    Rule.ENGINE_CANNOT_RUN: "fewer micro-batches than stages; the engine needs as many",
    Rule.POD_SHAPE: "more nodes are needed than there are",
    Rule.STATES_EXCEED: "parameters, gradients and optimizer exceed the memory alone",
    Rule.LAYER_EXCEEDS: "one layer exceeds the memory alone",
    Rule.MEMORY_CORNER: "the plan of the least memory, at any speed, exceeds it still",
    Rule.RATE_BOUND: "no plan that fits can reach the rate floor",
    Rule.DOMINATED: "another tuple is at least as good",
    Rule.SEARCHED: "all cuts and sets of recomputed layers were searched",
    Rule.REPLAYED: "the replay of its plan decided it",
    Rule.NOT_SEARCHED: "the work limit cut it off",
}
TUPLE = "a tuple is an offer, stages, replicas and a micro-batch, decided by one rule:"


def rule_lines(rules: Iterable[Rule]) -> list[str]:
    """Return what the rules that occur mean."""
    found = set(rules)
    return [TUPLE, *(f"  {rule}: {RULES[rule]}" for rule in Rule if rule in found)]


def count_text(count: CountVerdict, offers: Sequence[Offer]) -> str:
    """Return one line on one count."""
    width = len(heading(offers))
    verdict = f"{count.num_gpus:>{width}}  {count.verdict.value:<9}"
    rules = Counter(count.decisions.rule).most_common()
    decided = ", ".join(f"{number} {rule}" for rule, number in rules)
    reason = reason_text(count, offers)
    return f"{verdict}  {reason} ({decided})" if reason else f"{verdict}  ({decided})"


def heading(offers: Sequence[Offer]) -> str:
    """Return what stands above the numbers of devices."""
    return f"{device_noun(offers)}s".rjust(5)


def reason_text(count: CountVerdict, offers: Sequence[Offer]) -> str:
    """Return why a count fails or is open; empty where it fits."""
    if count.nearest_miss is not None:
        return miss_text(count.nearest_miss, offers)
    if count.binding is not None and count.binding in REASONS:
        return REASONS[count.binding]
    if count.verdict is Verdict.UNDECIDED:
        open_now = f"{count.num_undecided} of {len(count.decisions.rule)} tuples"
        return f"{open_now} are open: narrow the intervals by a measured profile"
    return ""


def certificate_lines(certificate: Certificate) -> list[str]:
    """Return why the answer is the fewest, and what else was found on the way."""
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
    return lines


def fewest_text(certificate: Certificate, fewest: int) -> str:
    """Return the headline: the fewest, and why one fewer does not do."""
    offers = certificate.space.offers
    head = f"fewest: {gpus_text(fewest, offers)}"
    floor = certificate.counts[fewest - 1].floor_samples_per_s
    head += f" at {floor:.4g} samples/s or more" if floor else ""
    smaller = [c for c in certificate.counts[: fewest - 1] if is_searched(c)]
    if not smaller:
        fewer = f"fewer {device_noun(offers)}s"
        outside = f"; {fewer} are outside what was fixed or allowed"
        return head + (outside if fewest > 1 else "")
    open_counts = [str(c.num_gpus) for c in smaller if c.verdict is not Verdict.FAILS]
    if open_counts:
        return f"{head} found; undecided: {', '.join(open_counts)}"
    last = smaller[-1]
    why = REASONS.get(last.binding) if last.binding else None
    if last.nearest_miss is not None:
        why = miss_text(last.nearest_miss, offers)
    return f"{head}; {fail_text(last.num_gpus)}: {why}"


def is_searched(count: CountVerdict) -> bool:
    """Tell whether limits and override left the count any degrees."""
    return any(rule is not Rule.OUTSIDE_LIMITS for rule in count.decisions.rule)


def space_text(space: Space) -> str:
    """Return within what the certificate holds."""
    limits = space.limits
    parts = [
        f"1 to {gpus_text(limits.max_gpus, space.offers)}",
        counted(len(space.offers), "offer"),
        "schedules " + ", ".join(limits.schedules),
    ]
    for name, degrees in (
        ("stages", limits.pipeline_degrees),
        ("replicas", limits.data_degrees),
    ):
        if degrees:
            parts.append(f"{name} {', '.join(map(str, degrees))}")
    if space.least_micro_batch > 1:
        parts.append(f"micro-batch from {space.least_micro_batch}, the least profiled")
    if limits.max_micro_batch:
        parts.append(f"micro-batch up to {limits.max_micro_batch}")
    if limits.headroom:
        parts.append(f"{limits.headroom:.0%} of the memory kept free")
    if space.override.is_given:
        parts.append(f"fixed by hand: {override_text(space)}")
    return "; ".join(parts) + "; without " + ", ".join(space.without)


def override_text(space: Space) -> str:
    """Return what a person fixed."""
    override = space.override
    found = {
        f"{device_noun(space.offers)}s": override.num_gpus,
        "stages": override.num_stages,
        "replicas": override.data_degree,
        "micro-batch": override.micro_batch,
        "cuts": ",".join(map(str, override.cuts)) or None,
    }
    parts = [f"{name} {value}" for name, value in found.items() if value is not None]
    if override.recomputed_layers is not None:
        parts.append(counted(len(override.recomputed_layers), "recomputed layer"))
    return ", ".join(parts)


def why_text(problem: Problem, answer: Solution) -> str:
    """Return by what the plan was chosen among all that were searched."""
    if answer.termination is Termination.FIXED:
        return "why: what was fixed by hand, at the least memory"
    objective = problem.objective
    noun = device_noun(problem.offers)
    floor = f"{objective.rate_floor:.0%} of the best samples/s per {noun}"
    floor += " (objective.rate_floor)"
    if objective.min_samples_per_s or objective.deadline_s:
        floor = "the samples/s that were asked for"
    slower = f"{objective.throughput_tolerance:.0%} slower than the fastest"
    return (
        "why: "
        + {
            Goal.MINIMIZE_GPUS: f"the fewest {noun}s at {floor}; there, the least "
            f"memory at most {slower} (objective.throughput_tolerance)",
            Goal.MINIMIZE_MEMORY: f"the least memory of any device at {floor}",
            Goal.MINIMIZE_COST: "the least cost of the whole training",
            Goal.MAXIMIZE_THROUGHPUT: f"the most samples/s, then fewer {noun}s",
        }[objective.goal]
    )


def cost_of(plan: HybridPlan, num_steps: int | None) -> Decimal | None:
    """Return the expected price of all steps, None where something is not known."""
    if plan.price_per_hour is None or plan.step_time is None or num_steps is None:
        return None
    hours = Decimal(num_steps * plan.step_time.expected_s / S_PER_HOUR)
    return plan.price_per_hour * hours


def training_text(plan: HybridPlan, num_steps: int) -> str:
    """Return how long the whole training takes and what it costs."""
    expected_s = 0.0 if plan.step_time is None else plan.step_time.expected_s
    text = f"{counted(num_steps, 'step')}: {duration_text(num_steps * expected_s)}"
    cost = cost_of(plan, num_steps)
    return text if cost is None else f"{text}, {cost:.2f} {plan.currency}"


def duration_text(seconds: float) -> str:
    """Return seconds in the unit that people would use."""
    for unit, size in (("d", 24 * S_PER_HOUR), ("h", S_PER_HOUR), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.3g} s"


def nodes_text(plan: HybridPlan) -> str:
    """Return the nodes that are paid for, and what stands idle on them."""
    on_node = plan.offers[0].devices_per_node
    idle = plan.num_nodes * on_node - plan.num_gpus
    text = counted(plan.num_nodes, "node")
    return f"{text} of {gpus_text(on_node, plan.offers)}, {idle} idle" if idle else text


ENDINGS = {
    Termination.OPTIMAL: "proven, the search was exhaustive",
    Termination.WORK_LIMIT: "the best of what was searched before the work limit",
    Termination.TIME_LIMIT: "the best of what was searched in time",
    Termination.WITHIN_GAP: "everything was searched",
    Termination.FIXED: "fixed by hand, not certified",
}


def ending_text(answer: Solution) -> str:
    """Return how good the answer is known to be."""
    text = ENDINGS[answer.termination]
    is_optimal = answer.termination is Termination.OPTIMAL
    if is_optimal and answer.certificate.space.override.is_given:
        return "proven within what is fixed by hand"
    if answer.termination is Termination.WITHIN_GAP:
        text += f"; something up to {answer.gap:.1%} better is not excluded"
    return text


def explain(answer: Solution | Infeasible) -> list[str]:
    """Return the whole explanation, count by count."""
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
    counts = [count_text(count, offers) for count in certificate.counts]
    rules = (rule for count in certificate.counts for rule in count.decisions.rule)
    return [*lines, f"{heading(offers)}  verdict", *counts, *rule_lines(rules)]


def infeasible_lines(answer: Infeasible) -> list[str]:
    """Return why there is no plan, and what would change that."""
    lines = [f"no plan: {answer.binding} binds"]
    if answer.nearest_miss is not None:
        text = miss_text(answer.nearest_miss, answer.certificate.space.offers)
        lines.append(f"nearest miss: {text}")
    lines.append(f"would do: {answer.nearest_change}")
    return lines
