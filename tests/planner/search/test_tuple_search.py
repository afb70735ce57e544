"""The search inside a tuple against all cuts and all sets of layers that recompute.

The oracle evaluates the formula of `rank_peak` and the sentences of `step_bound` for
every stage and set, one by one, and takes the best of the whole product.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_planner import techniques
from plimsoll_planner.engines import PLIMSOLL
from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.memory.chain_bytes import ChainBytes
from plimsoll_planner.memory.flow import Flow
from plimsoll_planner.memory.rank_peak import StageLoad, rank_peak
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.objective import Objective
from plimsoll_planner.records.offer import Link
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.plan import Stage
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.strategy import Mesh, Strategy
from plimsoll_planner.search.found import Found
from plimsoll_planner.search.numbers import FITTING
from plimsoll_planner.search.space import Candidate
from plimsoll_planner.search.tuple_search import TupleSearch
from plimsoll_planner.techniques.technique import Chains, Choice, StageChoice, Technique
from plimsoll_planner.timing.stage_runs import EndSeconds
from plimsoll_planner.timing.topology import Topology
from tests.support.builders import a_problem, an_offer
from tests.support.chains import random_profiles
from tests.support.drawing import draws
from tests.support.gradients import exchange_s

LINK = st.one_of(
    st.none(), st.builds(Link, bandwidth_bytes_per_s=st.sampled_from([0.5, 2.0]))
)


@st.composite
def tuples(draw: st.DrawFn) -> tuple[TupleSearch, Candidate]:
    """Draw a problem and one of its tuples."""
    profile = draw(random_profiles(draw(st.sampled_from([3, 4, 5, 5, 6]))))
    size = len(profile.layers.name)
    stages = draw(st.integers(1, min(size, 4)))
    replicas = draw(st.integers(1, 2))
    micro_batch = draw(st.integers(1, 2))
    count = stages + draw(st.integers(0, 4))
    problem = Problem(
        profile=profile,
        offers=(
            an_offer(
                devices_per_node=draw(st.integers(1, 4)),
                link_in_node=draw(LINK),
                link_between_nodes=draw(LINK),
            ),
        ),
        engine=PLIMSOLL,
        global_batch_size=replicas * micro_batch * count,
        # Caps are held against an enumeration in test_verdicts.
        limits=Limits(max_gpus=stages * replicas, in_flight_caps=False),
        objective=Objective(),
    )
    candidate = Candidate(
        offer=0,
        strategy=Strategy(mesh=Mesh(pipeline=stages, data=replicas)),
        micro_batch=micro_batch,
        num_micro_batches=count,
        gpus_per_pod=1,
    )
    return TupleSearch(problem), candidate


@dataclass(frozen=True)
class Option:
    """One stage with one set of layers that recompute."""

    peak: int
    bound_s: float
    recomputed: tuple[int, ...]
    choice: StageChoice


class Oracle:
    """Every stage of a tuple with every choice."""

    def __init__(self, search: TupleSearch, candidate: Candidate) -> None:
        """Evaluate them all."""
        self.search = search
        self.candidate, self.size = candidate, search.tables.num_layers
        self.chain: ChainBytes = search.costs(candidate).bytes(
            Bound.UPPER, candidate.micro_batch
        )
        self.seconds = search.costs(candidate).seconds(
            0, Bound.EXPECTED, candidate.micro_batch
        )
        self.placed: Topology = search.placed(candidate)
        self.holdings = search.tables.holdings
        self.options = {
            (stage, first, end): list(self.evaluate(stage, first, end))
            for stage in range(candidate.num_stages)
            for first, end in itertools.combinations(range(self.size + 1), 2)
        }

    def evaluate(self, stage: int, first: int, end: int) -> Iterator[Option]:
        """Yield the options of one stage."""
        free = [at for at in range(first, end) if self.chain.allowed[1, at]]
        for size in range(len(free) + 1):
            for again in itertools.combinations(free, size):
                for choice in self.search.choices(self.candidate):
                    yield Option(
                        peak=self.peak(stage, first, end, again, choice),
                        bound_s=self.bound(stage, first, end, again, choice),
                        recomputed=again,
                        choice=choice,
                    )

    def peak(
        self,
        stage: int,
        first: int,
        end: int,
        again: tuple[int, ...],
        choice: StageChoice,
    ) -> int:
        """Peak of the formula."""
        c = self.candidate
        load = StageLoad(
            first=first,
            end=end,
            recomputed=frozenset(again),
            flow=Flow(
                in_flight=min(c.num_micro_batches, c.num_stages - stage),
                num_micro_batches=c.num_micro_batches,
                micro_batch=c.micro_batch,
                data_degree=c.mesh.data,
            ),
        )
        return rank_peak(choice.bytes(self.chain), load, self.holdings)

    def bound(
        self,
        stage: int,
        first: int,
        end: int,
        again: tuple[int, ...],
        choice: StageChoice,
    ) -> float:
        """Step bound, sentence by sentence."""
        c, s = self.candidate, self.seconds
        count, stages = c.num_micro_batches, c.num_stages
        k = min(count, stages - stage)
        forward, backward = sum(s.forward[first:end]), sum(s.backward[first:end])
        more = sum(s.recompute[at] for at in again)
        before = self.links_before(stage, first)
        both_behind = (
            sum(s.forward[end:])
            + sum(s.backward[end:])
            + 2 * self.links_behind(stage, end)
        )
        both_before = sum(s.forward[:first]) + sum(s.backward[:first]) + 2 * before
        gradients = int(self.chain.gradient[first:end].sum())
        exchanges = sum(self.chain.gradient[first:end] > 0)
        exchanged_s = exchange_s(self.placed, stage, gradients, exchanges)
        optimizer_s = sum(s.optimizer_step[first:end])
        ending = EndSeconds(
            exchange=np.array(exchanged_s),
            optimizer=np.array(optimizer_s),
            host_step=np.array(0.0),
            to_host=np.array(0.0),
            from_host=np.array(0.0),
        )
        closing = float(choice.end_s(ending, Bound.EXPECTED))
        lead = sum(s.forward[:first]) + before
        last = max(sum(s.backward[:first]) + before, closing)
        passes = (
            lead
            + count * (backward + more)
            + max(count * forward, forward + both_behind + (count - k) * forward)
            + last
        )
        cycle, length = forward + backward + both_behind, stages - stage
        times = math.ceil((count - k) / length)
        to_last = (
            lead
            + forward
            + both_behind
            + times * cycle
            + (count - times * length) * backward
            + last
        )
        cycle, length = both_before + forward + backward, stage + 1
        times = math.ceil((count - min(count, stages)) / length)
        from_first = cycle + both_behind + times * cycle
        return float(max(passes, to_last, from_first))

    def links_before(self, stage: int, first: int) -> float:
        """Cut at `first`, and the cheapest boundaries of the cuts before."""
        if stage == 0 or first == 0:
            return 0.0
        hops, u = self.placed.hops, self.chain.boundary[:first]
        last = hops[stage - 1].seconds(int(u[-1]))
        return last + sum(
            min(hop.seconds(int(size)) for size in u) for hop in hops[: stage - 1]
        )

    def links_behind(self, stage: int, end: int) -> float:
        """Cut at `end`, and the cheapest boundaries of the cuts behind."""
        if stage == self.candidate.num_stages - 1 or end == self.size:
            return 0.0
        hops, u = self.placed.hops, self.chain.boundary[end - 1 : -1]
        next_one = hops[stage].seconds(int(u[0]))
        return next_one + sum(
            min(hop.seconds(int(size)) for size in u) for hop in hops[stage + 1 :]
        )

    def plans(self) -> Iterator[tuple[int, float, float]]:
        """Yield peak, bound and walked step of every plan: all cuts times all sets."""
        for inner in itertools.combinations(
            range(1, self.size), self.candidate.num_stages - 1
        ):
            cuts = (0, *inner)
            ends = (*inner, self.size)
            stages = [
                self.options[place, first, end]
                for place, (first, end) in enumerate(zip(cuts, ends, strict=True))
            ]
            for plan in itertools.product(*stages):
                found = Found(
                    candidate=self.candidate,
                    cuts=cuts,
                    recomputed=tuple(o.recomputed for o in plan),
                    choices=tuple(o.choice for o in plan),
                    bound_s=0.0,
                    step_s=0.0,
                    peaks=tuple(o.peak for o in plan),
                )
                yield (
                    max(found.peaks),
                    max(o.bound_s for o in plan),
                    self.search.plan_step_s(found, Bound.EXPECTED),
                )


@pytest.mark.slow
@settings(max_examples=draws(300))
@given(tuples(), st.integers(0, 12), st.floats(0, 1))
def test_every_programme_is_the_best_of_all_plans(
    drawn: tuple[TupleSearch, Candidate], slack: int, part: float
) -> None:
    """Least memory, least bound and shortest walk under a capacity, least peak in time.

    The last is that of all plans that are fast enough. Heterogeneous layers, ties, tied
    layers, links, k and M. No walk is shorter than its bound.
    """
    search, candidate = drawn
    plans = list(Oracle(search, candidate).plans())
    assert all(step_s >= bound_s for _, bound_s, step_s in plans)
    least = min(peak for peak, _, _ in plans)
    assert search.least_peak(candidate, Bound.UPPER) == least

    capacity = least + slack
    found = search.least_bound(candidate, FITTING, capacity)
    assert found is not None
    assert found.value == min(bound for peak, bound, _ in plans if peak <= capacity)
    assert search.least_bound(candidate, FITTING, least - 1) is None

    quickest = search.quickest_within(candidate, capacity)
    assert quickest is not None
    shortest_s = min(step_s for peak, _, step_s in plans if peak <= capacity)
    assert quickest.step_s == quickest.bound_s == shortest_s
    assert max(quickest.peaks) <= capacity

    slowest_s = max(step_s for _, _, step_s in plans)
    target_s = shortest_s + part * (slowest_s - shortest_s)
    slim = search.least_memory(quickest, target_s)
    best = min(peak for peak, _, step_s in plans if step_s <= target_s)
    assert max(slim.found.peaks) == slim.least_bytes == best
    assert slim.found.step_s <= target_s


@dataclass(frozen=True, slots=True)
class LessOptimizer(Choice):
    """Holds a part of the optimizer state, and takes longer at the end of the step."""

    divisor: int = 1
    longer_s: float = 0.0

    def bytes(self, chain: ChainBytes) -> ChainBytes:
        """Divide the optimizer state, that of tied layers too."""
        return replace(
            chain,
            optimizer=chain.optimizer // self.divisor,
            ties=tuple(
                replace(tie, optimizer=tie.optimizer // self.divisor)
                for tie in chain.ties
            ),
        )

    def end_s(self, end: EndSeconds, bound: Bound) -> EndSeconds:
        """Step for longer."""
        del bound
        return replace(end, optimizer=end.optimizer + self.longer_s)


class DividedOptimizer(Technique):
    """A technique of this test: stages keep all of the optimizer, or a half or less."""

    name = "divided optimizer"

    def choices(
        self, strategy: Strategy, problem: Problem, chains: Chains
    ) -> tuple[LessOptimizer, ...]:
        """All of it, a half, or a D-th part."""
        del problem, chains
        divisors = (1, 2, 2 + strategy.mesh.data)
        return tuple(LessOptimizer(d, 3.0 * (d - 1)) for d in divisors)

    def choice_of(self, stage: Stage, problem: Problem) -> LessOptimizer:
        """All of it."""
        del stage, problem
        return LessOptimizer()


def test_choices_know_no_number_of_stages() -> None:
    """A bound of one P serves the others, so a technique must not distinguish them."""
    asked: list[Strategy] = []

    class Asked(DividedOptimizer):
        def choices(
            self, strategy: Strategy, problem: Problem, chains: Chains
        ) -> tuple[LessOptimizer, ...]:
            asked.append(strategy)
            return super().choices(strategy, problem, chains)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(techniques, "TECHNIQUES", (Asked(),))
        for stages in (1, 4):
            strategy = Strategy(mesh=Mesh(pipeline=stages, data=2))
            techniques.stage_choices(strategy, a_problem(), [])
    assert asked == [Strategy(mesh=Mesh(pipeline=1, data=2))] * 2


@pytest.mark.slow
@settings(max_examples=draws(150))
@given(tuples(), st.integers(0, 12), st.floats(0, 1))
def test_stages_choose_independently(
    drawn: tuple[TupleSearch, Candidate], slack: int, part: float
) -> None:
    """With a technique, against all cuts, sets and choices of every stage.

    The walk of given cuts need not be the shortest, so the bound may be below the step.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(techniques, "TECHNIQUES", (DividedOptimizer(),))
        search, candidate = TupleSearch(drawn[0].problem), drawn[1]
        plans = list(Oracle(search, candidate).plans())
        assert all(step_s >= bound_s for _, bound_s, step_s in plans)
        least = min(peak for peak, _, _ in plans)
        assert search.least_peak(candidate, Bound.UPPER) == least
        assert max(search.simple_bounds(candidate, Bound.UPPER)) <= least

        capacity = least + slack
        found = search.least_bound(candidate, FITTING, capacity)
        assert found is not None
        assert found.value == min(bound for peak, bound, _ in plans if peak <= capacity)

        quickest = search.quickest_within(candidate, capacity)
        assert quickest is not None
        shortest_s = min(step_s for peak, _, step_s in plans if peak <= capacity)
        assert quickest.bound_s <= shortest_s <= quickest.step_s
        assert max(quickest.peaks) <= capacity

        target_s = quickest.step_s * (1 + part)
        slim = search.least_memory(quickest, target_s)
        best = min(peak for peak, _, step_s in plans if step_s <= target_s)
        assert slim.least_bytes <= best <= max(slim.found.peaks)
        assert slim.found.step_s <= target_s


