"""Whole answers: goals, floors, overrides, limits, infeasible problems."""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from typing import Any

import pytest

from plimsoll_planner.engines import PLIMSOLL
from plimsoll_planner.errors import CannotPlanError, InvalidFieldError
from plimsoll_planner.records.certificate import Binding, Rule
from plimsoll_planner.records.document import from_text, to_text
from plimsoll_planner.records.engine import EngineTraits, Granularity, Schedule
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import (
    DeviceKind,
    LayerStatistics,
    TiedLayers,
    UncountedOperator,
)
from plimsoll_planner.records.objective import Goal, Objective
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.problem import BatchStatistics, Problem
from plimsoll_planner.records.solution import LEAST_GAP, Termination
from plimsoll_planner.search.alternatives import counts_above
from plimsoll_planner.search.answer import solve
from plimsoll_planner.text.counts import counted
from plimsoll_planner.text.explain import ending_text, explain
from plimsoll_planner.text.headline import headline_text
from tests.support.builders import an_offer
from tests.support.chains import Activation, Layer, chain_profile
from tests.support.questions import (
    BLOCK,
    CHAIN,
    a_device,
    a_question,
    least_memory,
    refused,
    solved,
)


def test_the_fewest_gpus_are_proven() -> None:
    """Each smaller count fails by its states or its least peak, with rank and bytes."""
    answer = solved(a_question())
    assert answer.termination is Termination.OPTIMAL
    assert answer.plan.num_gpus == answer.certificate.fewest_at_floor == 3
    assert answer.plan.peak_bytes is not None
    assert answer.plan.peak_bytes <= 900
    (*_, smaller, own) = answer.certificate.counts
    assert {c.verdict for c in answer.certificate.counts[:-1]} == {Verdict.FAILS}
    assert smaller.verdict is Verdict.FAILS
    assert smaller.nearest_miss is not None
    assert smaller.nearest_miss.capacity_bytes == 900
    assert smaller.nearest_miss.needed_bytes is not None
    assert smaller.nearest_miss.needed_bytes > 900
    assert Rule.SEARCHED in own.decisions.rule


def test_an_answer_survives_its_json() -> None:
    """Solution and Infeasible go out and come back equal."""
    for answer in (solve(a_question()), solve(a_question(10))):
        assert from_text(to_text(answer), type(answer)) == answer


@pytest.mark.parametrize(
    "goal", [Goal.MINIMIZE_GPUS, Goal.MINIMIZE_MEMORY, Goal.MAXIMIZE_THROUGHPUT]
)
def test_an_undecided_count_is_named_and_is_no_gap_of_another_goal(goal: Goal) -> None:
    """Something that may fit with one device fewer shows no gap of a plan.

    All goals had "something up to 33.3 % better", which was 1 - 2 / 3 devices.
    """
    profile = chain_profile(CHAIN, byte_error=0.1, device_kind=DeviceKind.EMULATED)
    # With caps a gap of its own may be left open, of the plans that were not walked.
    limits = Limits(max_gpus=8, in_flight_caps=False)
    objective = Objective(goal=goal)
    answer = solved(
        a_question(950, profile=profile, objective=objective, limits=limits)
    )
    (undecided,) = answer.certificate.undecided_counts
    fewest = answer.certificate.fewest_at_floor or 0
    assert answer.termination is Termination.WITHIN_GAP
    words = f"everything was searched; undecided: {counted(undecided, 'device')}"
    assert ending_text(answer) == words
    is_count = goal is Goal.MINIMIZE_GPUS
    assert answer.gap == pytest.approx(1 - undecided / fewest if is_count else 0.0)


def test_a_gap_too_small_to_be_told_leaves_the_least_memory_proven() -> None:
    """Bisection of the peak stops at 1/4096, and half of the answers were within a gap.

    The text was "something up to 0.0% better is not excluded".
    """
    objective = Objective(goal=Goal.MINIMIZE_MEMORY, rate_floor=0.7)
    profile = chain_profile(
        [in_units(layer, 10_000) for layer in CHAIN], device_kind=DeviceKind.EMULATED
    )
    answer = solved(a_question(9_000_000, profile=profile, objective=objective))
    assert 0 < answer.gap < LEAST_GAP
    assert answer.termination is Termination.OPTIMAL
    assert ending_text(answer) == "proven, every combination was searched"


