"""Optimizer state divided over replicas: bytes by hand, and when it cannot be had."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from plimsoll_planner.engines import PLIMSOLL
from plimsoll_planner.errors import CannotPlanError, InvalidFieldError
from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.memory.chain_bytes import ChainBytes, chain_bytes
from plimsoll_planner.records.engine import Sharding
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import DeviceKind, Precision
from plimsoll_planner.records.offer import Link
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.plan import Stage
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Solution
from plimsoll_planner.records.strategy import Mesh, Strategy
from plimsoll_planner.search.answer import solve
from plimsoll_planner.techniques import absent, stage_choices
from plimsoll_planner.techniques.divided_state import DividedOptimizer
from tests.support.builders import a_problem, a_recipe, an_offer
from tests.support.chains import Layer, chain_profile, of_adam
from tests.support.questions import a_device, a_question

LONG, SHORT = of_adam(63 * 16), of_adam(48)
STATELESS = Layer(
    parameters=4 * 1024, gradients=4 * 1024, optimizer_transient=12, numbers=1024
)
"""Stepped on by SGD: a step takes a few scalars, and nothing for each number."""
UP_TO = (Sharding.NONE, Sharding.OPTIMIZER)


def a_chain(*layers: Layer, bound: Bound = Bound.EXPECTED) -> ChainBytes:
    """Bytes of layers in fp32, of one sample."""
    recipe = a_recipe(precision=Precision.FP32)
    return chain_bytes(chain_profile(layers, recipe=recipe), bound, 1)


def asked(**fields: Any) -> Problem:
    """Ask for layers that can be divided, on emulated devices."""
    kind = DeviceKind.EMULATED
    recipe = fields.pop("recipe", a_recipe(precision=Precision.FP32))
    profile = chain_profile([LONG] * 4, recipe=recipe, device_kind=kind)
    offers = (a_device(10**6),)
    return a_question(profile=profile, offers=offers, **fields)


def test_a_layer_by_hand() -> None:
    """D = 4: 1,008 numbers are padded to 1,024, of which a replica owns 256.

    Parameters and gradients stay whole, 4 bytes each; Adam's 8 bytes are of 256, and
    there is a count of steps.
    """
    whole = a_chain(LONG)
    divided = DividedOptimizer(4, in_place=True).bytes(whole)
    assert divided.parameter.tolist() == divided.gradient.tolist() == [4 * 1024]
    assert divided.optimizer.tolist() == [8 * 256 + 4]
    assert divided.optimizer_transient.tolist() == [4 * 256]


def test_what_is_exchanged() -> None:
    """In place half of all-reduces of both; with gloo all of one, and half of one."""
    whole = a_chain(LONG)
    in_place, apart = (
        int(DividedOptimizer(2, in_place=way).bytes(whole).exchanged[0])
        for way in (True, False)
    )
    assert in_place == 4 * 1008
    assert apart == 4 * 1008 * 3 // 2


def test_a_layer_of_too_few_numbers_stays_whole() -> None:
    """48 numbers are three vectors: two replicas divide them, four do not."""
    whole = a_chain(SHORT)
    for degree, state in ((2, 8 * 64 + 8 * 32 + 4), (4, int(whole.state[0]))):
        divided = DividedOptimizer(degree, in_place=True).bytes(whole)
        assert divided.state.tolist() == [state]


@pytest.mark.parametrize("degree", [2, 3, 5, 8])
@pytest.mark.parametrize("layer", [LONG, SHORT, STATELESS])
def test_bounds_enclose_what_is_expected(layer: Layer, degree: int) -> None:
    """Lower bytes are no more than expected ones, and those no more than upper ones."""
    choice = DividedOptimizer(degree, in_place=True)
    low, middle, high = (choice.bytes(a_chain(layer, bound=bound)) for bound in Bound)
    assert low.state[0] <= middle.state[0] <= high.state[0]
    assert low.optimizer_transient[0] <= middle.optimizer_transient[0]
    assert middle.optimizer_transient[0] <= high.optimizer_transient[0]


def choices_of(problem: Problem, data_degree: int) -> int:
    """Number of choices that a stage has with so many replicas.

    Gradients and parameters stay whole.
    """
    problem = replace(problem, limits=replace(problem.limits, shardings=UP_TO))
    chains = [a_chain(LONG, LONG, bound=bound) for bound in Bound]
    strategy = Strategy(mesh=Mesh(pipeline=1, data=data_degree))
    return len(stage_choices(strategy, problem, chains))


def test_in_place_nothing_is_searched_whole() -> None:
    """Divided it is nowhere worse; with gloo the exchange takes longer, so both are."""
    on_gpus = a_problem(profile=chain_profile([LONG] * 4))
    assert choices_of(on_gpus, 2) == choices_of(on_gpus, 1) == 1
    assert choices_of(asked(), 2) == 2


def test_whole_state_on_the_host_is_searched_where_parts_are_filled_up() -> None:
    """1,008 numbers are 1,024 for 4 replicas; a device without their state has them."""
    recipe = a_recipe(precision=Precision.FP32)
    link = Link(bandwidth_bytes_per_s=1e9)
    problem = a_problem(
        profile=chain_profile([LONG] * 4, recipe=recipe),
        offers=(an_offer(host_memory_bytes=2**40, link_to_host=link),),
        engine=PLIMSOLL,
        limits=Limits(max_gpus=8, shardings=UP_TO),
    )
    chains = [chain_bytes(problem.profile, bound, 1) for bound in Bound]
    found = {
        degree: min(
            int(choice.bytes(chains[0]).state.sum())
            for choice in stage_choices(
                Strategy(mesh=Mesh(pipeline=1, data=degree)), problem, chains
            )
        )
        for degree in (3, 4)
    }
    assert found == {3: 4 * 8 * 1008, 4: 4 * 8 * 1008}


def test_a_plan_states_what_is_divided() -> None:
    """Each stage has its level; one replica divides nothing."""
    for replicas, level in ((2, Sharding.OPTIMIZER), (1, Sharding.NONE)):
        fixed = Override(num_stages=2, data_degree=replicas, sharding=level)
        answer = solve(asked(override=fixed))
        assert isinstance(answer, Solution)
        stages: tuple[Stage, ...] = answer.plan.stages
        assert {stage.sharding for stage in stages} == {level}


MIXING = a_recipe(precision=Precision.FP32, optimizer="Muon", elementwise=False)


def test_an_optimizer_that_mixes_numbers_is_never_divided() -> None:
    """The certificate names it; who insists is refused."""
    reason = "sharded optimizer (Muon mixes numbers of a tensor)"
    assert reason in tuple(absent(asked(recipe=MIXING)))
    fixed = Override(data_degree=2, sharding=Sharding.OPTIMIZER)
    with pytest.raises(CannotPlanError, match="asked for, but Muon mixes numbers"):
        solve(asked(recipe=MIXING, override=fixed))


def test_frozen_weights_are_named_that_no_replica_divides() -> None:
    """They are more bytes than the numbers that train."""
    reason = "dividing frozen weights (each replica holds all of them)"
    problem = asked()
    assert reason not in tuple(absent(problem))
    frozen = replace(LONG, parameters=LONG.parameters + 1)
    profile = chain_profile(
        [LONG, frozen], recipe=problem.profile.recipe, device_kind=DeviceKind.EMULATED
    )
    assert reason in tuple(absent(replace(problem, profile=profile)))


def test_a_profile_of_before_says_so() -> None:
    """It has no columns for that, so nothing is divided."""
    missing = [name for name in absent(a_question()) if "profile again" in name]
    assert [name.partition(" (")[0] for name in missing] == [
        "sharded optimizer",
        "sharded gradients and parameters",
    ]


def test_limits_that_leave_nothing_else_are_refused_where_it_cannot_be_had() -> None:
    """A limit of divided state alone on an optimizer that mixes numbers."""
    limits = Limits(max_gpus=4, shardings=(Sharding.OPTIMIZER,))
    with pytest.raises(CannotPlanError, match="asked for, but"):
        solve(asked(recipe=MIXING, limits=limits))


def test_a_level_that_the_engine_lacks_is_refused() -> None:
    """With the levels that it has."""
    can = replace(PLIMSOLL.can, shardings=UP_TO, shardings_with_pipeline=UP_TO)
    engine = replace(PLIMSOLL, can=can)
    with pytest.raises(InvalidFieldError, match="what plimsoll runs: none, optimizer"):
        asked(engine=engine, override=Override(sharding=Sharding.PARAMETERS))


@pytest.mark.parametrize(
    ("caps", "rule"),
    [
        ((1, 2), "the same or one fewer"),
        ((3, 1), "the same or one fewer"),
        ((2, 2), "1 on the last stage"),
        ((2, 1, 1), "one for each of 2 stages"),
    ],
)
def test_numbers_in_flight_that_no_schedule_has(
    caps: tuple[int, ...], rule: str
) -> None:
    """They rise, or fall by two, or do not end with 1, or are not one for each."""
    with pytest.raises(InvalidFieldError, match=rule):
        Override(num_stages=2, in_flight_caps=caps)
