"""Questions about graphs: counts that fit, that are proven to fail, and refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from plimsoll_planner.errors import CannotPlanError
from plimsoll_planner.graph.arrays import graph_of
from plimsoll_planner.graph.bounds import bounds_of
from plimsoll_planner.graph.placed import require_exact
from plimsoll_planner.records.certificate import Rule
from plimsoll_planner.records.document import from_text, to_text
from plimsoll_planner.records.engine import Schedule
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.objective import Goal, Objective
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.plan import HybridPlan
from tests.support.chains import chain_profile
from tests.support.placed_questions import GRAPHS, a_placed_question, least_of
from tests.support.questions import CHAIN, refused, solved


def test_one_device_does_where_all_fits() -> None:
    """Nothing is sent, and the plan is a placement of one of the graphs."""
    answer = solved(a_placed_question())
    plan = answer.plan
    assert (plan.num_gpus, plan.schedule) == (1, Schedule.PLACED)
    assert plan.placement is not None
    assert len(plan.placement.sends.node) == 0
    assert plan.micro_batch * plan.num_micro_batches == plan.global_batch_size
    assert answer.certificate.fewest_at_floor == 1
    assert from_text(to_text(plan), HybridPlan) == plan


def test_fewer_than_a_bound_allows_is_proven_to_fail() -> None:
    """What is alive around one operator in every order is more than one has."""
    graph = GRAPHS[0].graph
    memory_bytes = bounds_of(graph_of(graph), 1).peak_bytes - 1
    only = replace(a_placed_question().profile, graphs=GRAPHS[:1])
    answer = solved(a_placed_question(memory_bytes, profile=only))
    first = answer.certificate.counts[0]
    assert first.verdict is Verdict.FAILS
    assert first.decisions.rule == (Rule.PLACEMENT_BOUND,)
    assert first.nearest_miss is not None
    assert first.nearest_miss.short_bytes > 0
    assert answer.plan.num_gpus > 1
    placement = answer.plan.placement
    assert placement is not None
    assert placement.peak_bytes <= memory_bytes
    require_exact(placement, graph)


def test_what_heuristics_do_not_find_is_undecided() -> None:
    """Between the bound and what is found nothing is proven."""
    least = least_of(1)
    bound = min(bounds_of(graph_of(one.graph), 1).peak_bytes for one in GRAPHS)
    assert bound < least - 1
    found = refused(a_placed_question(least - 1, limits=Limits(max_gpus=1)))
    assert found.certificate.counts[0].verdict is Verdict.UNDECIDED
    assert "the least that was found" in found.nearest_change
    assert solved(a_placed_question(least)).plan.num_gpus == 1


def test_replicas_divide_the_batch() -> None:
    """Two replicas of one device each, where that is asked for."""
    fixed = Override(num_gpus=2, data_degree=2, micro_batch=2)
    plan = solved(a_placed_question(override=fixed)).plan
    assert [stage.ranks for stage in plan.stages] == [(0, 1)]
    assert (plan.stages[0].data_degree, plan.num_micro_batches) == (2, 2)


def test_goals_choose_by_what_they_name() -> None:
    """Least memory, most samples per second, fewest devices."""
    found = {
        goal: solved(
            a_placed_question(objective=Objective(goal=goal), limits=Limits(max_gpus=4))
        ).plan
        for goal in (Goal.MINIMIZE_MEMORY, Goal.MAXIMIZE_THROUGHPUT, Goal.MINIMIZE_GPUS)
    }
    least, fastest, fewest = found.values()
    assert (least.peak_bytes or 0) <= min(
        fastest.peak_bytes or 0, fewest.peak_bytes or 0
    )
    assert (fastest.samples_per_s or 0) >= max(
        least.samples_per_s or 0, fewest.samples_per_s or 0
    )
    assert fewest.num_gpus == 1


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"override": Override(cuts=(0, 3))}, "`override.cuts` is of layers"),
        ({"override": Override(micro_batch=4)}, "micro-batches of 1, 2 samples"),
        (
            {"profile": chain_profile(CHAIN, device_kind=DeviceKind.EMULATED)},
            "no graph",
        ),
    ],
)
def test_what_no_placement_has_is_refused(fields: dict[str, Any], text: str) -> None:
    """In one line that says what to do."""
    with pytest.raises(CannotPlanError, match=text):
        solved(a_placed_question(**fields))
