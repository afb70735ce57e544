"""Plans in the place of one that runs, against all plans of its tuple."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, pairwise, product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.records.engine import OptimizerHome
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.search.build_plan import build_plan
from plimsoll_planner.search.found import Found
from plimsoll_planner.search.revised_search import RevisedSearch
from plimsoll_planner.search.space import Candidate
from plimsoll_planner.search.tuple_search import TupleSearch
from plimsoll_planner.timing import step_walk
from plimsoll_planner.timing.stage_times import StageTimes
from tests.planner.search.test_tuple_search import Option, Oracle, tuples
from tests.support.brute_force import ROUNDING, candidate_of, runnable
from tests.support.drawing import draws
from tests.support.enumerated_costs import Mesh
from tests.support.enumerator import Judge, quickest
from tests.support.in_flight import follow
from tests.support.random_questions import asked, hosted, offloading

PACES = st.sampled_from([0.5, 1.0, 1.25, 2.0, 4.0])


def steps_within(
    oracle: Oracle, running: Found, paces: Sequence[float], rooms: Sequence[int]
) -> Iterator[float]:
    """Yield the paced step of every plan that moves lead to and whose stages fit."""
    search, candidate = oracle.search, oracle.candidate
    held = [choice.stated for choice in running.choices]
    tied = search.problem.profile.tied
    staying = {layer for tie in tied if tie.parameter_bytes for layer in tie.layers}
    for inner in combinations(range(1, oracle.size), candidate.num_stages - 1):
        cuts = (0, *inner)
        if any(
            cuts[place] != running.cuts[place]
            for place in range(1, len(cuts))
            if held[place] != held[place - 1]
        ) or any(stage_of(cuts, n) != stage_of(running.cuts, n) for n in staying):
            continue
        fitting: list[list[Option]] = [
            [
                one
                for one in oracle.options[stage, first, end]
                if one.peak <= rooms[stage] and one.choice.stated == held[stage]
            ]
            for stage, (first, end) in enumerate(pairwise((*cuts, oracle.size)))
        ]
        for plan in product(*fitting):
            yield paced_step_s(search, candidate, cuts, plan, paces)


def stage_of(cuts: Sequence[int], layer: int) -> int:
    """Stage that holds a layer."""
    return sum(cut <= layer for cut in cuts) - 1


def paced_step_s(
    search: TupleSearch,
    candidate: Candidate,
    cuts: tuple[int, ...],
    plan: Sequence[Option],
    paces: Sequence[float],
) -> float:
    """Walk of a step in which every pass of a stage takes so many times as long."""
    found = Found(
        candidate=candidate,
        cuts=cuts,
        recomputed=tuple(one.recomputed for one in plan),
        choices=tuple(one.choice for one in plan),
        bound_s=0.0,
        step_s=0.0,
        peaks=(),
    )
    times = [
        StageTimes(
            forward_s=pace * one.forward_s,
            backward_s=pace * one.backward_s,
            sent_bytes=one.sent_bytes,
            end_s=one.end_s,
            in_flight_cap=one.in_flight_cap,
        )
        for pace, one in zip(
            paces, search.stage_times(found, Bound.EXPECTED), strict=True
        )
    ]
    placed, count = search.placed(candidate), candidate.num_micro_batches
    return step_walk.walk(candidate.schedule, times, count, placed)


@pytest.mark.slow
@settings(max_examples=draws(200))
@given(tuples(), st.lists(PACES, min_size=4, max_size=4), st.data())
def test_the_fastest_plan_on_devices_as_they_are(
    drawn: tuple[TupleSearch, Candidate], paces: list[float], data: st.DataObject
) -> None:
    """Of all that moves lead to; the plan that runs takes as long as its paced walk."""
    search, candidate = drawn
    oracle, paces = Oracle(search, candidate), paces[: candidate.num_stages]
    running = search.least_peak_plan(candidate)
    assume(running is not None)
    assert running is not None
    plan = build_plan(search, running)
    lacking = [data.draw(st.integers(0, 4)) for _ in paces]
    revised = RevisedSearch(search.problem, plan, lacking_bytes=lacking)
    times = search.stage_times(running, Bound.EXPECTED)
    count = candidate.num_micro_batches
    passes_s = [pace * t.passes_s(count) for pace, t in zip(paces, times, strict=True)]
    assume(all(passes_s))
    revised.take_paces(passes_s)
    assert list(revised.paces) == paces

    of_running = [
        Option(peak=0, bound_s=0.0, recomputed=again, choice=choice)
        for again, choice in zip(running.recomputed, running.choices, strict=True)
    ]
    now_s = paced_step_s(search, candidate, running.cuts, of_running, paces)
    assert revised.step_now_s() == now_s

    capacity = max(running.peaks) + data.draw(st.integers(0, 8))
    capacity = min(capacity, search.capacity(candidate, Bound.UPPER))
    rooms = [capacity - one for one in lacking]
    shortest_s = min(steps_within(oracle, running, paces, rooms), default=None)
    found = revised.fastest_within(capacity)
    assert (None if found is None else found.step_s) == shortest_s
    if found is not None:
        assert all(p <= r for p, r in zip(found.peaks, rooms, strict=True))


def judged_steps(
    problem: Problem, mesh: Mesh, running: Found, rooms: Sequence[int]
) -> Iterator[float]:
    """Yield the step of every plan that fits and whose optimizers stay at home."""
    judge = Judge(problem, "upper", "expected")
    tables = judge.tables(mesh)
    homes = [one.stated.get("optimizer_home") for one in running.choices]
    on_host = [home is OptimizerHome.HOST for home in homes]
    for cuts in judge.cuts(mesh.stages):
        if any(
            cuts[place] != running.cuts[place]
            for place in range(1, mesh.stages)
            if on_host[place] != on_host[place - 1]
        ):
            continue
        chosen = [
            quickest(
                [one for one in tables[stage, *run] if one.on_host == on_host[stage]],
                rooms[stage],
            )
            for stage, run in enumerate(pairwise(cuts))
        ]
        for options in product(*chosen):
            if follow(one.cap for one in options):
                yield judge.walk_s(mesh, cuts, options)


@pytest.mark.slow
def test_stages_offload_more_where_a_device_is_smaller() -> None:
    """Also those whose own devices are as planned: layers can move there.

    The judge knows all plans, of any number in flight and with any layers offloaded.
    """
    num_offloading = 0
    for seed in range(draws(200)):
        dice = random.Random(f"smaller {seed}")  # noqa: S311 - no secret
        question = offloading(hosted(replace(asked(seed), is_tied=False), seed), dice)
        problem = question.problem()
        search = TupleSearch(problem)
        mesh = dice.choice(
            [one for one in runnable(problem) if one.replicas == 1 < one.stages]
        )
        running = search.fastest(candidate_of(problem, mesh))
        if running is None:
            continue
        lacking = [dice.choice((0, dice.randint(0, 30))) for _ in running.peaks]
        plan = build_plan(search, running)
        revised = RevisedSearch(problem, plan, lacking_bytes=lacking)
        capacity = search.capacity(running.candidate, Bound.UPPER)
        found = revised.fastest_within(capacity)
        rooms = [capacity - one for one in lacking]
        shortest_s = min(judged_steps(problem, mesh, running, rooms), default=0)
        step_s = 0.0 if found is None else found.step_s
        assert step_s == pytest.approx(shortest_s, rel=ROUNDING), seed
        is_offloaded = found and any(c.other_way.offloads for c in found.choices)
        num_offloading += bool(is_offloaded)
    assert num_offloading > draws(200) // 20