def in_units(layer: Layer, num_bytes: int) -> Layer:
    """Layer of which each byte is so many, and bisection has more to do."""

    def scaled(part: Activation) -> Activation:
        return dataclasses.replace(
            part,
            saved=part.saved * num_bytes,
            forward=part.forward * num_bytes,
            backward=part.backward * num_bytes,
        )

    return dataclasses.replace(
        layer,
        parameters=layer.parameters * num_bytes,
        gradients=layer.gradients * num_bytes,
        optimizer=layer.optimizer * num_bytes,
        boundary=layer.boundary * num_bytes,
        kept=scaled(layer.kept),
        again=scaled(layer.again),
    )


def test_equal_questions_have_equal_answers() -> None:
    """Nothing but the wall clock differs from run to run."""
    answers = [to_text(solve(a_question(700), clock=lambda: 0.0)) for _ in range(2)]
    assert answers[0] == answers[1]


def test_within_the_count_the_least_memory_of_the_fast_plans_is_chosen() -> None:
    """More tolerance never costs memory, and none is the fastest plan there is."""
    roomy = a_question(1800, limits=Limits(max_gpus=4), global_batch_size=16)
    plans = {
        tolerance: solved(
            dataclasses.replace(
                roomy, objective=Objective(throughput_tolerance=tolerance)
            )
        ).plan
        for tolerance in (0.0, 0.2, 0.4)
    }
    peaks = [plan.peak_bytes or 0 for plan in plans.values()]
    rates = [plan.samples_per_s or 0 for plan in plans.values()]
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[0] > peaks[-1]
    assert all(
        rate >= (1 - tolerance) * rates[0] * (1 - 1e-9)
        for tolerance, rate in zip(plans, rates, strict=True)
    )


def test_a_rate_floor_costs_gpus_and_says_so() -> None:
    """Fewest at the floor and fewest at any speed are two answers."""
    needed = Objective(min_samples_per_s=0.12)
    answer = solved(a_question(objective=needed))
    assert answer.plan.samples_per_s is not None
    assert answer.plan.samples_per_s >= 0.12
    assert answer.plan.num_gpus > 3
    assert answer.certificate.fewest_at_any_speed == 3
    assert answer.certificate.rate_at_any_speed is not None
    slow = answer.certificate.counts[answer.plan.num_gpus - 2]
    assert slow.binding is Binding.RATE
    assert slow.nearest_miss is not None
    assert slow.nearest_miss.needed_samples_per_s == pytest.approx(0.12)


def test_memory_throughput_and_cost_have_their_own_best() -> None:
    """Each goal is at least as good in its own measure as all the others."""
    offers = (
        a_device(900, name="small", price_per_node_hour=Decimal(2), devices_per_node=2),
        a_device(
            2000, name="large", price_per_node_hour=Decimal(7), devices_per_node=2
        ),
    )
    question = a_question(offers=offers, num_steps=1000)
    plans = {
        goal: solved(dataclasses.replace(question, objective=Objective(goal=goal))).plan
        for goal in Goal
    }

    def cost(goal: Goal) -> float:
        plan = plans[goal]
        assert plan.step_time is not None
        assert plan.price_per_hour is not None
        return float(plan.price_per_hour) * plan.step_time.expected_s

    assert min(Goal, key=lambda goal: plans[goal].num_gpus) is Goal.MINIMIZE_GPUS
    assert min(cost(goal) for goal in Goal) == cost(Goal.MINIMIZE_COST)
    rates = {goal: plan.samples_per_s or 0 for goal, plan in plans.items()}
    assert max(rates.values()) == rates[Goal.MAXIMIZE_THROUGHPUT]
    peaks = {goal: plan.peak_bytes or 0 for goal, plan in plans.items()}
    assert min(peaks.values()) == peaks[Goal.MINIMIZE_MEMORY]


@pytest.mark.parametrize("goal", list(Goal))
def test_of_equals_the_cheaper_is_chosen(goal: Goal) -> None:
    """Two offers of the same machines, the dearer one first."""
    dear, cheap = (
        a_device(900, name=name, price_per_node_hour=Decimal(price), currency="USD")
        for name, price in (("dear", 2), ("cheap", 1))
    )
    answer = solved(
        a_question(offers=(dear, cheap), objective=Objective(goal=goal), num_steps=100)
    )
    assert answer.plan.stages[0].offer == 0
    assert [offer.name for offer in answer.plan.offers] == ["cheap"]
    for other in answer.alternatives:
        assert [offer.name for offer in other.offers] == ["cheap"]


