"""Tensor groups: tuples, plans and certificates, by hand and by enumeration."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_planner.engines import PLIMSOLL, PLIMSOLL_ON_TORCH_2_11
from plimsoll_planner.errors import CannotPlanError, InvalidFieldError
from plimsoll_planner.memory.bounds import Bound
from plimsoll_planner.records.certificate import Binding, Certificate, Rule
from plimsoll_planner.records.document import from_text, to_text
from plimsoll_planner.records.interval import ByteInterval
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import (
    DeviceKind,
    ModelProfile,
    NotSplit,
    Sequences,
    Variant,
)
from plimsoll_planner.records.objective import Objective
from plimsoll_planner.records.offer import Link
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Infeasible, Solution
from plimsoll_planner.search.answer import solve
from plimsoll_planner.search.baselines import compare
from plimsoll_planner.search.breakdown import breakdown
from plimsoll_planner.search.explore import Explorer
from plimsoll_planner.search.least_memory_plans import least_memory_plans
from plimsoll_planner.search.replayed import Disagreement, widened
from plimsoll_planner.search.timeline import timeline
from plimsoll_planner.search.variants import searched_variants
from plimsoll_planner.text.explain import explain
from tests.planner.search.test_verdicts import check, judge_all
from tests.support.brute_force import ROUNDING
from tests.support.chains import Activation, Layer, Messages, chain_profile
from tests.support.drawing import draws
from tests.support.enumerated_costs import Mesh
from tests.support.enumerator import Judge, meshes
from tests.support.questions import a_device, a_question
from tests.support.random_questions import asked, of_some_kind, split

UNSPLIT_ENGINE = replace(PLIMSOLL, can=replace(PLIMSOLL.can, tensor_parallel=False))
ONE = Variant()
TOO_LARGE = "layer.0"
TWO = Variant(tensor_degree=2)
BOTH = Variant(tensor_degree=2, sequence_parallel=True)
LAYER = Layer(
    parameters=100,
    boundary=8,
    kept=Activation(saved=20, forward=20, backward=20),
    recomputable=False,
)
HALF = Layer(
    parameters=50,
    boundary=8,
    kept=Activation(saved=12, forward=12, backward=12),
    recomputable=False,
    forward_s=0.5,
    backward_s=1.0,
    forward_messages=Messages(of_sample=10),
    backward_messages=Messages(of_sample=10),
)


def of_two(layers: int = 1, both: Layer | None = None) -> ModelProfile:
    """Build a chain whose layers tensor groups of 2 split; `both`: with sequences."""
    variants = {TWO: [HALF] * layers}
    if both is not None:
        variants[BOTH] = [both] * layers
    return chain_profile(
        [LAYER] * layers, split=variants, device_kind=DeviceKind.EMULATED
    )


def asking(memory_bytes: int, devices_per_node: int = 2, **fields: Any) -> Problem:
    """Ask for a model of one layer, in the fewest devices at any speed."""
    defaults: dict[str, Any] = {
        "profile": of_two(),
        "engine": PLIMSOLL,
        "offers": (a_device(memory_bytes, devices_per_node=devices_per_node),),
        "global_batch_size": 4,
        "limits": Limits(max_gpus=2),
        "objective": Objective(rate_floor=0.0),
    }
    return a_question(**(defaults | fields))


def test_a_layer_that_is_too_large_is_split() -> None:
    """120 bytes on one device, 62 on each of two, where stages and replicas are 120."""
    answer = solve(asking(100))
    assert isinstance(answer, Solution)
    (stage,) = answer.plan.stages
    assert (stage.variant, stage.ranks, stage.data_degree) == (TWO, (0, 1), 1)
    assert str(answer.plan.mesh) == "1 x 1 x 2"
    assert answer.plan.pods.gpus_per_pod == 2
    assert stage.peaks[0].allocated.upper_bytes == 62
    certificate = answer.certificate
    assert certificate.is_proof
    assert not any("tensor" in name for name in certificate.space.without)
    assert certificate.space.limits.tensor_degrees == (1, 2)
    assert from_text(to_text(answer), Solution) == answer
    lines = "\n".join(explain(answer))
    assert "tensor degree 1, 2" in lines
    assert "a tensor degree (with `sp`" in lines


def test_a_tensor_group_stays_in_its_node() -> None:
    """On nodes of one device both are there, and may not share a layer."""
    answer = solve(asking(100, devices_per_node=1))
    assert isinstance(answer, Infeasible)
    rules = answer.certificate.counts[1].decisions.num_decided()
    assert rules[Rule.TENSOR_GROUP] == 3
    fixed = Override(tensor_degree=2)
    alone = solve(asking(100, devices_per_node=1, override=fixed))
    assert isinstance(alone, Infeasible)
    assert alone.binding is Binding.TENSOR_GROUP
    assert alone.nearest_change.startswith("none was found")
    roomy = solve(asking(1000, devices_per_node=1, override=fixed))
    assert isinstance(roomy, Infeasible)
    assert roomy.nearest_change == "a tensor degree of 1, on 1 device"


def test_a_larger_tensor_degree_would_do() -> None:
    """Where it is left out by a limit the answer says which would help, and why."""
    limits = Limits(max_gpus=2, tensor_degrees=(1,))
    answer = solve(asking(100, limits=limits))
    assert isinstance(answer, Infeasible)
    assert "a tensor degree of 2, on 2 devices" in answer.nearest_change
    assert answer.nearest_miss is not None
    assert answer.nearest_miss.layer == TOO_LARGE
    assert f"which layer {TOO_LARGE!r} alone exceeds" in "\n".join(explain(answer))


@pytest.mark.parametrize(
    "limited",
    [
        {"limits": Limits(max_gpus=2, tensor_degrees=(1,))},
        {"limits": Limits(max_gpus=2), "override": Override(tensor_degree=1)},
        {
            "limits": Limits(max_gpus=6),
            "override": Override(num_gpus=6, tensor_degree=2),
        },
    ],
)
def test_a_tensor_degree_that_the_gpus_rule_out_is_not_proposed(
    limited: dict[str, Any],
) -> None:
    """The profile has one, and no count or limit that is given is a multiple of it."""
    parts = {TWO: [HALF], Variant(tensor_degree=4): [HALF]}
    profile = chain_profile([LAYER], split=parts, device_kind=DeviceKind.EMULATED)
    answer = solve(asking(40, profile=profile, **limited))
    assert not isinstance(answer, Infeasible) or (
        "a tensor degree of 4" not in answer.nearest_change
    )


def test_a_fixed_plan_names_a_layer_that_is_too_large() -> None:
    """It is obeyed, with a warning."""
    answer = solve(asking(100, override=Override(tensor_degree=1)))
    assert isinstance(answer, Solution)
    assert f"which layer {TOO_LARGE!r} alone exceeds" in answer.warnings[0]


def test_layers_that_fit_alone_are_not_named() -> None:
    """Two of them exceed a device, and each would fit."""
    limits = Limits(max_gpus=1)
    answer = solve(asking(150, profile=of_two(2), limits=limits))
    assert isinstance(answer, Infeasible)
    assert answer.nearest_miss is not None
    assert answer.nearest_miss.layer is None
    assert "alone exceeds" not in "\n".join(explain(answer))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"engine": UNSPLIT_ENGINE}, "tensor parallelism"),
        (
            {"profile": chain_profile([LAYER], device_kind=DeviceKind.EMULATED)},
            "tensor parallelism (the layers were not profiled for it)",
        ),
        (
            {
                "profile": chain_profile([LAYER], device_kind=DeviceKind.EMULATED),
                "devices_per_node": 1,
            },
            "tensor parallelism (nodes have one device each)",
        ),
        (
            {"limits": Limits(max_gpus=2, tensor_degrees=(1,))},
            "tensor parallelism (the limits leave it out)",
        ),
        (
            {"override": Override(tensor_degree=1)},
            "tensor parallelism (`override.tensor_degree` is 1)",
        ),
    ],
)
def test_a_certificate_says_why_no_layer_is_split(
    fields: dict[str, Any], reason: str
) -> None:
    """An engine that cannot needs no reason; the others have one."""
    answer = solve(asking(1000, **fields))
    assert reason in answer.certificate.space.without
    assert not any("a tensor degree" in line for line in explain(answer))


def test_a_degree_that_nobody_profiled_is_refused() -> None:
    """The error lists the degrees that were profiled."""
    limits = Limits(max_gpus=4, tensor_degrees=(1, 4))
    with pytest.raises(CannotPlanError, match="were not profiled for it: allow only 1"):
        solve(asking(100, limits=limits))


def test_messages_are_part_of_the_passes() -> None:
    """Ten bytes of a sample at 20 bytes/s, twice 0.1 s of latency: 0.7 s in each pass.

    At the end of a step 4 bytes, in whole 0.3 s, after the optimizer step of none.
    """
    link = Link(bandwidth_bytes_per_s=20.0, latency_s=0.1)
    sent = Messages(of_sample=10, latencies=2)
    norms = Messages(constant=4, latencies=1)
    layer = replace(
        HALF, forward_messages=sent, backward_messages=sent, step_messages=norms
    )
    profile = chain_profile(
        [LAYER], split={TWO: [layer]}, device_kind=DeviceKind.EMULATED
    )
    device = a_device(100, link_in_node=link)
    explorer = Explorer(asking(100, profile=profile, offers=(device,)))
    tuples = [one for one in explorer.open if one.micro_batch == 1]
    plan = explorer.best_rate(tuples)
    assert plan is not None
    assert plan.candidate.mesh.tensor == 2
    (times,) = explorer.search.stage_times(plan, Bound.EXPECTED)
    assert times.forward_s == pytest.approx(0.5 + 0.7)
    assert times.backward_s == pytest.approx(1.0 + 0.7)
    assert times.end_s == pytest.approx(0.3)


def test_what_is_nowhere_worse_is_searched_alone() -> None:
    """Sequence parallel rows without a worse number leave the plain ones out."""
    better = replace(HALF, boundary=4)
    assert searched_variants(asking(100, profile=of_two(both=better))) == (ONE, BOTH)
    for worse in (
        replace(HALF, boundary=9),
        replace(HALF, parameters=49),
        replace(HALF, forward_s=0.6),
        replace(HALF, kept=replace(HALF.kept, saved=13)),
        replace(HALF, kept=replace(HALF.kept, keeps_input=True)),
        replace(HALF, step_messages=Messages(latencies=1)),
        replace(HALF, backward_messages=Messages(of_sample=11)),
        replace(HALF, held_messages=1),
    ):
        found = searched_variants(asking(100, profile=of_two(both=worse)))
        assert found == (ONE, TWO, BOTH)
    keeps = replace(PLIMSOLL, holds=PLIMSOLL_ON_TORCH_2_11.holds)
    problem = asking(100, profile=of_two(both=better), engine=keeps)
    assert searched_variants(problem) == (ONE, TWO, BOTH)


def test_tuples_of_one_mesh_are_told_apart() -> None:
    """Plain and sequence parallel: a column of the certificate, and words for it."""
    other = replace(HALF, step_messages=Messages(latencies=1), boundary=4)
    answer = solve(asking(100, profile=of_two(both=other)))
    rows = answer.certificate.counts[1].decisions
    assert rows.sequence_parallel is not None
    assert set(zip(rows.tensor_degree, rows.sequence_parallel, strict=True)) == {
        *((1, False), (2, False), (2, True))
    }
    assert Certificate.from_json(answer.certificate.to_json(), "it") == (
        answer.certificate
    )


def test_sequences_are_split_or_whole_as_they_are_fixed() -> None:
    """Only such variants are searched, and one rank has whole sequences."""
    other = replace(HALF, step_messages=Messages(latencies=1), boundary=4)
    problem = asking(100, profile=of_two(both=other))
    assert searched_variants(problem) == (ONE, TWO, BOTH)
    whole = replace(problem, override=Override(sequences=Sequences.WHOLE))
    assert searched_variants(whole) == (ONE, TWO)
    problem = replace(problem, override=Override(sequences=Sequences.SPLIT))
    assert searched_variants(problem) == (BOTH,)
    answer = solve(problem)
    assert isinstance(answer, Solution)
    assert answer.plan.stages[0].variant == BOTH
    assert any("sequences split" in line for line in explain(answer))
    limits = Limits(max_gpus=2, tensor_degrees=(1,))
    with pytest.raises(CannotPlanError, match=r"split, and .* leaves no .* one of 2"):
        solve(replace(problem, limits=limits))


NOBODY = NotSplit(tensor_degree=2, sequence_parallel=True, why="layer 'a' has none")
HEADS = NotSplit(tensor_degree=8, why="8 ranks do not divide the heads of layer 'a'")
NO_FIELD = "for no tensor degree; no layer has a `parallelize_sequence`; [^;]*$"


@pytest.mark.parametrize(
    ("fields", "degree", "reason"),
    [
        ({"engine": UNSPLIT_ENGINE}, None, "has no tensor parallelism"),
        ({"profile": of_two(both=HALF)}, 1, "for tensor degree 2 alone"),
        (
            {"profile": replace(of_two(), not_split=(NOBODY,))},
            None,
            "for no tensor degree; layer 'a' has none",
        ),
        ({"profile": of_two()}, 2, NO_FIELD),
        ({"profile": replace(of_two(), not_split=(HEADS,))}, None, NO_FIELD),
    ],
)
def test_sequences_that_cannot_be_split_are_refused(
    fields: dict[str, Any], degree: int | None, reason: str
) -> None:
    """By engine, degree, or layer."""
    override = Override(sequences=Sequences.SPLIT, tensor_degree=degree)
    with pytest.raises(InvalidFieldError, match=reason):
        asking(100, override=override, **fields)


def test_a_plan_is_drawn_and_broken_down_as_it_is_split() -> None:
    """Seconds and bytes of a stage are those of its rows."""
    problem = asking(100)
    answer = solve(problem)
    assert isinstance(answer, Solution)
    (stage,) = answer.plan.stages
    peak = stage.peak()
    assert peak is not None
    parts = breakdown(problem, answer.plan, stage)
    assert sum(part.num_bytes for part in parts) == peak.device.expected_bytes
    drawn = timeline(problem, answer.plan, 4)
    assert drawn is not None
    assert answer.plan.step_time is not None
    assert drawn.end_s == pytest.approx(answer.plan.step_time.expected_s)


def test_every_mesh_of_a_count_has_its_least_memory_plan() -> None:
    """Two devices and two layers: two stages, two replicas, or a tensor group."""
    problem = asking(1000, profile=of_two(2))
    plans = list(least_memory_plans(problem, 2))
    assert [str(plan.mesh) for plan in plans] == ["1 x 2", "2 x 1", "1 x 1 x 2"]


def test_least_memory_plans_are_within_the_degrees_that_are_allowed() -> None:
    """Of meshes alone; that fewer devices than a degree are asked for is no error."""
    limits = Limits(max_gpus=4, pipeline_degrees=(2,))
    problem = asking(1000, profile=of_two(2), limits=limits)
    shown = [
        [str(plan.mesh) for plan in least_memory_plans(problem, count)]
        for count in (1, 2, 4)
    ]
    assert shown == [[], ["2 x 1"], ["2 x 2", "2 x 1 x 2"]]


def test_rules_of_cutting_are_compared_at_one_tensor_degree() -> None:
    """The one that is fixed, else the least."""
    for degree, rank_bytes in ((None, 100), (2, 50)):
        problem = asking(
            1000, profile=of_two(2), override=Override(tensor_degree=degree)
        )
        rows = compare(problem, 2).rows
        meshes_of_rows = {row.found.candidate.mesh.tensor for row in rows if row.found}
        assert meshes_of_rows == {degree or 1}
        assert all(row.peak_bytes > rank_bytes for row in rows)


def test_a_replay_widens_the_rows_of_its_own_variant() -> None:
    """Bounds of split layers are not used for whole ones."""
    problem = asking(100)
    answer = solve(problem)
    assert isinstance(answer, Solution)
    apart = Disagreement(
        stage=0,
        predicted=ByteInterval(lower_bytes=62, expected_bytes=62, upper_bytes=62),
        replayed_bytes=70,
        needed_bytes=8,
    )
    profile = widened(problem.profile, answer.plan, (apart,))
    errors = profile.costs.kept.backward_transient.relative_error
    assert errors[0] == 0
    assert errors[1] > 0


def drawn_question(seed: int, most_layers: int) -> Problem:
    """Draw a question on an absolute floor, of layers that groups may split."""
    dice = random.Random(seed)  # noqa: S311 - no secret
    question = asked(seed)
    question = split(
        replace(
            question,
            layers=question.layers[:most_layers],
            limits=Limits(max_gpus=dice.choice((2, 4, 4))),
            devices_per_node=dice.choice((1, 2, 4, 4)),
            objective=Objective(min_samples_per_s=dice.uniform(0.02, 0.3)),
        ),
        seed,
    )
    return of_some_kind(question, dice, seed).problem()


@settings(max_examples=draws(20))
@given(st.integers(0, 10**6))
def test_tuples_with_tensor_groups_are_judged_as_by_enumeration(seed: int) -> None:
    """Two or three layers: the same tuples, and the same verdict on every one.

    Where plain tuples are left out, the sequence parallel ones are nowhere worse.
    """
    problem = drawn_question(seed, 3)
    decisions, every = judge_all(problem), set(meshes(problem))
    assert set(decisions) <= every
    for mesh in every - set(decisions):
        is_better_or_equal(problem, replace(mesh, is_sequence=True), mesh)
        assert replace(mesh, is_sequence=True) in decisions
    for mesh, decision in decisions.items():
        check(problem, mesh, decision)


def is_better_or_equal(problem: Problem, one: Mesh, other: Mesh) -> None:
    """Hold what is searched against what was left out for it."""
    offer = problem.offers[one.offer]
    if one.count < one.stages or one.tensor > offer.devices_per_node:
        return
    for bound in ("lower", "upper"):
        judge, capacity = Judge(problem, bound), offer.device_memory_bytes
        assert judge.least_peak(one) <= judge.least_peak(other)
        steps_s = [judge.least_walk_s(mesh, capacity) for mesh in (one, other)]
        assert steps_s[0] <= steps_s[1] * (1 + ROUNDING)
