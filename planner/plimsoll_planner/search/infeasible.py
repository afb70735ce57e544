"""No plan: what binds, how nearly, and the smallest change that was found to help.

In: the decisions of every count. Out: `Infeasible`. Called by `answer`. Each change is
tried by really solving the changed problem, so what it promises holds:

    more GPUs          up to `MOST_TIMES` times the limit, or what the offers have
    larger devices     the least peak over all tuples says how large
    larger machines    doublings of their memory
    a smaller batch    halves of the global batch
    another T          where limits or an override leave out what was profiled
    a lower floor      the rate that the fastest plan reaches

Where the work limit cut the search off, nothing binds that is known, and a longer
search is all that can be advised.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

from plimsoll_planner.records.bounds import (
    LARGEST_DEVICE_BYTES,
    LARGEST_INTEGER,
    MOST_GPUS,
)
from plimsoll_planner.records.certificate import Binding, Certificate, Rule
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Infeasible, SearchStatistics
from plimsoll_planner.search import certify
from plimsoll_planner.search.certify import warnings_of
from plimsoll_planner.search.choose import least_device_peak, least_memory_tuple
from plimsoll_planner.search.explore import Explorer, is_fitting
from plimsoll_planner.search.space import Candidate
from plimsoll_planner.search.verdicts import Decision
from plimsoll_planner.text.counts import gpus_text
from plimsoll_planner.units import at_least, number_text

MOST_TIMES = 4
MOST_MORE_GPUS = 64
"""How many GPUs beyond the limit are tried."""
MOST_HOST_TIMES = 16
"""The memory of machines is doubled up to this multiple."""
LEAST_BATCH_PART = 16
"""The global batch is halved down to this part."""


def infeasible(
    explorer: Explorer,
    decided: dict[int, list[Decision]],
    certificate: Certificate,
    statistics: SearchStatistics,
) -> Infeasible:
    """Reason why there is no plan, and the change that would help."""
    if certificate.cut_off:
        return cut_off(explorer, decided, certificate, statistics)
    binding = binding_of(explorer, certificate)
    misses = [
        count.nearest_miss
        for count in certificate.counts
        if count.nearest_miss and count.nearest_miss.binding is binding
    ]
    gpus = more_gpus(explorer.problem)
    changes = [
        more_text(explorer.problem, gpus) if gpus else more_offered(explorer.problem),
        larger_device(explorer) if binding is Binding.MEMORY else "",
        larger_host(explorer.problem) if binding is Binding.HOST_MEMORY else "",
        smaller_batch(explorer.problem) if binding is not Binding.RATE else "",
        lower_floor(explorer) if binding is Binding.RATE else "",
        smaller_micro_batch(explorer.problem) if binding is Binding.ENGINE else "",
        fewer_gpus(explorer.problem) if binding is Binding.GPU_LIMIT else "",
        larger_tensor(explorer.problem),
        smaller_tensor(explorer.problem) if binding is Binding.TENSOR_GROUP else "",
    ]
    helping = [change for change in changes if change]
    text = "; or ".join(helping) or "none was found: change the model or its limits"
    return Infeasible(
        binding=binding,
        nearest_miss=min(
            misses,
            key=lambda miss: (
                miss.short_bytes,
                -(miss.samples_per_s or 0) / (miss.needed_samples_per_s or 1),
            ),
            default=None,
        ),
        nearest_change=text,
        needed_gpus=gpus,
        certificate=certificate,
        statistics=statistics,
        warnings=warnings_of(explorer, first_of(decided)),
    )


def first_of(decided: dict[int, list[Decision]]) -> Candidate:
    """Tuple that stands for all where warnings are looked for."""
    return next(iter(decided.values()))[0].candidate


def cut_off(
    explorer: Explorer,
    decided: dict[int, list[Decision]],
    certificate: Certificate,
    statistics: SearchStatistics,
) -> Infeasible:
    """Answer without a plan, from which nothing follows: the search was cut off."""
    return Infeasible(
        binding=Binding.WORK_LIMIT,
        nearest_change=f"a longer search, for this one left out {certificate.cut_off}",
        certificate=certificate,
        statistics=statistics,
        warnings=warnings_of(explorer, first_of(decided)),
    )


def binding_of(explorer: Explorer, certificate: Certificate) -> Binding:
    """Last hurdle that any count came to.

    An undecided count came to the rate where some plan's upper bytes fit, and else to
    the memory of devices, or to that of machines if it is too little for other counts.
    """
    rules = {rule for count in certificate.counts for rule in count.decisions.rule}
    if all(count.binding is not None for count in certificate.counts):
        return certify.binding_of(rules)
    if explorer.fewest_at_any_speed is not None:
        return Binding.RATE
    return Binding.HOST_MEMORY if Rule.HOST_MEMORY in rules else Binding.MEMORY


def first_count(problem: Problem, first: int) -> int | None:
    """Fewest GPUs from `first` on that a plan fits on at the floor."""
    explorer = Explorer(problem)
    floor = explorer.floor(explorer.best_per_gpu())
    counts = range(first, problem.limits.max_gpus + 1)
    return next((c for c in counts if is_fitting(explorer.decide(c, floor))), None)


def more_gpus(problem: Problem) -> int | None:
    """Fewest GPUs beyond the limit that would do."""
    limit = problem.limits.max_gpus
    most = most_tried(limit)
    if problem.override.num_gpus or most == limit:
        return None
    limits = replace(problem.limits, max_gpus=most)
    return first_count(replace(problem, limits=limits), limit + 1)


def most_tried(limit: int) -> int:
    """Up to which count a plan beyond a limit is looked for."""
    return min(limit * MOST_TIMES, limit + MOST_MORE_GPUS, MOST_GPUS)


def more_text(problem: Problem, num_gpus: int) -> str:
    """Number of devices that would do, and the limit that keeps them out."""
    count = gpus_text(num_gpus, problem.offers)
    return f"{count} (`limits.max_gpus` is {problem.limits.max_gpus})"


def more_offered(problem: Problem) -> str:
    """How many would do within the limit, of an offer that had them."""
    most, limit = most_offered(problem), problem.limits.max_gpus
    if most is None or problem.override.num_gpus or limit > most + MOST_MORE_GPUS:
        return ""
    offers = tuple(replace(offer, nodes_available=None) for offer in problem.offers)
    gpus = first_count(replace(problem, offers=offers), 1) or 0
    is_more = gpus > most
    return f"{gpus_text(gpus, offers)}, if the offers had as many" if is_more else ""


def most_offered(problem: Problem) -> int | None:
    """The most devices of one offer; None where one has no end."""
    offered = [
        offer.devices_per_node * offer.nodes_available
        for offer in problem.offers
        if offer.nodes_available is not None
    ]
    return max(offered) if len(offered) == len(problem.offers) else None


def larger_device(explorer: Explorer) -> str:
    """Device memory with which the tuple of least memory would fit."""
    best = least_memory_tuple(explorer, explorer.every_family)
    if best is None or least_device_peak(explorer, best) > LARGEST_DEVICE_BYTES:
        return ""
    usable = 1 - explorer.problem.limits.headroom
    needed = -int(-least_device_peak(explorer, best) // usable)
    count = gpus_text(best.num_gpus, explorer.problem.offers)
    return f"{count} of {at_least(needed)}, at any speed"


def larger_host(problem: Problem) -> str:
    """Least doubling of the machines' memory with a plan."""
    times = 2
    while times <= MOST_HOST_TIMES:
        offers = tuple(with_host(offer, times) for offer in problem.offers)
        gpus = first_count(replace(problem, offers=offers), 1)
        if gpus:
            count = gpus_text(gpus, offers)
            return f"{count}, if machines had {times} times their memory"
        times *= 2
    return ""


