"""Chains that are cut between groups of layers alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.memory.rank_peak import StageLoad, rank_peak
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.search import cost_tables
from plimsoll_planner.search.explore import Explorer
from plimsoll_planner.search.found import Found
from plimsoll_planner.search.grouping import group_starts
from plimsoll_planner.search.timeline import timeline
from plimsoll_planner.search.tuple_search import TupleSearch
from plimsoll_planner.search.verdicts import Floor
from tests.planner.search.test_gaps import questions
from tests.support.drawing import draws
from tests.support.questions import CHAIN, a_question, refused, solved


def test_groups_weigh_about_the_same() -> None:
    """Ten layers, the last as heavy as all others: it stands alone."""
    weights = [np.array([1.0] * 9 + [9.0])]
    assert group_starts(weights, 5).tolist() == [0, 3, 6, 8, 9]
    assert group_starts(weights, 5, [1]).tolist() == [0, 1, 3, 6, 8, 9]
    assert group_starts(weights, 10).tolist() == list(range(10))


def check_plan(search: TupleSearch, found: Found) -> None:
    """Hold the peaks of a plan against the formula of its single layers."""
    candidate = found.candidate
    for place, (first, end) in enumerate(search.tables.layers(found.cuts)):
        load = StageLoad(
            first=first,
            end=end,
            recomputed=frozenset(found.recomputed[place]),
            flow=search.stage_flow(candidate, place, found.choices[place]),
        )
        chain = search.costs(candidate).bytes(Bound.UPPER, candidate.micro_batch)
        assert rank_peak(chain, load, search.tables.holdings) == found.peaks[place]


@settings(max_examples=draws(40))
@given(questions(), st.integers(2, 4))
def test_what_groups_decide_holds_for_all_cuts(problem: Problem, groups: int) -> None:
    """A fitting answer is a plan that fits, and no cuts make a failing count fit."""
    floor = Floor(total=problem.objective.min_samples_per_s or 0.0)
    exact = Explorer(problem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost_tables, "MOST_GROUPS", groups)
        coarse = Explorer(problem)
    assert coarse.families == exact.families
    for count in range(1, problem.limits.max_gpus + 1):
        tuples = {
            one: d.verdict for d in exact.decide(count, floor) for one in d.members()
        }
        for decision in coarse.decide(count, floor):
            verdict = tuples[decision.candidate]
            if decision.verdict is not Verdict.UNDECIDED:
                assert decision.verdict is verdict
            if decision.found is not None:
                check_plan(coarse.search, decision.found)


@pytest.mark.parametrize("stages", [2, 6, 10])
def test_what_groups_fail_by_is_what_is_proven(
    stages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more stages than groups too; no single plan is visited, so no rank is named.

    The rank of one plan was named, whose need no other plan has to share.
    """
    limits = Limits(max_gpus=10, pipeline_degrees=(stages,))
    question = a_question(60, global_batch_size=10, limits=limits)
    exact = refused(question).nearest_miss
    monkeypatch.setattr(cost_tables, "MOST_GROUPS", 5)
    miss = refused(question).nearest_miss
    assert exact is not None
    assert miss is not None
    assert (miss.rank, miss.place) == (None, "some rank")
    assert 60 < (miss.needed_bytes or 0) <= (exact.needed_bytes or 0)


def test_a_timeline_of_groups_is_the_walk_of_the_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Layers were taken for groups: other seconds, or none."""
    monkeypatch.setattr(cost_tables, "MOST_GROUPS", 5)
    problem = a_question(1200)
    plan = solved(problem).plan
    made = timeline(problem, plan, plan.num_micro_batches)
    assert made is not None
    assert plan.step_time is not None
    assert made.end_s == pytest.approx(plan.step_time.expected_s)


def test_a_thousand_layers_have_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few borders stand for many: the answer says so, in layers of the whole chain."""
    monkeypatch.setattr(cost_tables, "MOST_GROUPS", 5)
    answer = solved(a_question(1200))
    ends = [stage.chunks[-1].end_layer for stage in answer.plan.stages]
    assert ends[-1] == len(CHAIN)
    assert "stages begin with 5 of 10 layers" in answer.certificate.pruned
    assert answer.certificate.pruned in answer.warnings
    assert not answer.certificate.is_exhaustive
