"""The verdict on one tuple, and the rule that decided it.

In: a candidate and what the rate floor asks. Out: `Decision`. Called by `answer` for
every tuple of every count up to the answer. In this order:

    what the space decides at sight                      fails, that rule
    states, spread evenly over P ranks, exceed           fails, states-exceed
    a layer alone on a rank exceeds                      fails, layer-exceeds
    the least peak at any speed exceeds (lower bytes)    fails, memory-corner
    no plan can be fast enough (lower bytes, lower s)    fails, rate-bound
    a plan fits (upper bytes) and its walk is fast enough    fits, searched
    anything else                                        undecided, searched

All but the last are proofs. A rate floor that is a part of the best rate is compared
under the same seconds on both sides (lower with lower, expected with expected), because
an error that all layers share cancels; an absolute floor meets lower seconds as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from plimsoll_planner.memory.chain_bytes import Bound
from plimsoll_planner.records.certificate import Rule
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.search.space import Candidate
from plimsoll_planner.search.tuple_bounds import FAILING
from plimsoll_planner.search.tuple_search import Found, TupleSearch
from plimsoll_planner.timing.step_bound import closed_bound

LARGEST_RATE = 1e18
SLACK = 1e-12
"""Relative; floors are products of rates, and must not fail by rounding."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Floor:
    """Samples per second that a plan must reach, as a line over the GPUs."""

    per_gpu: float = 0.0
    """Of a relative floor, under expected seconds."""
    per_gpu_lower_s: float = 0.0
    """The same floor under lower seconds."""
    total: float = 0.0
    """Of an absolute floor."""

    def expected(self, num_gpus: int) -> float:
        """Return what a walk with expected seconds must reach."""
        return max(self.per_gpu * num_gpus, self.total) * (1 - SLACK)

    def provable(self, num_gpus: int) -> float:
        """Return what no plan under lower seconds may miss."""
        return max(self.per_gpu_lower_s * num_gpus, self.total) * (1 - SLACK)


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """What became of one tuple."""

    candidate: Candidate
    verdict: Verdict
    rule: Rule
    least_lower_bytes: int = 0
    """Of the device; 0 where not computed."""
    best_samples_per_s: float = 0.0
    """Upper bound; 0 where not computed."""
    found: Found | None = None
    """The fastest plan that fits, where one was searched for."""
    straddles: bool = False
    """Some plan's bytes are undecided."""


def decide(search: TupleSearch, candidate: Candidate, floor: Floor) -> Decision:
    """Judge one tuple."""
    if candidate.rule is not None:
        verdict = (
            Verdict.UNDECIDED if candidate.rule is Rule.NOT_SEARCHED else Verdict.FAILS
        )
        return Decision(candidate=candidate, verdict=verdict, rule=candidate.rule)
    allowed = search.allowance(candidate)
    capacity = allowed.tensor_capacity(Bound.LOWER)
    for rule, tensor_bytes in memory_bounds(search, candidate):
        if tensor_bytes > capacity:
            return Decision(
                candidate=candidate,
                verdict=Verdict.FAILS,
                rule=rule,
                least_lower_bytes=allowed.device(Bound.LOWER, tensor_bytes),
            )
    corner = search.corner(candidate, Bound.LOWER)
    return decide_rate(search, candidate, floor, allowed.device(Bound.LOWER, corner))


def memory_bounds(
    search: TupleSearch, candidate: Candidate
) -> Iterator[tuple[Rule, int]]:
    """Yield lower bounds of the least peak in tensor bytes, the last one exact."""
    states, alone = search.simple_bounds(candidate, Bound.LOWER)
    yield Rule.STATES_EXCEED, states
    yield Rule.LAYER_EXCEEDS, alone
    yield Rule.MEMORY_CORNER, search.corner(candidate, Bound.LOWER)


def decide_rate(
    search: TupleSearch, candidate: Candidate, floor: Floor, least: int
) -> Decision:
    """Judge a tuple whose least lower peak is within the capacity."""
    needed = floor.provable(candidate.num_gpus)
    best = samples_per_s(search, quick_bound(search, candidate, Bound.LOWER))
    if best >= needed:
        capacity = search.allowance(candidate).tensor_capacity(Bound.LOWER)
        partition = search.least_bound(candidate, FAILING, capacity)
        if partition is not None:
            best = min(best, samples_per_s(search, partition.value))
    if best < needed:
        return Decision(
            candidate=candidate,
            verdict=Verdict.FAILS,
            rule=Rule.RATE_BOUND,
            least_lower_bytes=least,
            best_samples_per_s=best,
        )
    found = search.fastest(candidate)
    reached = 0.0 if found is None else samples_per_s(search, found.step_s)
    fits = found is not None and reached >= floor.expected(candidate.num_gpus)
    return Decision(
        candidate=candidate,
        verdict=Verdict.FITS if fits else Verdict.UNDECIDED,
        rule=Rule.SEARCHED,
        least_lower_bytes=least,
        best_samples_per_s=best,
        found=found,
        straddles=found is None,
    )


def samples_per_s(search: TupleSearch, step_s: float) -> float:
    """Return the throughput of a step."""
    if step_s <= 0:
        return LARGEST_RATE
    return min(search.problem.global_batch_size / step_s, LARGEST_RATE)


def quick_bound(
    search: TupleSearch, candidate: Candidate, seconds_bound: Bound
) -> float:
    """Return a lower bound of the step that needs no cuts."""
    chain = search.tables.seconds(candidate.offer, seconds_bound, candidate.micro_batch)
    count = candidate.num_micro_batches
    closed = closed_bound(chain.total, candidate.num_stages, count)
    largest = count * float((chain.forward + chain.backward).max())
    shared = search.shared_bound(candidate, seconds_bound)
    # Rounded down by a hair: closed_bound is no sum of ticks.
    return max(closed * (1 - SLACK), largest, shared)


def is_zero_rate(decision: Decision) -> bool:
    """Tell whether no rate was computed."""
    return decision.best_samples_per_s == 0