def test_a_deadline_is_a_floor() -> None:
    """The cheapest plan that is done in time, and none where nothing is."""
    cheap = a_question(
        num_steps=100, objective=Objective(goal=Goal.MINIMIZE_COST, deadline_s=8000.0)
    )
    plan = solved(cheap).plan
    assert plan.step_time is not None
    assert plan.step_time.expected_s * 100 <= 8000.0
    hopeless = Objective(goal=Goal.MINIMIZE_COST, deadline_s=10.0)
    answer = refused(dataclasses.replace(cheap, objective=hopeless))
    assert answer.binding is Binding.RATE
    assert "a deadline of at least" in answer.nearest_change


def test_alternatives_are_a_front() -> None:
    """At most five, none of them beaten by the plan or by one another."""
    answer = solved(a_question())
    plans = [answer.plan, *answer.alternatives]
    assert 1 < len(plans) <= 6

    def score(place: int) -> tuple[float, ...]:
        plan = plans[place]
        assert plan.step_time is not None
        return (
            plan.num_gpus,
            plan.peak_bytes or 0,
            plan.step_time.expected_s,
            float(plan.price_per_hour or 0),
        )

    for one in range(len(plans)):
        for other in range(len(plans)):
            worse = all(a >= b for a, b in zip(score(one), score(other), strict=True))
            assert one == other or not worse


@pytest.mark.parametrize(
    "override",
    [
        Override(num_gpus=4),
        Override(num_stages=4),
        Override(data_degree=2, num_stages=2),
        Override(micro_batch=2),
        Override(cuts=(0, 3, 6)),
        Override(recomputed_layers=()),
        Override(recomputed_layers=tuple(range(1, 9)), num_stages=2),
    ],
)
def test_what_is_fixed_is_obeyed(override: Override) -> None:
    """Whatever is fixed, the plan has it."""
    plan = solved(a_question(1500, override=override)).plan
    mesh = plan.mesh
    assert mesh is not None
    assert override.num_gpus in {None, plan.num_gpus}
    assert override.num_stages in {None, mesh.pipeline}
    assert override.data_degree in {None, mesh.data}
    assert override.micro_batch in {None, plan.micro_batch}
    if override.cuts:
        firsts = tuple(stage.chunks[0].first_layer for stage in plan.stages)
        assert firsts == override.cuts
    if override.recomputed_layers is not None:
        again = {layer for stage in plan.stages for layer in stage.recomputed_layers}
        assert again == set(override.recomputed_layers)


def test_what_is_fixed_and_does_not_fit_is_obeyed_with_a_warning() -> None:
    """The plan is there to be run, marked as fixed, and the warning names the rank."""
    answer = solved(a_question(500, override=Override(cuts=(0, 1))))
    assert answer.termination is Termination.FIXED
    assert [stage.chunks[0].first_layer for stage in answer.plan.stages] == [0, 1]
    assert answer.warnings[0].startswith("what is fixed does not fit: rank ")
    assert answer.certificate.fewest_at_floor is None
    assert answer.is_proven_unfit


def test_what_could_be_had_without_what_is_fixed_is_told() -> None:
    """The fewest GPUs of the free search, whether what is fixed fits or not."""
    free = {bytes_: solved(a_question(bytes_)) for bytes_ in (500, 1500)}
    for bytes_, answer in free.items():
        assert answer.fewest_unfixed is None
        assert answer.certificate.is_proof
        fixed = solved(a_question(bytes_, override=Override(cuts=(0, 1))))
        assert fixed.fewest_unfixed == answer.certificate.fewest_at_floor


UNFIT_LAYERS = [dataclasses.replace(BLOCK, recomputable=False)] * 2
CONTRADICTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "cuts from 1 on": ({"cuts": (1, 2)}, "Override.cuts"),
    "cuts that fall": ({"cuts": (0, 4, 2)}, "Override.cuts"),
    "two numbers of stages": (
        {"cuts": (0, 4), "num_stages": 3},
        "Override.num_stages",
    ),
    "degrees of other GPUs": (
        {"num_gpus": 8, "num_stages": 2, "data_degree": 3},
        "Override.num_gpus",
    ),
    "stages that do not divide": (
        {"num_gpus": 4, "num_stages": 3},
        "Override.num_gpus",
    ),
    "a layer twice": ({"recomputed_layers": (1, 1)}, "Override.recomputed_layers"),
    "a cut behind the end": ({"cuts": (0, 99)}, "Problem.override.cuts"),
    "a layer behind the end": (
        {"recomputed_layers": (99,)},
        "Problem.override.recomputed_layers",
    ),
    "more than the limit": ({"num_gpus": 9}, "Problem.limits.max_gpus"),
    "another batch": ({"micro_batch": 3}, "Problem.global_batch_size"),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_an_override_that_contradicts_itself_is_one_clear_line(
    name: str,
) -> None:
    """The field is named before anything is searched."""
    fields, path = CONTRADICTIONS[name]
    with pytest.raises(InvalidFieldError) as found:
        a_question(override=Override(**fields))
    assert found.value.path == path


