"""The verdict on one tuple, and the rule that decided it.

In: a candidate and the rate floor. Out: `Decision`. Called by `explore` for every tuple
of every count up to the answer; for a family at once, if the rule at sight or one of
the next two decides all of its tuples. In this order:

    what the space decides at sight                      fails, that rule
    states, spread evenly over P ranks, exceed           fails, states-exceed
    a bound for all D and b exceeds (`family_bounds`)    fails, memory-relaxed
    a layer alone on a rank exceeds                      fails, layer-exceeds
    a smaller b exceeds, which needs no more             fails, dominated
    the least peak at any speed exceeds (lower bytes)    fails, memory-corner
    the same, for lack of the memory of the machine      fails, host-memory
    bounds of the step are too long (lower bytes, lower s)   fails, rate-bound
    a plan fits (upper bytes) and its walk is fast enough    fits, searched
    all walks are too long (lower bytes, lower s)        fails, rate-bound
    too slow where all seconds are at their lower end    undecided, rate-at-equal-error
    anything else                                        undecided, searched

`fails` is a proof, for all bytes and all seconds inside their intervals. A relative
rate floor is a part of the best rate, and so as uncertain as the seconds are: it is
bounded from below, by the best plan under its longest step, and the rates of a count
from above, by lower seconds (`Floor.provable`). Lower seconds on both sides are right
only if one factor is the error of all layers, and decide nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.records.bounds import LARGEST_RATE
from plimsoll_planner.records.certificate import Rule
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.search.found import Found
from plimsoll_planner.search.host_need import needed_host_bytes
from plimsoll_planner.search.numbers import FAILING
from plimsoll_planner.search.space import Candidate, Family
from plimsoll_planner.search.tuple_search import TupleSearch

SLACK = 1e-12
"""Relative; floors are products of rates, and must not fail by rounding."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Floor:
    """Samples per second that a plan must reach, as a line over the GPUs."""

    per_gpu: float = 0.0
    """Of a relative floor, at the expected seconds of the best plan."""
    per_gpu_at_upper_s: float = 0.0
    """The same floor where the best plan takes its longest step: its least value."""
    per_gpu_at_lower_s: float = 0.0
    """The same floor where all seconds are at their lower end."""
    total: float = 0.0
    """Of an absolute floor."""

    def expected(self, num_gpus: int) -> float:
        """Rate that a walk with expected seconds must reach."""
        return max(self.per_gpu * num_gpus, self.total) * (1 - SLACK)

    def provable(self, num_gpus: int) -> float:
        """Rate that every plan must reach, whatever the seconds are."""
        return max(self.per_gpu_at_upper_s * num_gpus, self.total) * (1 - SLACK)

    def at_equal_error(self, num_gpus: int) -> float:
        """Rate that a plan must reach where all seconds are at their lower end."""
        return max(self.per_gpu_at_lower_s * num_gpus, self.total) * (1 - SLACK)


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """Result for one tuple, or for a family at once."""

    candidate: Candidate
    """The tuple, or the first one of the family."""
    family: Family | None = None
    verdict: Verdict
    rule: Rule
    least_lower_bytes: int = 0
    """Of the device; 0 where not computed."""
    best_samples_per_s: float = 0.0
    """Upper bound; 0 where not computed."""
    found: Found | None = None
    """The fastest plan, where the tuple fits."""

    def members(self) -> Iterator[Candidate]:
        """The tuples."""
        return self.family.members() if self.family else iter([self.candidate])

    @property
    def micro_batches(self) -> tuple[int, ...]:
        """Those of the tuples, rising."""
        family = self.family
        return family.micro_batches if family else (self.candidate.micro_batch,)


def decide_family(search: TupleSearch, family: Family) -> Decision | None:
    """Judge all tuples of a family at once, if one rule decides them all."""
    rule = family.rule
    if rule is not None:
        is_open = rule is Rule.NOT_SEARCHED
        return Decision(
            candidate=family.first,
            family=family,
            verdict=Verdict.UNDECIDED if is_open else Verdict.FAILS,
            rule=rule,
        )
    failure = search.family_bounds.failure(family)
    if failure is None:
        return None
    rule, tensor_bytes = failure
    allowed = search.allowance(family.first)
    return Decision(
        candidate=family.first,
        family=family,
        verdict=Verdict.FAILS,
        rule=rule,
        least_lower_bytes=allowed.device(Bound.LOWER, tensor_bytes),
    )


