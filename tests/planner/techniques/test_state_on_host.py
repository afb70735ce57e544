"""Optimizer state on the host: bytes and seconds by hand, and when it cannot be had."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from plimsoll_planner.errors import CannotPlanError, InvalidFieldError
from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.memory.chain_bytes import ChainBytes, chain_bytes
from plimsoll_planner.memory.engine_holdings import holding_factors
from plimsoll_planner.memory.host_memory import copied_bytes, rank_bytes, share
from plimsoll_planner.memory.stage_peaks import stage_bytes
from plimsoll_planner.records.certificate import Binding, Rule
from plimsoll_planner.records.engine import OptimizerHome
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import DeviceKind, Precision, Recipe
from plimsoll_planner.records.offer import Link, Offer
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Infeasible, Solution
from plimsoll_planner.search.answer import solve
from plimsoll_planner.techniques import absent
from plimsoll_planner.techniques.divided_state import DividedOptimizer
from plimsoll_planner.techniques.state_on_host import OnHost
from plimsoll_planner.timing.stage_runs import EndSeconds
from tests.support.builders import a_recipe, an_engine
from tests.support.chains import Activation, Layer, chain_profile, of_adam
from tests.support.questions import a_device, a_question

LAYER = of_adam(1024, step_s=1.0, host_step_s=4.0)
FP32 = a_recipe(precision=Precision.FP32)
IN_FP32 = OnHost(copied_bytes(FP32), sums_are_widest=True)
LINK = Link(bandwidth_bytes_per_s=1024.0)
DEVICE = 38_000
PROCESS = 2**30
"""Upper bound of what a process takes of its machine."""


def a_chain(
    layer: Layer = LAYER, bound: Bound = Bound.EXPECTED, recipe: Recipe = FP32
) -> ChainBytes:
    """Bytes of two layers, of one sample."""
    return chain_bytes(chain_profile([layer] * 2, recipe=recipe), bound, 1)


def hosted(room_bytes: int, num_devices: int = 4, **fields: Any) -> Offer:
    """A machine with so many bytes for each device, besides what a process takes."""
    memory = (PROCESS + room_bytes + DEVICE) * num_devices
    given = {"host_memory_bytes": memory, "link_to_host": LINK} | fields
    offer: Offer = a_device(DEVICE, devices_per_node=num_devices, **given)
    return offer


def asked(offer: Offer, recipe: Recipe = FP32, **fields: Any) -> Problem:
    """Ask for four layers, of which a device holds two with the optimizer, or all."""
    profile = chain_profile([LAYER] * 4, recipe=recipe, device_kind=offer.device_kind)
    return a_question(profile=profile, offers=(offer,), **fields)


def test_a_layer_by_hand() -> None:
    """The device keeps 8 of 16 bytes a number; the host has Adam's, and two copies."""
    on_host = IN_FP32.bytes(a_chain())
    assert on_host.state.tolist() == [8 * 1024] * 2
    assert on_host.host.tolist() == [8 * 1024 + 4 + 8 * 1024] * 2
    assert on_host.optimizer_transient.max() <= 512


def test_replicas_that_divide_it_keep_a_part_each() -> None:
    """D = 4: a quarter of the numbers is stepped on, and one count of steps."""
    divided = DividedOptimizer(4, in_place=True).bytes(a_chain())
    on_host = IN_FP32.bytes(divided)
    assert on_host.owned.tolist() == [256, 256]
    assert on_host.host.tolist() == [16 * 256 + 4] * 2
    assert on_host.state.tolist() == [8 * 1024] * 2


@pytest.mark.parametrize(("sums", "copied"), [(Precision.FP32, 6), (Precision.BF16, 4)])
def test_smaller_types_are_copied_as_they_are(sums: Precision, copied: int) -> None:
    """In bf16 masters are optimizer state; gradients go over in the type of sums."""
    recipe = replace(FP32, precision=Precision.BF16, gradient_precision=sums)
    assert copied_bytes(recipe) == copied