def test_a_layer_that_must_be_kept_cannot_be_fixed_to_recompute() -> None:
    """The layer is named."""
    profile = chain_profile(UNFIT_LAYERS, device_kind=DeviceKind.EMULATED)
    with pytest.raises(InvalidFieldError, match=r"which layer\.1 cannot"):
        a_question(profile=profile, override=Override(recomputed_layers=(1,)))


def engine_with(**can: Any) -> EngineTraits:
    """Build our engine with other capabilities."""
    return dataclasses.replace(PLIMSOLL, can=dataclasses.replace(PLIMSOLL.can, **can))


def test_an_engine_of_even_stages_gets_even_stages() -> None:
    """Ten layers on four stages of such an engine are 3, 3, 3, 1."""
    question = a_question(
        1500, engine=engine_with(uneven_stages=False), override=Override(num_stages=4)
    )
    plan = solved(question).plan
    assert [stage.chunks[0].first_layer for stage in plan.stages] == [0, 3, 6, 9]


def test_an_engine_that_may_have_few_micro_batches_gets_them() -> None:
    """M < P is a capability: without it such tuples fail at sight."""
    few = Override(num_stages=8, micro_batch=2)
    answer = refused(a_question(1500, override=few))
    assert answer.binding is Binding.ENGINE
    able = engine_with(fewer_micro_batches_than_stages=True)
    plan = solved(a_question(1500, override=few, engine=able)).plan
    assert plan.num_micro_batches == 4
    assert [stage.in_flight_cap for stage in plan.stages] == [4, 4, 4, 4, 4, 3, 2, 1]


def test_what_is_not_planned_yet_is_refused_in_words() -> None:
    """Granularity and length that the search does not know."""
    by_job = engine_with(recompute=Granularity.JOB)
    with pytest.raises(CannotPlanError, match="only recompute by layer"):
        solve(a_question(engine=by_job))
    long = chain_profile([BLOCK] * 4097, device_kind=DeviceKind.EMULATED)
    with pytest.raises(CannotPlanError, match="4097 layers, up to 4096"):
        solve(a_question(profile=long))


LIMITS_NOT_SEARCHED: dict[str, dict[str, Any]] = {
    "tensor_degrees: 2": {"tensor_degrees": (1, 2)},
    "schedules: GPipe": {"schedules": (Schedule.ONE_F_ONE_B, Schedule.GPIPE)},
}


@pytest.mark.parametrize("entry", LIMITS_NOT_SEARCHED)
def test_limits_that_are_not_searched_are_refused(entry: str) -> None:
    """A certificate lists its limits; none of them may have been passed over.

    They were accepted, ignored, and listed in a certificate with `proven`.
    """
    of_layers = tuple(one for one in Schedule if one is not Schedule.PLACED)
    able = engine_with(tensor_parallel=True, schedules=of_layers)
    limits = Limits(max_gpus=2, **LIMITS_NOT_SEARCHED[entry])
    with pytest.raises(CannotPlanError, match=rf"limits\.{entry} is not searched"):
        solve(a_question(engine=able, limits=limits))


def test_tied_ends_cost_less_on_one_rank() -> None:
    """One copy is saved, 120 bytes; the first gradient, 60, waits for the second."""
    tied = (TiedLayers(layers=(0, 9), parameter_bytes=60, gradient_bytes=60),)
    profile = chain_profile(CHAIN, tied=tied, device_kind=DeviceKind.EMULATED)
    alone = Limits(max_gpus=1)
    untied = chain_profile(CHAIN, device_kind=DeviceKind.EMULATED)
    both = [least_memory(profile=p, limits=alone) for p in (untied, profile)]
    assert both[0] - both[1] == 120 - 60


