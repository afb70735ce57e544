"""A predicted peak, kind by kind: by hand, and its sum on random problems."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

pytest.importorskip("numpy")

from plimsoll_planner.engines import PLIMSOLL
from plimsoll_planner.memory.rank_peak import MemoryKind
from plimsoll_planner.records.device_overhead import OverheadLine
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.engine import EngineTraits, ReceiveBuffers
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import DeviceKind, ModelProfile, TiedLayers
from plimsoll_planner.records.objective import Objective
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.plan import HybridPlan, Phase, Stage
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.replay import Replay, ReplayedPeak, ReplayedStage
from plimsoll_planner.records.solution import Solution
from plimsoll_planner.search.answer import solve
from plimsoll_planner.search.breakdown import breakdown, tensor_parts
from plimsoll_planner.search.replayed import narrowed
from tests.support.builders import an_overhead
from tests.support.chains import Activation, Layer, chain_profile, random_profiles
from tests.support.drawing import draws
from tests.support.placed_questions import a_tight_question
from tests.support.placed_questions import replay_of as placed_replay_of
from tests.support.questions import a_device, a_question, solved

LAYERS = (
    Layer(
        parameters=100,
        boundary=3,
        kept=Activation(saved=2, keeps_output=True, forward=7, backward=9),
    ),
    Layer(
        parameters=100,
        gradients=10,
        buffers=6,
        optimizer_transient=90,
        boundary=5,
        kept=Activation(saved=20, keeps_output=True, forward=31, backward=40),
    ),
    Layer(
        parameters=200,
        optimizer=30,
        boundary=4,
        kept=Activation(saved=8, forward=14, backward=17, held=8),
    ),
    Layer(
        parameters=50,
        boundary=1,
        kept=Activation(saved=6, keeps_input=True, forward=30, backward=25),
    ),
)
OVERHEAD = an_overhead(
    allocator=OverheadLine(constant_bytes=7),
    outside=OverheadLine(constant_bytes=11, bytes_per_communicator=2),
)


def by_hand(layers: tuple[Layer, ...] = LAYERS, **fields: object) -> Problem:
    """Ask for layer 0, layers 1 and 2, layer 3; M = 3 micro-batches of a sample."""
    profile = chain_profile(
        layers,
        device_kind=DeviceKind.EMULATED,
        input_bytes_per_sample=1000,
        target_bytes_per_sample=100,
    )
    fixed = Override(cuts=(0, 1, 3), micro_batch=1, recomputed_layers=(), num_gpus=3)
    defaults: dict[str, object] = {
        "profile": profile,
        "offers": (a_device(10_000),),
        "overheads": (OVERHEAD,),
        "global_batch_size": 3,
        "override": fixed,
    }
    return a_question(**(defaults | fields))  # type: ignore[arg-type]


def parts_of(problem: Problem, plan: HybridPlan, stage: Stage) -> dict[MemoryKind, int]:
    """Parts that are not zero."""
    parts = breakdown(problem, plan, stage)
    assert [part.kind for part in parts] == list(MemoryKind)
    return {part.kind: part.num_bytes for part in parts if part.num_bytes}


def test_a_stage_in_the_middle() -> None:
    """Layers 1 and 2 with k = 2 of M = 3, in the backward pass of layer 2.

    a micro-batch in flight   20 + 8 saved, 5 between the layers, 3 received
    the one at work           20 saved, 5 between the layers, 3 received
    3 received whose gradient is not sent yet, 17 + 8 of layer 2 itself
    """
    problem = by_hand()
    plan = solved(problem).plan
    assert parts_of(problem, plan, plan.stages[1]) == {
        MemoryKind.PARAMETERS: 300,
        MemoryKind.GRADIENTS: 10,
        MemoryKind.OPTIMIZER: 30,
        MemoryKind.BUFFERS: 6,
        MemoryKind.SAVED: 33 + 25,
        MemoryKind.BOUNDARIES: 9,
        MemoryKind.WORKING: 25,
        MemoryKind.OUTSIDE: 7 + 11 + 2 * 2,
    }


def test_the_first_stage_in_its_exchange() -> None:
    """Sent output and received gradient on top of what is saved: no layer decides.

    k = 3 micro-batches of 2 saved and an output of 3, one gradient of 3; 3 samples.
    """
    first = replace(LAYERS[0], kept=Activation(saved=2, keeps_output=True, forward=2))
    problem = by_hand((first, *LAYERS[1:]))
    plan = solved(problem).plan
    peak = plan.stages[0].peak()
    assert peak is not None
    assert peak.phase is Phase.FORWARD
    assert parts_of(problem, plan, plan.stages[0]) == {
        MemoryKind.PARAMETERS: 100,
        MemoryKind.INPUTS: 3000,
        MemoryKind.SAVED: 3 * 2,
        MemoryKind.BOUNDARIES: 3 * 3 + 3,
        MemoryKind.OUTSIDE: 22,
    }


def test_the_optimizer_step_is_work_of_its_largest_layer() -> None:
    """Nothing is in flight then: state, and 500 of the layer that steps."""
    large = replace(LAYERS[1], optimizer_transient=500)
    problem = by_hand((LAYERS[0], large, *LAYERS[2:]))
    plan = solved(problem).plan
    assert parts_of(problem, plan, plan.stages[1]) == {
        MemoryKind.PARAMETERS: 300,
        MemoryKind.GRADIENTS: 10,
        MemoryKind.OPTIMIZER: 30,
        MemoryKind.BUFFERS: 6,
        MemoryKind.WORKING: 500,
        MemoryKind.OUTSIDE: 22,
    }


def test_tied_layers_on_one_rank_are_counted_once() -> None:
    """On one rank a parameter of 40 with its gradient of 10 is there once.

    The gradient that is computed first waits for the other: 10 again.
    """
    layers = tuple(replace(layer, gradients=10) for layer in LAYERS)
    question = by_hand(layers, override=Override(num_gpus=1, recomputed_layers=()))
    tied = (TiedLayers(layers=(0, 3), parameter_bytes=40, gradient_bytes=10),)
    shared = replace(question, profile=replace(question.profile, tied=tied))
    apart, together = (
        parts_of(problem, plan, plan.stages[0])
        for problem in (question, shared)
        for plan in [solved(problem).plan]
    )
    assert apart[MemoryKind.PARAMETERS] == 450
    assert together[MemoryKind.PARAMETERS] == 410
    assert apart[MemoryKind.GRADIENTS] == 40
    assert together[MemoryKind.GRADIENTS] == 30 + 10


@pytest.mark.parametrize(
    ("difference", "expected"),
    [
        (3, {MemoryKind.WORKING: 28}),
        (-3, {MemoryKind.WORKING: 22}),
        (-30, {MemoryKind.WORKING: 0, MemoryKind.BOUNDARIES: 4}),
        (-40, {MemoryKind.BOUNDARIES: 0, MemoryKind.SAVED: 52}),
    ],
)
def test_what_a_replay_differs_by_is_working_memory(
    difference: int, expected: dict[MemoryKind, int]
) -> None:
    """More is more of it; less is less of it, then of the kinds before it."""
    problem = by_hand()
    plan = solved(problem).plan
    certified = narrowed(problem.profile, plan, replay_of(plan, difference))
    parts = breakdown(problem, certified, certified.stages[1])
    found = {part.kind: part.num_bytes for part in parts}
    assert {kind: found[kind] for kind in expected} == expected
    assert found[MemoryKind.PARAMETERS] == 300


def replay_of(plan: HybridPlan, difference: int) -> Replay:
    """Replay of a plan with its expected peaks and a difference."""

    def allocated(stage: Stage) -> int:
        expected = max(peak.allocated.expected_bytes for peak in stage.peaks)
        return max(expected + difference, 1)

    return Replay(
        plan_digest=digest_of(plan),
        torch_version="2.15.0",
        stages=tuple(
            ReplayedStage(
                stage=place,
                peaks=(
                    ReplayedPeak(
                        phase=Phase.BACKWARD, allocated_bytes=allocated(stage)
                    ),
                    ReplayedPeak(phase=Phase.GRADIENT_NORM, allocated_bytes=1),
                ),
            )
            for place, stage in enumerate(plan.stages)
        ),
    )


ENGINES = st.builds(
    lambda **holds: replace(PLIMSOLL, holds=replace(PLIMSOLL.holds, **holds)),
    receive_buffers=st.sampled_from(ReceiveBuffers),
    stage_outputs_kept=st.booleans(),
    logits_kept=st.booleans(),
    gradient_bucket_copies=st.sampled_from([0.0, 0.5, 1.0]),
)


@settings(max_examples=draws(150))
@given(
    random_profiles(),
    ENGINES,
    st.integers(1, 8),
    st.sampled_from([(), (OVERHEAD,)]),
    st.one_of(st.none(), st.integers(-200, 200)),
)
def test_the_kinds_add_up(
    profile: ModelProfile,
    engine: EngineTraits,
    batch: int,
    overheads: tuple[object, ...],
    difference: int | None,
) -> None:
    """To the expected device bytes of every stage, and no kind is negative.

    Of all plans of an answer, by formula or narrowed by a replay; without a replay the
    parts of the formula add up before anything is moved.
    """
    profile = replace(profile, device_kind=DeviceKind.EMULATED)
    problem = a_question(
        2000,
        profile=profile,
        engine=engine,
        overheads=overheads,
        global_batch_size=batch,
        limits=Limits(max_gpus=4),
        objective=Objective(rate_floor=0.0),
    )
    answer = solve(problem)
    assume(isinstance(answer, Solution))
    assert isinstance(answer, Solution)
    plans = [answer.plan, *answer.alternatives]
    if difference is not None:
        plans = [narrowed(profile, p, replay_of(p, difference)) for p in plans]
    for plan in plans:
        for stage in plan.stages:
            peak = stage.peak()
            assert peak is not None
            parts = breakdown(problem, plan, stage)
            assert sum(part.num_bytes for part in parts) == peak.device.expected_bytes
            assert all(part.num_bytes >= 0 for part in parts)
            if difference is None:
                formula = tensor_parts(problem, plan, stage, peak.phase)
                assert formula.total() == peak.allocated.expected_bytes


def test_a_stage_without_a_prediction_has_no_parts() -> None:
    """A plan that nobody predicted shows nothing, and does not fail."""
    problem = by_hand()
    plan = solved(problem).plan
    bare = replace(plan.stages[0], peaks=())
    assert breakdown(problem, plan, bare) == ()


def test_parts_of_placed_operators_are_those_of_the_peak() -> None:
    """A replay's difference is working memory."""
    problem = a_tight_question()
    plan = solved(problem).plan
    assert plan.placement is not None
    for stage, peak in zip(plan.stages, plan.placement.peaks, strict=True):
        found = parts_of(problem, plan, stage)
        assert sum(found.values()) == peak.peak_bytes
        assert found[MemoryKind.PARAMETERS] == peak.parameter_bytes
        assert found[MemoryKind.GRADIENTS] == peak.gradient_bytes
        assert found[MemoryKind.OPTIMIZER] == peak.optimizer_bytes
        assert found[MemoryKind.VALUES] == peak.value_bytes
        assert found[MemoryKind.RECEIVED] == peak.received_bytes
        assert found.get(MemoryKind.WORKING, 0) == peak.transient_bytes
    certified = narrowed(problem.profile, plan, placed_replay_of(plan, 1.0005, 0.5))
    for stage, peak in zip(certified.stages, plan.placement.peaks, strict=True):
        found, most = parts_of(problem, certified, stage), stage.peak()
        assert most is not None
        assert sum(found.values()) == most.device.expected_bytes > peak.peak_bytes
        assert found[MemoryKind.VALUES] == peak.value_bytes