def test_what_a_rank_takes_of_its_machine() -> None:
    """Process, state, and a checkpoint of parameters and state; no less for one sum."""
    stages = stage_bytes(IN_FP32.bytes(a_chain()), holding_factors(an_engine().holds))
    kept, saved = 2 * (16 * 1024 + 4), 2 * (12 * 1024 + 4)
    most = rank_bytes(stages, DeviceKind.EMULATED, FP32, Bound.UPPER, 1024)
    assert most[0, 2] == PROCESS + kept + saved
    low = rank_bytes(stages, DeviceKind.EMULATED, FP32, Bound.LOWER, 1024)
    assert low[0, 2] == 2**28 + kept
    in_bf16 = replace(FP32, precision=Precision.BF16)
    assert (
        rank_bytes(stages, DeviceKind.EMULATED, in_bf16, Bound.UPPER, 1024)[0, 2]
        > most[0, 2]
    )


def test_a_device_has_an_equal_share_of_its_machine() -> None:
    """None of it where nobody knows how large it is, or how to come there."""
    assert share(hosted(0, 4)) == PROCESS
    assert share(replace(hosted(0), host_memory_bytes=None)) == 0
    assert share(replace(hosted(0), link_to_host=None)) == 0


@pytest.mark.parametrize(
    ("bound", "sharing", "seconds"),
    [(Bound.LOWER, 8, 4.0), (Bound.EXPECTED, 1, 7.0), (Bound.UPPER, 8, 28.0)],
)
def test_seconds(bound: Bound, sharing: int, seconds: float) -> None:
    """At best all three overlap; else copies of all who share a link, and the step."""
    end = EndSeconds(
        exchange=np.array(0.0),
        optimizer=np.array(1.0),
        host_step=np.array(4.0),
        to_host=np.array(2.0),
        from_host=np.array(1.0),
        sharing=sharing,
    )
    assert float(IN_FP32.end_s(end, bound).total) == seconds


def solved(problem: Problem) -> Solution:
    """The plan, which there is."""
    answer = solve(problem)
    assert isinstance(answer, Solution)
    return answer


def test_half_as_many_devices_are_enough() -> None:
    """Where the host has room, four layers stand on one device, else on two."""
    at_any_speed = Limits(max_gpus=4)
    found = [
        solved(asked(offer, limits=at_any_speed)).plan
        for offer in (hosted(10**6), replace(hosted(10**6), link_to_host=None))
    ]
    assert [plan.num_gpus for plan in found] == [1, 2]
    (stage,) = found[0].stages
    assert stage.optimizer_home is OptimizerHome.HOST
    assert stage.host_bytes == 4 * (16 * 1024 + 4)


def test_an_optimizer_that_cannot_step_there_stays_on_the_device() -> None:
    """The certificate names it; who insists is refused."""
    recipe = replace(FP32, optimizer="Adam8bit", steps_on_host=False)
    problem = asked(hosted(10**6), recipe=recipe, limits=Limits(max_gpus=4))
    reason = "Adam8bit cannot step on tensors of the CPU"
    assert f"optimizer on the host ({reason})" in tuple(absent(problem))
    homes = {stage.optimizer_home for stage in solved(problem).plan.stages}
    assert homes == {OptimizerHome.DEVICE}
    fixed = replace(problem, override=Override(optimizer_home=OptimizerHome.HOST))
    with pytest.raises(CannotPlanError, match=f"is asked for, but {reason}"):
        solve(fixed)


def test_pods_ask_for_what_their_ranks_take() -> None:
    """One pod of two ranks, on whose host both keep state and checkpoints."""
    fixed = Override(num_stages=2, data_degree=1, optimizer_home=OptimizerHome.HOST)
    plan = solved(asked(hosted(10**6), override=fixed)).plan
    kept, saved = 4 * (16 * 1024 + 4), 4 * (12 * 1024 + 4)
    assert plan.pods.gpus_per_pod == 2
    assert plan.pods.host_memory_bytes_per_pod == 2 * PROCESS + kept + saved


def test_a_host_that_is_too_small_is_a_reason_of_its_own() -> None:
    """One device would be enough; the machine's memory is not, and is named."""
    limits = Limits(max_gpus=1)
    little = replace(hosted(0), host_memory_bytes=4 * (2**28 + 65_000 + DEVICE))
    answer = solve(asked(little, limits=limits))
    assert isinstance(answer, Infeasible)
    assert answer.binding is Binding.HOST_MEMORY
    (count,) = answer.certificate.counts
    assert Rule.HOST_MEMORY in count.decisions.rule
    miss = count.nearest_miss
    assert miss is not None
    assert miss.needed_bytes == 2**28 + 4 * (16 * 1024 + 4)
    assert miss.capacity_bytes == 2**28 + 65_000


