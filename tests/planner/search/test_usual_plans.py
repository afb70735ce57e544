"""Plans that people use are laid out by their rules, and ours is never behind."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from plimsoll_planner.engines import PLIMSOLL
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import DeviceKind, Variant
from plimsoll_planner.records.objective import Objective
from plimsoll_planner.records.offer import Link
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.search.usual_plans import (
    HABITS,
    UsualRow,
    by_blocks,
    by_effective_layers,
    usual_plans,
)
from tests.support.builders import an_offer
from tests.support.chains import Activation, Layer, chain_profile, of_adam

BLOCK = replace(
    of_adam(64 * 16),
    boundary=64,
    kept=Activation(saved=900, keeps_input=True, forward=900, backward=1000),
    again=Activation(keeps_input=True, forward=900, backward=1900),
    forward_s=1.0,
    backward_s=2.0,
    recompute_s=1.0,
)


def test_torchtitan_counts_embedding_and_head_as_a_block_each() -> None:
    """80 blocks on 4 stages: 20, 21, 21 and 20 beside the ends, one fewer on those."""
    assert by_effective_layers(82, 4) == (0, 21, 42, 62)
    assert by_effective_layers(82, 1) is None
    assert by_effective_layers(3, 4) is None


def test_megatron_has_as_many_blocks_on_each_stage() -> None:
    """Where a number of stages does not divide them, nobody cuts so."""
    assert by_blocks(82, 4) == (0, 21, 41, 61)
    assert by_blocks(82, 1) == (0,)
    assert by_blocks(82, 3) is None
    assert by_blocks(2, 1) is None


def half_of(layer: Layer) -> Layer:
    """Layer on one of two ranks."""
    return replace(
        layer,
        parameters=layer.parameters // 2,
        gradients=layer.gradients // 2,
        optimizer=layer.optimizer // 2,
        numbers=layer.numbers // 2,
        forward_s=0.6,
        backward_s=1.2,
        recompute_s=0.6,
    )


def a_problem(memory_bytes: int) -> Problem:
    """Ask for ten equal layers on up to eight devices, four of which are on a node."""
    kind = DeviceKind.EMULATED
    parts = {Variant(tensor_degree=2): [half_of(BLOCK)] * 10}
    link = Link(bandwidth_bytes_per_s=1e6)
    offer = an_offer(
        device_kind=kind,
        device_memory_bytes=memory_bytes,
        devices_per_node=4,
        link_in_node=link,
        link_between_nodes=link,
    )
    return Problem(
        profile=chain_profile([BLOCK] * 10, split=parts, device_kind=kind),
        offers=(offer,),
        engine=PLIMSOLL,
        global_batch_size=8,
        limits=Limits(max_gpus=8),
        objective=Objective(rate_floor=0.1),
    )


def found_by(rows: list[UsualRow], name: str) -> UsualRow:
    """The row of a habit."""
    [row] = (row for row in rows if row.name == name)
    return row


@pytest.mark.parametrize("memory_bytes", [60_000, 90_000, 200_000])
def test_each_habit_has_its_own_plan(memory_bytes: int) -> None:
    """Its degrees, cuts and levels; what does not fit on eight is said to fit nowhere.

    Ours is on as many GPUs, and no slower than any of them.
    """
    rows = usual_plans(a_problem(memory_bytes))
    for habit in HABITS:
        row = found_by(rows, habit.name)
        if row.found is None:
            continue
        mesh, found = row.found.candidate.mesh, row.found
        assert mesh.tensor == (2 if habit.is_split else 1)
        assert found.cuts == habit.cuts(10, mesh.pipeline)
        assert row.peak_bytes <= memory_bytes
        assert {one.stated.get("sharding") for one in found.choices} == {
            habit.sharding if mesh.data > 1 else None
        }
        recomputed = {layer for layers in found.recomputed for layer in layers}
        assert recomputed == set(range(1, 9))
        [ours] = (
            other
            for other in rows
            if other.name == "ours"
            and other.found is not None
            and other.found.candidate.num_gpus == mesh.num_gpus
        )
        assert ours.samples_per_s >= row.samples_per_s


def test_a_habit_is_on_the_fewest_gpus_that_it_fits_on() -> None:
    """With room for all on one device, plain FSDP is one rank, and T needs two."""
    rows = usual_plans(a_problem(10**6))
    gpus = {
        row.name: row.found.candidate.num_gpus
        for row in rows
        if row.found is not None and row.name != "ours"
    }
    assert gpus == {"fsdp": 1, "fsdp-tp": 2, "torchtitan-3d": 4, "megatron-3d": 2}


def test_each_row_is_of_the_cheapest_offer_of_a_machine() -> None:
    """One that is priced twice; ours, on the fewest as well, is there beside each."""
    problem = a_problem(90_000)
    [offer] = problem.offers
    priced = replace(offer, price_per_node_hour=Decimal(8), currency="USD")
    spot = replace(priced, name="spot", price_per_node_hour=Decimal(2))
    rows = usual_plans(replace(problem, offers=(priced, spot)))
    found = [row for row in rows if row.found is not None]
    assert {row.price_per_hour for row in found} <= {Decimal(2), Decimal(4)}
    assert len(found) > len(HABITS)


def test_habits_have_nothing_that_is_fixed_of_our_plans() -> None:
    """Options that make no sense for them, or would change what they are."""
    problem = a_problem(90_000)
    fixed = Override(
        num_stages=2, data_degree=1, in_flight_caps=(2, 1), recomputed_layers=()
    )
    usual, beside = (
        [row for row in usual_plans(one) if row.name != "ours"]
        for one in (problem, replace(problem, override=fixed))
    )
    assert usual == beside