@settings(max_examples=draws(200))
@given(tuples())
def test_simple_bounds_are_bounds(drawn: tuple[TupleSearch, Candidate]) -> None:
    """Neither the spread states nor the largest layer exceed the exact least peak."""
    search, candidate = drawn
    least = search.least_peak(candidate, Bound.LOWER)
    assert max(search.simple_bounds(candidate, Bound.LOWER)) <= least
    fastest = search.fastest(candidate)
    assert fastest is not None
    period = search.least_period(candidate)
    assert candidate.num_micro_batches * period <= fastest.bound_s
    assert search.quick_period(candidate) <= period


@pytest.mark.slow
@settings(max_examples=draws(100))
@given(tuples(), st.data())
def test_a_fixed_plan_is_obeyed(
    drawn: tuple[TupleSearch, Candidate], data: st.DataObject
) -> None:
    """With fixed cuts and layers the search has one plan, which was asked for."""
    search, candidate = drawn
    size = search.tables.num_layers
    cuts = data.draw(
        st.sampled_from(
            [
                (0, *inner)
                for inner in itertools.combinations(
                    range(1, size), candidate.num_stages - 1
                )
            ]
        )
    )
    chain = search.costs(candidate).bytes(Bound.UPPER, 1)
    free = [at for at in range(size) if chain.allowed[1, at]]
    again = data.draw(st.sets(st.sampled_from(free))) if free else set[int]()
    fixed = TupleSearch(
        Problem(
            profile=search.problem.profile,
            offers=search.problem.offers,
            engine=PLIMSOLL,
            global_batch_size=search.problem.global_batch_size,
            limits=search.problem.limits,
            objective=Objective(),
            override=Override(cuts=cuts, recomputed_layers=tuple(sorted(again))),
        )
    )
    found = fixed.least_peak_plan(candidate)
    assert found is not None
    assert found.cuts == cuts
    assert {at for stage in found.recomputed for at in stage} == again
    assert fixed.least_peak(candidate, Bound.UPPER) == max(found.peaks)
    assert fixed.fastest(candidate) is not None
