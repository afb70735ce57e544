"""Placements of the least memory: every mesh has one, also where none fits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plimsoll_planner.errors import CannotPlanError
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.strategy import Mesh
from plimsoll_planner.search.least_memory_plans import least_memory_plans
from plimsoll_planner.search.least_placements import least_placements
from plimsoll_planner.search.placed_tuples import Placer
from tests.support.placed_questions import a_placed_question, a_tight_question
from tests.support.questions import a_device


def test_each_mesh_and_offer_has_the_least_of_its_micro_batches() -> None:
    """The proof runs those of the first offer."""
    offers = a_device(2**25, name="small"), a_device(2**26, name="large")
    problem = a_placed_question(offers=offers)
    plans = list(least_placements(problem, 2))
    meshes = [Mesh(pipeline=1, data=2)] * 2 + [Mesh(pipeline=2)] * 2
    assert [plan.mesh for plan in plans] == meshes
    assert [plan.offers[0].name for plan in plans] == ["small", "large"] * 2
    for plan in plans:
        assert plan.mesh is not None
        place = offers.index(plan.offers[0])
        peaks = [
            one.placement.peak_bytes
            for one in Placer(problem).of_mesh(place, plan.mesh)
            if one.placement is not None
        ]
        assert len(peaks) == 2
        assert plan.peak_bytes == min(peaks)
    assert list(least_memory_plans(problem, 2)) == [plans[0], plans[2]]


def test_what_does_not_fit_is_there_too() -> None:
    """A device fewer than are needed: its plans are beyond the memory."""
    problem = a_tight_question(2)
    [plan] = least_placements(problem, 1)
    assert plan.placement is not None
    assert plan.placement.verdict is not Verdict.FITS
    assert (plan.peak_bytes or 0) > problem.offers[0].device_memory_bytes


def test_limits_batch_and_what_is_fixed_leave_meshes_out() -> None:
    """8 samples are not divided by 3; degrees that are not allowed are not placed."""
    problem = a_placed_question()
    meshes = [plan.mesh for plan in least_placements(problem, 3)]
    assert meshes == [Mesh(pipeline=3)]
    limits = Limits(max_gpus=4, data_degrees=(2,))
    within = least_placements(replace(problem, limits=limits), 4)
    assert [plan.mesh for plan in within] == [Mesh(pipeline=2, data=2)]
    assert list(least_placements(replace(problem, limits=limits), 3)) == []
    alone = replace(problem, override=Override(data_degree=1, micro_batch=2))
    [plan] = least_placements(alone, 2)
    assert (plan.mesh, plan.micro_batch) == (Mesh(pipeline=2), 2)


def test_without_graphs_there_is_nothing_to_place() -> None:
    """As in the search itself."""
    problem = a_placed_question()
    bare = replace(problem, profile=replace(problem.profile, graphs=()))
    with pytest.raises(CannotPlanError, match="no graph"):
        list(least_placements(bare, 1))