def test_assumptions_are_warned_about() -> None:
    """No calibration, no measured seconds, no replay: each is in a warning."""
    question = a_question(
        profile=chain_profile(CHAIN, timed=True),
        offers=(an_offer(),),
        engine=dataclasses.replace(PLIMSOLL, verified=False),
    )
    warnings = solved(question).warnings
    assert any("what H200 holds besides tensors was never" in text for text in warnings)
    (warning,) = (text for text in warnings if "was not replayed" in text)
    assert "`python -m plimsoll_profiler.ranks.self_check` tries it" in warning
    other = [dataclasses.replace(layer, flop=1e12) for layer in CHAIN]
    elsewhere = an_offer(device_product="H100")
    estimated = solved(a_question(profile=chain_profile(other), offers=(elsewhere,)))
    assert any("estimated from counted work" in text for text in estimated.warnings)
    uncounted = UncountedOperator(kind=0, operator="aten._cdist_forward")
    holed = dataclasses.replace(chain_profile(other), uncounted=(uncounted,))
    wider = solved(a_question(profile=holed, offers=(elsewhere,)))
    [line] = set(wider.warnings) - set(estimated.warnings)
    assert line.startswith("no FLOP formula for aten._cdist_forward in ")
    assert "rest on an assumption, from nothing to 16 times" in line


def test_a_micro_batch_that_matters_is_kept_and_named() -> None:
    """With BatchNorm: a person fixes it, for what could be had without as well.

    Or leaves it to the search in words; either way the answer names layer and number.
    """
    norm = LayerStatistics(kind=0, what="BatchNorm2d")
    profile = chain_profile(
        CHAIN, device_kind=DeviceKind.EMULATED, batch_statistics=(norm,)
    )
    fixed = Override(micro_batch=2, num_stages=1)
    for question in (
        a_question(profile=profile, override=fixed),
        a_question(profile=profile, batch_statistics=BatchStatistics.PER_MICRO_BATCH),
    ):
        found = solved(question)
        [line] = [text for text in found.warnings if "BatchNorm2d" in text]
        assert f"here over {found.plan.micro_batch}, on each replica" in line
    assert question.needed_override == Override()
    assert a_question(profile=profile, override=fixed).needed_override == Override(
        micro_batch=2
    )


def test_a_micro_batch_that_is_needed_makes_no_plan_by_hand() -> None:
    """A plan that does not fit is infeasible, as it is without BatchNorm.

    It was a plan of up to 548 MiB on a device of 300, marked as fixed by hand, and
    could be launched. Whoever fixes more than is needed still has a plan by hand.
    """
    norm = LayerStatistics(kind=0, what="BatchNorm2d")
    profile = chain_profile(
        CHAIN, device_kind=DeviceKind.EMULATED, batch_statistics=(norm,)
    )
    needed = Override(micro_batch=2)
    more = Override(micro_batch=2, num_stages=1)

    def asking(memory_bytes: int, override: Override) -> Problem:
        return a_question(memory_bytes, profile=profile, override=override)

    assert refused(asking(100, needed)).binding is Binding.MEMORY
    assert solved(asking(100, more)).termination is Termination.FIXED
    fits = solved(asking(900, needed))
    assert "by hand" not in " ".join([*explain(fits), headline_of(asking(900, needed))])
    assert "; given for batch statistics: micro-batch 2; " in " ".join(explain(fits))
    assert "(at any speed: " in headline_of(asking(900, needed))
    by_hand = solved(asking(9000, more))
    assert ending_text(by_hand) == "proven within what is fixed by hand"


def headline_of(question: Problem) -> str:
    """Answer in one line."""
    return headline_text(question, solved(question))


def test_ranks_that_share_cores_are_slower() -> None:
    """Two cores for eight devices: no faster than two devices' worth of work."""
    free = solved(a_question(offers=(a_device(900, devices_per_node=8),)))
    shared = solved(
        a_question(
            offers=(a_device(900, devices_per_node=8, concurrent_devices_per_node=1),)
        )
    )
    assert free.plan.samples_per_s is not None
    assert shared.plan.samples_per_s is not None
    assert shared.plan.samples_per_s < free.plan.samples_per_s


@pytest.mark.parametrize(
    ("fewest", "most", "counts"),
    [
        (2, 2, []),
        (5, 7, [7]),
        (3, 64, [6, 12, 24, 48, 64]),
        (9, 512, [36, 144, 512]),
    ],
)
def test_larger_counts_are_no_more_than_can_be_shown(
    fewest: int, most: int, counts: list[int]
) -> None:
    """Doubled, or in larger steps, and the most of all."""
    assert counts_above(fewest, most) == counts