@pytest.mark.parametrize("device_bytes", [9_000, 16_000, 60_000, 10**6])
def test_hosts_without_room_are_named_beside_devices_of_any_size(
    device_bytes: int,
) -> None:
    """No number of a certificate stands for what is not possible."""
    layer = replace(LAYER, boundary=500, kept=Activation(saved=3_000, keeps_input=True))
    profile = chain_profile([layer] * 4, recipe=FP32, device_kind=DeviceKind.EMULATED)
    bare = a_device(
        device_bytes, devices_per_node=4, host_memory_bytes=8_000, link_to_host=LINK
    )
    fixed = Override(optimizer_home=OptimizerHome.HOST)
    answer = solve(a_question(profile=profile, offers=(bare,), override=fixed))
    assert isinstance(answer, Infeasible)
    for count in answer.certificate.counts:
        assert max(count.decisions.least_lower_bytes) < 10**9
        miss = count.nearest_miss
        assert miss is None or (miss.needed_bytes or 0) < 10**9
    rules = {rule for one in answer.certificate.counts for rule in one.decisions.rule}
    assert (Rule.HOST_MEMORY in rules) == (device_bytes > 9_000)


def test_machines_with_more_memory_are_named_where_they_would_do() -> None:
    """Without a plan the host binds, though a count is open; four times it is enough.

    Lower bounds of two ranks are within the share, upper ones are not.
    """
    room = 4 * (16 * 1024 + 4)
    little = replace(
        hosted(0), host_memory_bytes=4 * (2**28 + room // 2 + 1_000 + DEVICE)
    )
    fixed = Override(optimizer_home=OptimizerHome.HOST)
    problem = asked(little, limits=Limits(max_gpus=2), override=fixed)
    answer = solve(problem)
    assert isinstance(answer, Infeasible)
    assert answer.binding is Binding.HOST_MEMORY
    assert answer.certificate.counts[1].binding is None
    assert answer.nearest_miss is not None
    assert "if machines had 4 times their memory" in answer.nearest_change
    enough = replace(little, host_memory_bytes=4 * (little.host_memory_bytes or 0))
    assert isinstance(solve(replace(problem, offers=(enough,))), Solution)


def test_stages_may_differ() -> None:
    """Three layers fit a device by the host alone; the fourth keeps its state there."""
    fixed = Override(num_stages=2, data_degree=1, cuts=(0, 3))
    plan = solved(asked(hosted(10**6), override=fixed)).plan
    homes = [stage.optimizer_home for stage in plan.stages]
    assert homes == [OptimizerHome.HOST, OptimizerHome.DEVICE]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (
            {"limits": Limits(max_gpus=4, optimizer_homes=(OptimizerHome.DEVICE,))},
            "limits",
        ),
        ({"override": Override(optimizer_home=OptimizerHome.DEVICE)}, "is device"),
    ],
)
def test_a_certificate_names_why_it_is_left_out(
    fields: dict[str, Any], reason: str
) -> None:
    """Each reason stands beside the name."""
    (text,) = (
        one
        for one in absent(asked(hosted(10**6), **fields))
        if one.startswith("optimizer on the host")
    )
    assert reason in text


def test_what_is_demanded_and_cannot_be_had_is_refused() -> None:
    """No offer knows its host; an engine cannot; never is it left out in silence."""
    fixed = Override(optimizer_home=OptimizerHome.HOST)
    unknown = replace(hosted(0), host_memory_bytes=None)
    with pytest.raises(CannotPlanError, match="no offer states the memory"):
        solve(asked(unknown, override=fixed))
    engine = an_engine()
    with pytest.raises(InvalidFieldError, match="optimizer_home"):
        asked(hosted(0), override=fixed, engine=engine)


def test_an_offer_without_a_host_fails_where_one_is_demanded() -> None:
    """Of two offers the one that knows its machine's memory is planned on."""
    fixed = Override(optimizer_home=OptimizerHome.HOST)
    bare = replace(hosted(0), name="bare", link_to_host=None)
    problem = replace(
        asked(hosted(10**6), override=fixed), offers=(bare, hosted(10**6))
    )
    answer = solved(problem)
    assert answer.plan.offers[0].name != "bare"
    (count,) = answer.certificate.counts
    rules = zip(count.decisions.offer, count.decisions.rule, strict=True)
    assert (0, Rule.HOST_MEMORY) in rules
