"""Questions about graphs: counts that fit, that are proven to fail, and refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.graph.arrays import graph_of
from plimsoll_planner.graph.bounds import bounds_of
from plimsoll_planner.graph.placed import require_exact
from plimsoll_planner.records.certificate import Binding, Rule
from plimsoll_planner.records.document import from_text, to_text
from plimsoll_planner.records.engine import Schedule
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.objective import Goal, Objective
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.text.explain import explain
from plimsoll_planner.text.space import space_text
from tests.support.chains import chain_profile
from tests.support.placed_questions import GRAPHS, a_placed_question, least_of
from tests.support.questions import CHAIN, a_device, refused, solved


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


def test_devices_with_no_room_for_tensors_are_short_of_memory() -> None:
    """A size that would be enough is named, and how much of it tensors cannot use."""
    small = a_device(2**28, device_kind=DeviceKind.CUDA)
    profile = chain_profile(CHAIN, device_kind=DeviceKind.CUDA)
    question = a_placed_question(
        offers=(small,),
        profile=replace(profile, graphs=GRAPHS),
        limits=Limits(max_gpus=2),
    )
    found = refused(question)
    assert found.binding is Binding.MEMORY
    assert found.nearest_change == (
        "1 GPU of 4.60 GiB: the least that was found, at a micro-batch of 1, 4.50 GiB "
        "of it beside tensors at the most"
    )


def test_more_devices_than_operators_are_too_many() -> None:
    """No placement gives each of them work: the most that one can use is named."""
    for micro_batch in (None, 1):
        fixed = Override(num_gpus=500, data_degree=1, micro_batch=micro_batch)
        found = refused(a_placed_question(override=fixed, limits=Limits(max_gpus=512)))
        graphs = [one for one in GRAPHS if micro_batch in {None, one.micro_batch}]
        most = max(one.graph.num_groups for one in graphs)
        assert found.binding is Binding.GPU_LIMIT
        assert found.nearest_change == f"at most {most} devices in a replica"


def test_devices_may_be_more_than_layers() -> None:
    """A stage is then a device, and operators are many more."""
    num_devices = len(CHAIN) + 1
    fixed = Override(num_stages=num_devices, data_degree=1)
    limits = Limits(max_gpus=num_devices)
    plan = solved(a_placed_question(override=fixed, limits=limits)).plan
    assert len(plan.stages) == num_devices


def test_what_no_device_holds_is_named() -> None:
    """And more devices are not proposed, for none of them could."""
    bounds = [bounds_of(graph_of(one.graph), 4) for one in GRAPHS]
    alone = min(max(one.group_bytes, one.node_bytes) for one in bounds)
    found = refused(a_placed_question(alone - 1, limits=Limits(max_gpus=4)))
    miss = found.nearest_miss
    assert miss is not None
    assert miss.operator in {
        name for one in bounds for name in (one.largest_group, one.largest_node)
    }
    name = str(miss.operator).rpartition(" ")[2]
    assert f"which {name!r} alone exceeds" in "\n".join(explain(found))
    assert "or more" not in found.nearest_change


def test_a_plan_that_is_too_slow_is_no_answer() -> None:
    """Asked for by a rate or by a deadline; what fits is then short of speed."""
    fastest = Objective(goal=Goal.MAXIMIZE_THROUGHPUT)
    two = Limits(max_gpus=2)
    best = solved(a_placed_question(objective=fastest, limits=two)).plan
    rate = best.samples_per_s or 0
    steps = {"num_steps": 1000}
    seconds = 1000 * best.global_batch_size / rate
    for slower, fields in ((0.99, {}), (0.99, steps)):
        asked = (
            Objective(deadline_s=seconds / slower)
            if fields
            else Objective(min_samples_per_s=rate * slower)
        )
        plan = solved(a_placed_question(objective=asked, limits=two, **fields)).plan
        assert (plan.samples_per_s or 0) >= rate * slower
    open_s = Objective(min_samples_per_s=1.2 * rate)
    found = refused(a_placed_question(objective=open_s, limits=two))
    assert found.binding is Binding.RATE
    assert f"{rate:.4g} samples/s, the most that was found" in found.nearest_change
    assert Rule.NOT_PLACED in found.certificate.counts[-1].decisions.rule
    never = Objective(min_samples_per_s=100 * rate)
    proven = refused(a_placed_question(objective=never, limits=two)).certificate
    for count in proven.counts:
        assert count.decisions.rule[0] is Rule.RATE_BOUND
        assert count.nearest_miss is not None
        assert (count.nearest_miss.samples_per_s or 0) < 100 * rate


def test_gaps_are_from_what_no_placement_is_below() -> None:
    """Two replicas of one device each are as fast as any; less memory may be enough."""
    limits = Limits(max_gpus=2)
    fastest = Objective(goal=Goal.MAXIMIZE_THROUGHPUT)
    answer = solved(a_placed_question(objective=fastest, limits=limits))
    assert (answer.plan.stages[0].data_degree, answer.gap) == (2, 0)
    least = Objective(goal=Goal.MINIMIZE_MEMORY)
    answer = solved(a_placed_question(objective=least, limits=limits))
    bound = bounds_of(graph_of(GRAPHS[0].graph), 2).peak_bytes
    expected = 1 - bound / (answer.plan.peak_bytes or 0)
    assert answer.gap == answer.memory_gap == pytest.approx(expected)


def test_a_search_that_is_cut_off_says_so() -> None:
    """Tuples that were not looked at are undecided."""
    limits = Limits(max_gpus=4, max_tuples=2)
    goal = Objective(goal=Goal.MINIMIZE_MEMORY)
    answer = solved(a_placed_question(objective=goal, limits=limits))
    rules = [rule for one in answer.certificate.counts for rule in one.decisions.rule]
    left_out = rules.count(Rule.NOT_SEARCHED)
    assert left_out
    assert rules.count(Rule.PLACED) + rules.count(Rule.NOT_PLACED) == 2
    assert answer.certificate.cut_off.startswith(f"{left_out} of {len(rules)} comb")


def test_the_certificate_lists_the_micro_batches_that_have_graphs() -> None:
    """Others are not within what it holds."""
    answer = solved(a_placed_question())
    assert answer.certificate.space.micro_batches == (1, 2)
    assert "micro-batches of 1, 2, which were" in space_text(answer.certificate.space)


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
        ({"override": Override(cuts=(0, 3))}, "it is of layers"),
        ({"limits": Limits(max_gpus=2, whole_nodes=True)}, "false, as placements are"),
        ({"override": Override(micro_batch=4)}, "micro-batches of 1, 2 samples"),
        (
            {"profile": chain_profile(CHAIN, device_kind=DeviceKind.EMULATED)},
            "no graph",
        ),
    ],
)
def test_what_no_placement_has_is_refused(fields: dict[str, Any], text: str) -> None:
    """In one line that says what to do."""
    with pytest.raises(InvalidInputError, match=text):
        solved(a_placed_question(**fields))