def decide(search: TupleSearch, candidate: Candidate, floor: Floor) -> Decision:
    """Judge one tuple that nothing decides at sight."""
    allowed = search.allowance(candidate)
    capacity = search.capacity(candidate, Bound.LOWER)
    for rule, tensor_bytes in memory_bounds(search, candidate):
        if tensor_bytes > capacity:
            lacking = rule is Rule.PEAK_EXCEEDS and lacks_host(search, candidate)
            least = allowed.device(Bound.LOWER, tensor_bytes)
            return Decision(
                candidate=candidate,
                verdict=Verdict.FAILS,
                rule=Rule.HOST_MEMORY if lacking else rule,
                least_lower_bytes=0 if lacking else least,
            )
    least = search.least_peak(candidate, Bound.LOWER)
    return decide_rate(search, candidate, floor, allowed.device(Bound.LOWER, least))


def memory_bounds(
    search: TupleSearch, candidate: Candidate
) -> Iterator[tuple[Rule, int]]:
    """Yield lower bounds of the least peak in tensor bytes, the last one exact."""
    states, alone = search.simple_bounds(candidate, Bound.LOWER)
    yield Rule.STATES_EXCEED, states
    yield Rule.MEMORY_RELAXED, search.family_bounds.relaxed(candidate, Bound.LOWER)
    yield Rule.LAYER_EXCEEDS, alone
    yield Rule.DOMINATED, search.family_bounds.dominated(candidate)
    yield Rule.PEAK_EXCEEDS, search.least_peak(candidate, Bound.LOWER)


def lacks_host(search: TupleSearch, candidate: Candidate) -> bool:
    """Whether a tuple of which no plan fits lacks its machine's memory."""
    return needed_host_bytes(search, candidate) is not None


def decide_rate(
    search: TupleSearch, candidate: Candidate, floor: Floor, least: int
) -> Decision:
    """Judge a tuple whose least lower peak is within the capacity."""
    count, needed = candidate.num_gpus, floor.provable(candidate.num_gpus)
    best, found = LARGEST_RATE, None
    for bound_s in step_bounds(search, candidate):
        best = min(best, samples_per_s(search, bound_s))
        if best < needed:
            break
    else:
        found = fast_enough(search, candidate, floor.expected(count))
        if found is None and needed:
            target_s = search.problem.global_batch_size / needed
            least_s = search.least_walk_s(candidate, target_s)
            best = min(best, samples_per_s(search, least_s))
    verdict, rule = Verdict.FAILS, Rule.RATE_BOUND
    if best >= needed:
        is_slow = found is None and best < floor.at_equal_error(count)
        verdict = Verdict.UNDECIDED if found is None else Verdict.FITS
        rule = Rule.RATE_AT_EQUAL_ERROR if is_slow else Rule.SEARCHED
    return Decision(
        candidate=candidate,
        verdict=verdict,
        rule=rule,
        least_lower_bytes=least,
        best_samples_per_s=best,
        found=found,
    )


def step_bounds(search: TupleSearch, candidate: Candidate) -> Iterator[float]:
    """Yield lower bounds of the step at lower bytes and seconds, dearer and better."""
    yield quick_bound(search, candidate, Bound.LOWER)
    capacity = search.capacity(candidate, Bound.LOWER)
    partition = search.least_bound(candidate, FAILING, capacity)
    if partition is not None:
        yield partition.value
        yield search.group_bound(candidate, FAILING, capacity)


def fast_enough(
    search: TupleSearch, candidate: Candidate, needed_per_s: float
) -> Found | None:
    """Fastest plan that fits, None where there is none or it is too slow."""
    bound_s = quick_bound(search, candidate, Bound.EXPECTED)
    if samples_per_s(search, bound_s) < needed_per_s:
        return None
    partition = search.quickest_cuts(candidate)
    if partition is None or samples_per_s(search, partition.value) < needed_per_s:
        return None
    found = search.fastest(candidate)
    if found is None or samples_per_s(search, found.step_s) < needed_per_s:
        return None
    return found


def samples_per_s(search: TupleSearch, step_s: float) -> float:
    """Throughput of a step."""
    if step_s <= 0:
        return LARGEST_RATE
    return min(search.problem.global_batch_size / step_s, LARGEST_RATE)


def quick_bound(
    search: TupleSearch, candidate: Candidate, seconds_bound: Bound
) -> float:
    """Lower bound of the step that needs no cuts."""
    total_s, largest_s = search.costs(candidate).pass_seconds(
        candidate.offer, seconds_bound, candidate.micro_batch
    )
    count = candidate.num_micro_batches
    closed = candidate.schedule.closed_bound(total_s, candidate.num_stages, count)
    shared = search.shared_bound(candidate, seconds_bound)
    # Rounded down by a hair: closed_bound is no sum of ticks.
    return max(closed * (1 - SLACK), count * largest_s, shared)


def is_zero_rate(decision: Decision) -> bool:
    """Whether no rate was computed."""
    return decision.best_samples_per_s == 0
