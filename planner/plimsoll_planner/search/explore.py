"""Walks through the tuples of all counts: which fit, which is fastest.

In: a problem. Out: the parts that `answer` puts together. Branch and bound over tuples:
each has bounds of its step, from a closed form to the exact programme, and the tuple
that promises most is looked at next (`Explorer.best`). The order is a function of the
problem alone, so the same problem has the same answer.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from itertools import chain, compress, islice

from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.records.certificate import Rule
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.objective import Goal
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.search.found import Found
from plimsoll_planner.search.known_seconds import with_known_seconds
from plimsoll_planner.search.space import Candidate, Family, families_of, members_of
from plimsoll_planner.search.tuple_context import CutsOf
from plimsoll_planner.search.tuple_search import TupleSearch
from plimsoll_planner.search.variants import searched_variants
from plimsoll_planner.search.verdicts import (
    Decision,
    Floor,
    decide,
    decide_family,
    quick_bound,
    samples_per_s,
)

FLOORED = (Goal.MINIMIZE_GPUS, Goal.MINIMIZE_MEMORY)
"""Goals that would be degenerate without a floor of speed."""
QUICK, SUMS, PERIOD, PROGRAMME, WALKED = range(5)
"""How well the step of a tuple is known, from a closed form to a walked plan."""
LONGEST_STEP_S = 1e18
"""Above every step; stands for any speed."""


class Explorer:
    """The tuples of one problem and what is known about them."""

    def __init__(self, problem: Problem, cuts_of: CutsOf | None = None) -> None:
        """Lay out the space; see `TupleBounds`."""
        self.problem, self.left_out = with_known_seconds(problem)
        """The problem of the offers that can be planned; why others cannot."""
        self.search = TupleSearch(self.problem, cuts_of)
        self.families = self._space()
        """Of every count."""

    def _space(self) -> dict[int, list[Family]]:
        """Families of all counts, those beyond the work limit marked.

        What is decided as a family is not searched, and does not count as work.
        """
        limits, layers = self.problem.limits, len(self.problem.profile.layers.name)
        variants = searched_variants(self.problem)
        space = {
            count: families_of(self.problem, layers, count, variants)
            for count in range(1, limits.max_gpus + 1)
        }
        every = chain.from_iterable(space.values())
        left = limits.max_tuples
        if left is None or sum(len(f.micro_batches) for f in every) <= left:
            return space
        for count, found in space.items():
            is_work = [decide_family(self.search, family) is None for family in found]
            searched = set(islice(members_of(compress(found, is_work)), left))
            left -= len(searched)
            space[count] = [
                part
                for family, is_open in zip(found, is_work, strict=True)
                for part in (parts(family, searched) if is_open else [family])
            ]
        return space

    @property
    def every_family(self) -> Iterator[Family]:
        """Of all counts, in order."""
        return chain.from_iterable(self.families.values())

    @property
    def num_tuples(self) -> int:
        """Of all counts."""
        return self._num_tuples(lambda _: True)

    @property
    def num_cut_off(self) -> int:
        """Tuples over the work limit."""
        return self._num_tuples(lambda family: family.rule is Rule.NOT_SEARCHED)

    def _num_tuples(self, counts: Callable[[Family], bool]) -> int:
        """Of those families that count."""
        mine = (family for family in self.every_family if counts(family))
        return sum(len(family.micro_batches) for family in mine)

    def tuples_of(self, count: int) -> list[Candidate]:
        """All tuples of a count."""
        return list(members_of(self.families[count]))

    @cached_property
    def open(self) -> list[Candidate]:
        """Tuples that may fit, of families that nothing decides.

        Of those that differ by name or price alone, the cheapest stands for all.
        """
        may_fit = self.search.family_bounds.may_fit
        return self.cheapest(
            members_of(f for f in self.every_family if f.rule is None and may_fit(f))
        )

    @cached_property
    def fewest_at_any_speed(self) -> int | None:
        """Fewest GPUs with a plan that fits, whatever its speed."""
        fitting = (c.num_gpus for c in self.open if self.search.fits(c))
        return next(fitting, None)

    def cheapest(self, tuples: Iterable[Candidate]) -> list[Candidate]:
        """Of tuples on like machines the cheapest, or the first of those.

        Among prices of several currencies those of the first one that comes count.
        """
        found: dict[Candidate, Candidate] = {}
        for one in tuples:
            before = found.setdefault(self.search.alike(one), one)
            if self.is_cheaper(one, before):
                found[self.search.alike(one)] = one
        return list(found.values())

    def is_cheaper(self, one: Candidate, other: Candidate) -> bool:
        """Whether a tuple costs less than another one, in one currency."""
        offers = self.problem.offers
        if offers[one.offer].currency != offers[other.offer].currency:
            return False
        price, other_price = map(self.search.price_per_hour, (one, other))
        return (price or 0) < (other_price or 0)

    def rate(self, found: Found) -> float:
        """Throughput of a plan, walked."""
        return samples_per_s(self.search, found.step_s)

    def step_bound(self, candidate: Candidate, level: int) -> float:
        """Lower bound of the tuple's step, dearer and better by the level."""
        if level == QUICK:
            return quick_bound(self.search, candidate, Bound.EXPECTED)
        if level == SUMS:
            return candidate.num_micro_batches * self.search.quick_period(candidate)
        if level == PERIOD:
            return candidate.num_micro_batches * self.search.least_period(candidate)
        if level == PROGRAMME:
            partition = self.search.quickest_cuts(candidate)
            return float("inf") if partition is None else partition.value
        found = self.search.fastest(candidate)
        return float("inf") if found is None else found.step_s

    def best(
        self, tuples: Iterable[Candidate], score: Callable[[Candidate, float], float]
    ) -> Found | None:
        """Walked plan of the highest score.

        Best first: the tuple of the highest bound is bounded better, if a plan of it
        fits, up to its walked plan; when that is still the highest, no other tuple's
        plan scores higher. Among equals fewer GPUs come first, then cheaper ones. A
        score falls with the seconds of the step; minus infinity rules a tuple out.
        """
        heap = [
            (
                -score(c, self.step_bound(c, QUICK)),
                (c.num_gpus, self.price_per_hour(c), place),
                QUICK,
                c,
            )
            for place, c in enumerate(tuples)
        ]
        heapq.heapify(heap)
        while heap:
            negative, order, level, candidate = heapq.heappop(heap)
            if negative == float("inf"):
                return None
            if level == WALKED:
                return self.search.fastest(candidate)
            if level == SUMS and not self.search.fits(candidate):
                continue
            step_s = self.step_bound(candidate, level + 1)
            bounded = max(negative, -score(candidate, step_s))
            if level + 1 == WALKED:
                bounded = -score(candidate, step_s)
            heapq.heappush(heap, (bounded, order, level + 1, candidate))
        return None

    def price_per_hour(self, candidate: Candidate) -> float:
        """Price of all nodes; 0 where prices are not all of one currency.

        Ties are then broken by what comes next: 9 EUR are not less than 10 USD, nor
        more than a price that nobody states.
        """
        if not self.has_one_currency:
            return 0.0
        return float(self.search.price_per_hour(candidate) or 0)

    def paid_gpus(self, candidate: Candidate) -> int:
        """Devices of all nodes that a tuple stands on."""
        offer = self.problem.offers[candidate.offer]
        nodes = offer.num_nodes(candidate.num_gpus, candidate.gpus_per_pod)
        return nodes * offer.devices_per_node

    @cached_property
    def has_one_currency(self) -> bool:
        """Whether the prices of all offers can be compared."""
        return len({offer.currency for offer in self.problem.offers}) == 1

    def best_per_gpu(self) -> Found | None:
        """Plan of the most samples per second per GPU."""
        return self.best(
            self.open,
            lambda candidate, step_s: (
                samples_per_s(self.search, step_s) / candidate.num_gpus
            ),
        )

    def best_rate(
        self, tuples: Iterable[Candidate], least: float = 0.0
    ) -> Found | None:
        """Plan of the most samples per second, which is at least `least`."""

        def score(_: Candidate, step_s: float) -> float:
            rate = samples_per_s(self.search, step_s)
            return rate if rate >= least else float("-inf")

        return self.best(tuples, score)

    def floor(self, best: Found | None) -> Floor:
        """Rate that a plan must reach."""
        expected = self.expected_floor(best)
        if best is None or not expected.per_gpu:
            return expected
        share = self.problem.objective.rate_floor
        lower_s = self.search.plan_step_s(best, Bound.LOWER)
        at_lower_s = samples_per_s(self.search, lower_s) / best.candidate.num_gpus
        return replace(
            expected,
            per_gpu_at_upper_s=share * self.surest_rate_per_gpu(),
            per_gpu_at_lower_s=share * at_lower_s,
        )

    def expected_floor(self, best: Found | None) -> Floor:
        """Rate that a plan must reach at expected seconds; nothing fails by it."""
        objective, total = self.problem.objective, self.problem.asked_samples_per_s
        if total or best is None or objective.goal not in FLOORED:
            return Floor(total=total)
        return Floor(per_gpu=objective.rate_floor * self.rate_per_gpu(best))

    def rate_per_gpu(self, found: Found) -> float:
        """Throughput of a plan on each of its GPUs, at expected seconds."""
        return self.rate(found) / found.candidate.num_gpus

    def surest_rate_per_gpu(self) -> float:
        """Largest rate per GPU that some plan has, whatever the seconds are.

        No plan's longest step is shorter than its expected one, so plans are tried in
        the order of their expected rates until the rest cannot be better.
        """
        surest = 0.0
        walked = self.search.fastest_of.values()
        for found in sorted(walked, key=self.rate_per_gpu, reverse=True):
            if self.rate_per_gpu(found) <= surest:
                break
            rate = samples_per_s(self.search, self.search.longest_step_s(found))
            surest = max(surest, rate / found.candidate.num_gpus)
        return surest

    def decide(self, count: int, floor: Floor) -> list[Decision]:
        """Judge every tuple of a count; families and like machines at once."""
        judged: dict[Candidate, Decision] = {}
        found: list[Decision] = []
        rest: list[Family] = []
        for family in self.families[count]:
            decision = decide_family(self.search, family)
            if decision is None:
                rest.append(family)
            else:
                found.append(decision)
        for candidate in members_of(rest):
            key = self.search.alike(candidate)
            if key not in judged:
                judged[key] = decide(self.search, candidate, floor)
            found.append(of_candidate(judged[key], candidate))
        return found

    def fastest_within(self, candidate: Candidate, target_s: float) -> Found | None:
        """Fastest plan of a tuple, None where all plans are proven to take longer."""
        if self.step_bound(candidate, QUICK) > target_s:
            return None
        if self.step_bound(candidate, PROGRAMME) > target_s:
            return None
        found = self.search.fastest(candidate)
        return None if found is None or found.bound_s > target_s else found

    def target_s(self, needed_per_s: float) -> float:
        """Longest step that makes a throughput, samples per second."""
        batch = self.problem.global_batch_size
        return batch / needed_per_s if needed_per_s else LONGEST_STEP_S

    def device_peak(self, found: Found) -> int:
        """Largest upper bound on any device."""
        return self.device_bytes(found.candidate, max(found.peaks))

    def device_bytes(self, candidate: Candidate, tensor_bytes: int) -> int:
        """Upper bound of a device's bytes with that many bytes of tensors."""
        return self.search.allowance(candidate).device(Bound.UPPER, tensor_bytes)


def parts(family: Family, searched: Container[Candidate]) -> Iterator[Family]:
    """Family of those tuples that are searched, and of the others."""
    is_searched = [one in searched for one in family.members()]
    for wanted, rule in ((True, None), (False, Rule.NOT_SEARCHED)):
        pairs = zip(family.micro_batches, is_searched, strict=True)
        chosen = [b for b, mine in pairs if mine is wanted]
        if chosen:
            yield family.part(chosen, rule)


def of_candidate(decision: Decision, candidate: Candidate) -> Decision:
    """Decision on a tuple of like machines."""
    if decision.candidate is candidate:
        return decision
    found = decision.found and replace(decision.found, candidate=candidate)
    return replace(decision, candidate=candidate, found=found)


def is_fitting(decisions: list[Decision]) -> bool:
    """Whether a count fits."""
    return any(decision.verdict is Verdict.FITS for decision in decisions)
