"""No plan: what binds, how nearly, and what would do."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from plimsoll_planner.errors import InvalidFieldError
from plimsoll_planner.records.certificate import Binding, Rule
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.plan import Phase
from plimsoll_planner.records.solution import Solution
from plimsoll_planner.search.answer import solve
from tests.support.questions import a_device, a_question, least_memory, refused, solved


def test_no_plan_names_rank_bytes_and_what_would_do() -> None:
    """The nearest changes were really solved: asking again with them gives a plan."""
    answer = refused(a_question(600, limits=Limits(max_gpus=2)))
    assert answer.binding is Binding.MEMORY
    miss = answer.nearest_miss
    assert miss is not None
    assert miss.capacity_bytes == 600
    assert miss.phase in set(Phase)
    assert answer.needed_gpus is not None
    more = Limits(max_gpus=answer.needed_gpus)
    assert solved(a_question(600, limits=more)).plan.num_gpus == answer.needed_gpus
    fewer = Limits(max_gpus=answer.needed_gpus - 1)
    refused(a_question(600, limits=fewer))
    assert re.search(r"\d devices of \d", answer.nearest_change)


def test_a_larger_device_that_is_named_is_large_enough() -> None:
    """The promise is the least device of all, at any speed."""
    answer = refused(a_question(10))
    assert f"6 devices of {least_memory()} B, at any speed" in answer.nearest_change


def test_a_batch_that_never_divides_binds() -> None:
    """Three replicas of a batch of eight: no tuple, and the batch is named."""
    limits = Limits(max_gpus=8, data_degrees=(3,))
    answer = refused(a_question(9000, limits=limits))
    assert answer.binding in {Binding.BATCH, Binding.GPU_LIMIT}
    rules = answer.certificate.counts[2].decisions.rule
    assert rules == (Rule.BATCH_DOES_NOT_DIVIDE,)


def test_machines_that_are_not_there_bind() -> None:
    """One node of two devices: counts above two fail by the shape of their pods."""
    offers = (a_device(300, devices_per_node=2, nodes_available=1),)
    answer = refused(a_question(offers=offers, limits=Limits(max_gpus=4)))
    rules = {r for c in answer.certificate.counts[2:] for r in c.decisions.rule}
    assert Rule.POD_SHAPE in rules


def test_a_search_that_was_cut_off_proves_nothing() -> None:
    """Nothing binds that is known, and all that would do is a longer search."""
    limits = Limits(max_gpus=8, max_tuples=0)
    answer = refused(a_question(limits=limits))
    assert answer.binding is Binding.WORK_LIMIT
    assert answer.nearest_miss is None
    assert answer.needed_gpus is None
    assert "`limits.max_tuples` is 0" in answer.nearest_change
    assert solved(a_question()).plan.num_gpus > 1


def test_more_gpus_than_are_offered_is_told_so() -> None:
    """Four are fixed where two are to be had."""
    offers = (a_device(9000, devices_per_node=2, nodes_available=1),)
    answer = refused(a_question(offers=offers, override=Override(num_gpus=4)))
    assert answer.binding is Binding.GPU_LIMIT
    assert answer.nearest_change == "at most 2 devices, which is what the offers have"


def test_too_few_micro_batches_name_the_largest_that_is_small_enough() -> None:
    """Four stages of a batch of 8 need micro-batches of two; asking again holds."""
    fixed = Override(num_stages=4, micro_batch=4)
    answer = refused(a_question(9000, override=fixed))
    assert answer.binding is Binding.ENGINE
    assert "a micro-batch of at most 2" in answer.nearest_change
    again = a_question(9000, override=Override(num_stages=4, micro_batch=2))
    assert solved(again).plan.num_gpus == 4


def test_more_stages_than_layers_are_refused() -> None:
    """There is no such plan, whatever the devices."""
    with pytest.raises(InvalidFieldError, match="at most 10, one stage for each"):
        a_question(override=Override(num_stages=11), limits=Limits(max_gpus=16))


def test_a_large_number_of_samples_is_no_long_search() -> None:
    """A batch of 10^6 samples has many divisors, and is judged in seconds."""
    answer = solve(
        a_question(10**6, global_batch_size=10**6, limits=Limits(max_gpus=2))
    )
    assert isinstance(answer, Solution)


@pytest.mark.parametrize(
    ("memory_bytes", "override"), [(9000, Override(num_stages=3)), (600, Override())]
)
def test_devices_that_are_not_offered_are_said_to_do(
    memory_bytes: int, override: Override
) -> None:
    """Two are to be had; as many as are named have a plan, one fewer has none."""
    device = a_device(memory_bytes, devices_per_node=1, nodes_available=2)
    refusal = refused(a_question(offers=(device,), override=override))
    found = re.search(
        r"(\d) devices, if the offers had as many", refusal.nearest_change
    )
    assert found is not None
    offers = (replace(device, nodes_available=int(found[1])),)
    answer = solved(a_question(offers=offers, override=override))
    assert answer.plan.num_gpus == int(found[1])
    offers = (replace(device, nodes_available=int(found[1]) - 1),)
    refused(a_question(offers=offers, override=override))


@pytest.mark.parametrize(
    ("num_nodes", "fields"),
    [
        (1, {"override": Override(num_stages=5)}),
        (1, {"limits": Limits(max_gpus=8, pipeline_degrees=(6,))}),
        (0, {}),
        (5, {"limits": Limits(max_gpus=1)}),
    ],
)
def test_no_limit_is_passed_by_what_would_do(
    num_nodes: int, fields: dict[str, Any]
) -> None:
    """More than a limit allows is no answer, and asking for it is no error."""
    device = a_device(450, devices_per_node=1, nodes_available=num_nodes)
    question = a_question(offers=(device,), **fields)
    answer = refused(question)
    found = re.search(r"(\d+) devices, if", answer.nearest_change)
    assert num_nodes < int(found[1] if found else 99)
    assert not found or int(found[1]) <= question.limits.max_gpus
