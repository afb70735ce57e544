"""The plans that must die of memory are those of the least memory, of every mesh."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plimsoll_planner.records.strategy import Mesh

pytest.importorskip("numpy")

from plimsoll_planner.engines import PLIMSOLL
from plimsoll_planner.records.certificate import Binding
from plimsoll_planner.records.device_overhead import OverheadLine
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.objective import Objective
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Solution
from plimsoll_planner.search.answer import solve
from plimsoll_planner.search.least_memory_plans import least_memory_plans
from tests.support.builders import MIB, an_offer, an_overhead
from tests.support.chains import chain_profile
from tests.support.command_lines import BLOCK


def a_problem(memory_mib: int) -> Problem:
    """Ask for the fewest devices for eight blocks, at any speed."""
    offer = an_offer(
        device_kind=DeviceKind.EMULATED,
        device_memory_bytes=memory_mib * MIB,
        devices_per_node=8,
    )
    nothing = OverheadLine(constant_bytes=0)
    return Problem(
        profile=chain_profile(
            [BLOCK] * 8, byte_error=0.01, device_kind=DeviceKind.EMULATED
        ),
        overheads=(an_overhead(allocator=nothing, outside=nothing),),
        offers=(offer,),
        engine=PLIMSOLL,
        global_batch_size=8,
        limits=Limits(max_gpus=8),
        objective=Objective(rate_floor=0.0),
    )


@pytest.mark.parametrize("num_gpus", [1, 2, 4, 6])
def test_every_mesh_that_divides_the_batch_has_one(num_gpus: int) -> None:
    """Stages times replicas is the count, and each mesh stands once."""
    meshes = [plan.mesh for plan in least_memory_plans(a_problem(16), num_gpus)]
    divisors = [p for p in range(1, num_gpus + 1) if num_gpus % p == 0]
    wanted = [Mesh(pipeline=p, data=num_gpus // p) for p in divisors]
    assert meshes == [mesh for mesh in wanted if 8 % mesh.data == 0]


def test_what_is_fixed_stays_fixed() -> None:
    """Meshes that it excludes have none, and all others obey it."""
    fixed = Override(data_degree=1, micro_batch=2)
    problem = replace(a_problem(16), override=fixed)
    plans = list(least_memory_plans(problem, 4))
    assert [(plan.mesh, plan.micro_batch) for plan in plans] == [(Mesh(pipeline=4), 2)]
    cut = replace(problem, override=Override(cuts=(0, 1)))
    assert [plan.mesh for plan in least_memory_plans(cut, 4)] == [
        Mesh(pipeline=2, data=2)
    ]


def test_whole_nodes_do_not_matter_to_them() -> None:
    """They are chosen by memory, which refuses to count nodes."""
    problem = a_problem(16)
    limits = replace(problem.limits, whole_nodes=True)
    paid = least_memory_plans(replace(problem, limits=limits), 2)
    assert list(paid) == list(least_memory_plans(problem, 2))


@pytest.mark.parametrize("memory_mib", range(36, 200, 12))
def test_a_count_fails_for_memory_exactly_where_none_of_them_fits(
    memory_mib: int,
) -> None:
    """The certificate comes from bounds and programmes, these from plans."""
    problem = a_problem(memory_mib)
    answer = solve(problem)
    assert isinstance(answer, Solution)
    for count in answer.certificate.counts:
        plans = least_memory_plans(problem, count.num_gpus)
        least = min(
            max(p.device.lower_bytes for s in plan.stages for p in s.peaks)
            for plan in plans
        )
        fails = least > memory_mib * MIB
        is_for_memory = count.binding is Binding.MEMORY
        assert (count.verdict is Verdict.FAILS and is_for_memory) == fails