def with_host(offer: Offer, times: int) -> Offer:
    """Offer of machines with so many times the memory."""
    memory = min((offer.host_memory_bytes or 0) * times, LARGEST_INTEGER)
    return replace(offer, host_memory_bytes=memory or None)


def smaller_batch(problem: Problem) -> str:
    """Largest half of the global batch with a plan."""
    batch = problem.global_batch_size
    part = 2
    while part <= LEAST_BATCH_PART and batch % part == 0:
        try:
            changed = replace(problem, global_batch_size=batch // part)
        except ValueError:
            return ""
        gpus = first_count(changed, 1)
        if gpus:
            count = gpus_text(gpus, problem.offers)
            return f"a global batch of {batch // part} samples, on {count}"
        part *= 2
    return ""


def smaller_micro_batch(problem: Problem) -> str:
    """Largest micro-batch with as many micro-batches as stages."""
    fixed = problem.override
    stages = fixed.stages
    if not stages or not fixed.micro_batch:
        return ""
    most = problem.global_batch_size // (stages * (fixed.data_degree or 1))
    if not most:
        return f"a global batch of {stages} samples or more, one for each stage"
    return f"a micro-batch of at most {most}: {stages} stages need {stages} of them"


def larger_tensor(problem: Problem) -> str:
    """Least larger tensor degree with a plan, where it is left out."""
    most = max(problem.tensor_degrees)
    larger = (one for one in problem.possible_tensor_degrees if one > most)
    return other_tensor(problem, larger)


def smaller_tensor(problem: Problem) -> str:
    """Largest tensor degree with a plan, where all that are allowed leave a node."""
    least = min(problem.tensor_degrees)
    smaller = (one for one in problem.possible_tensor_degrees if one < least)
    return other_tensor(problem, sorted(smaller, reverse=True))


def other_tensor(problem: Problem, degrees: Iterable[int]) -> str:
    """First of some tensor degrees with a plan, in words; empty if none has one."""
    for degree in degrees:
        try:
            limits = replace(problem.limits, tensor_degrees=(degree,))
            override = replace(problem.override, tensor_degree=degree)
            changed = replace(problem, limits=limits, override=override)
        except ValueError:  # too many for the GPUs, or another count is fixed
            continue
        gpus = first_count(changed, 1)
        if gpus:
            return f"a tensor degree of {degree}, on {gpus_text(gpus, problem.offers)}"
    return ""


def fewer_gpus(problem: Problem) -> str:
    """Number of devices that there are, if more are asked for."""
    most, asked = most_offered(problem), problem.override.num_gpus
    if most is None or not asked or asked <= most:
        return ""
    return f"at most {gpus_text(most, problem.offers)}, which is what the offers have"


def lower_floor(explorer: Explorer) -> str:
    """Rate that the fastest plan reaches, or the deadline it meets."""
    best = explorer.best_rate(explorer.open)
    if best is None:
        return ""
    problem, rate = explorer.problem, explorer.rate(best)
    gpus = gpus_text(best.candidate.num_gpus, problem.offers)
    if problem.objective.deadline_s and problem.num_steps:
        needed_s = problem.global_batch_size * problem.num_steps / rate
        if needed_s > problem.objective.deadline_s:
            text = four_digits(needed_s, math.ceil)
            return f"a deadline of at least {text} s, on {gpus}"
    return f"a floor of at most {four_digits(rate, math.floor)} samples/s, on {gpus}"


def four_digits(value: float, rounding: Callable[[float], int]) -> str:
    """Number above 0 rounded to the side on which it stays true, as it is typed."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 3)
    return number_text(rounding(value / unit) * unit).replace(",", "")
