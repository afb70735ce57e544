"""Says in words what an answer is and why no smaller one does.

In: a `Solution` or `Infeasible`. Out: lines of text. Called by `plimsoll plan` and
`plimsoll explain`, here and on a cluster alike.
"""

from __future__ import annotations

from collections import Counter

from plimsoll_planner.records.certificate import (
    Binding,
    Certificate,
    CountVerdict,
    NearestMiss,
    Rule,
    Space,
)
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.problem import Override
from plimsoll_planner.records.solution import Infeasible, Solution, Termination
from plimsoll_planner.units import at_least, at_most


def gpus_text(num_gpus: int) -> str:
    """Return a number of GPUs in words."""
    return f"{num_gpus} GPU" if num_gpus == 1 else f"{num_gpus} GPUs"


def miss_text(miss: NearestMiss) -> str:
    """Return by what a count fails."""
    if miss.binding is Binding.MEMORY:
        needed, has = miss.needed_bytes or 0, miss.capacity_bytes or 0
        return (
            f"rank {miss.rank}, {miss.phase}: needs {at_least(needed)}, "
            f"has {at_most(has)}"
        )
    if miss.binding is Binding.RATE:
        return (
            f"at most {miss.samples_per_s or 0:.4g} samples/s, "
            f"needs {miss.needed_samples_per_s:.4g}"
        )
    return str(miss.binding)


REASONS = {
    Binding.BATCH: "the global batch does not divide",
    Binding.ENGINE: "the engine cannot run it",
    Binding.GPU_LIMIT: "not that many machines, or outside the limits",
}


def count_text(count: CountVerdict) -> str:
    """Return one line on one count."""
    verdict = f"{count.num_gpus:>5}  {count.verdict.value:<9}"
    rules = Counter(count.decisions.rule)
    counted = ", ".join(f"{number} {rule}" for rule, number in rules.most_common())
    if count.nearest_miss is not None:
        return f"{verdict}  {miss_text(count.nearest_miss)} ({counted})"
    if count.binding is not None and count.binding in REASONS:
        return f"{verdict}  {REASONS[count.binding]} ({counted})"
    if count.verdict is Verdict.UNDECIDED:
        open_now = f"{count.num_undecided} of {len(count.decisions.rule)} tuples"
        return (
            f"{verdict}  {open_now} are open: narrow the intervals by a measured "
            f"profile ({counted})"
        )
    return f"{verdict}  ({counted})"


def certificate_lines(certificate: Certificate) -> list[str]:
    """Return why the answer is the fewest, and what else was found on the way."""
    lines: list[str] = []
    fewest = certificate.fewest_at_floor
    if fewest is not None:
        lines.append(fewest_text(certificate, fewest))
    slow, rate = certificate.fewest_at_any_speed, certificate.rate_at_any_speed
    if slow is not None and slow != fewest:
        share = "" if rate is None else f", at {rate:.0%} of the best rate per GPU"
        lines.append(f"fewest at any speed: {gpus_text(slow)}{share}")
    if certificate.cut_off:
        lines.append(f"not searched: {certificate.cut_off}")
    return lines


def fewest_text(certificate: Certificate, fewest: int) -> str:
    """Return the headline: the fewest, and why one fewer does not do."""
    head = f"fewest: {gpus_text(fewest)}"
    smaller = [c for c in certificate.counts[: fewest - 1] if is_searched(c)]
    if not smaller:
        outside = "; fewer GPUs are outside what was fixed or allowed"
        return head + (outside if fewest > 1 else "")
    open_counts = [str(c.num_gpus) for c in smaller if c.verdict is not Verdict.FAILS]
    if open_counts:
        return f"{head} found; undecided: {', '.join(open_counts)}"
    last = smaller[-1]
    why = REASONS.get(last.binding) if last.binding else None
    if last.nearest_miss is not None:
        why = miss_text(last.nearest_miss)
    return f"{head}; {last.num_gpus} {last.verdict.value}: {why}"


def is_searched(count: CountVerdict) -> bool:
    """Tell whether limits and override left the count any degrees."""
    return any(rule is not Rule.OUTSIDE_LIMITS for rule in count.decisions.rule)


def space_text(space: Space) -> str:
    """Return within what the certificate holds."""
    limits = space.limits
    parts = [
        f"1 to {limits.max_gpus} GPUs",
        f"{len(space.offers)} offer" + ("s" if len(space.offers) > 1 else ""),
        "schedules " + ", ".join(limits.schedules),
    ]
    for name, degrees in (
        ("pipeline", limits.pipeline_degrees),
        ("data", limits.data_degrees),
    ):
        if degrees:
            parts.append(f"{name} degrees {', '.join(map(str, degrees))}")
    if limits.max_micro_batch:
        parts.append(f"micro-batch up to {limits.max_micro_batch}")
    if limits.headroom:
        parts.append(f"{limits.headroom:.0%} of the memory kept free")
    if space.override.is_given:
        parts.append(f"fixed by hand: {override_text(space.override)}")
    return "; ".join(parts) + "; without " + ", ".join(space.without)


def override_text(override: Override) -> str:
    """Return what a person fixed."""
    found = {
        "GPUs": override.num_gpus,
        "stages": override.num_stages,
        "data degree": override.data_degree,
        "micro-batch": override.micro_batch,
        "cuts": ",".join(map(str, override.cuts)) or None,
    }
    parts = [f"{name} {value}" for name, value in found.items() if value is not None]
    if override.recomputed_layers is not None:
        parts.append(f"{len(override.recomputed_layers)} recomputed layers")
    return ", ".join(parts)


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
        lines.append(f"{gpus_text(answer.plan.num_gpus)}: {ending_text(answer)}")
    lines += certificate_lines(certificate)
    lines.append(f"searched: {space_text(certificate.space)}")
    lines += [f"warning: {warning}" for warning in answer.warnings]
    return [*lines, " GPUs  verdict", *map(count_text, certificate.counts)]


def infeasible_lines(answer: Infeasible) -> list[str]:
    """Return why there is no plan, and what would change that."""
    lines = [f"no plan: {answer.binding} binds"]
    if answer.nearest_miss is not None:
        lines.append(f"nearest miss: {miss_text(answer.nearest_miss)}")
    lines.append(f"would do: {answer.nearest_change}")
    return lines
