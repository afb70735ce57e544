"""When a plan that runs is revised, and when it stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.interval import ByteInterval
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.objective import Goal, Objective
from plimsoll_planner.records.observation import WINDOW_STEPS, Observation, ObservedPeak
from plimsoll_planner.records.offer import Link
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.plan import HybridPlan, Phase, Stage
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.revision import Cause, Revision, cuts_of, difference
from plimsoll_planner.revising.observed import observed_stages
from plimsoll_planner.revising.revise import Stays, revise
from plimsoll_planner.units import MIB
from tests.support.builders import an_observation
from tests.support.carried import Value, carried_columns
from tests.support.chains import Activation, Layer, chain_profile
from tests.support.questions import CHAIN, a_device, a_question, solved

MANY_STEPS = 100_000
FIXED = Override(num_stages=2, data_degree=1, micro_batch=1)


def a_running_plan(
    memory_bytes: int = 1500, **fields: Any
) -> tuple[Problem, HybridPlan]:
    """Ask for two stages, and answer."""
    asked = a_question(memory_bytes, **({"override": FIXED} | fields))
    return asked, solved(asked).plan


def reports(
    plan: HybridPlan,
    paces: Sequence[float] = (1.0, 1.0),
    *,
    num_steps: int = WINDOW_STEPS,
    peaks: Sequence[int] = (1, 1),
    capacities: Sequence[int] = (0, 0),
) -> list[Observation]:
    """Report of each of two ranks."""
    return [
        an_observation(
            plan_digest=digest_of(plan),
            rank=rank,
            passes_s=(pace * passes_s(plan, rank),) * num_steps,
            capacity_bytes=capacity,
            peaks=(
                ObservedPeak(
                    phase=Phase.BACKWARD,
                    allocated_bytes=peak,
                    reserved_bytes=peak,
                    device_bytes=peak,
                ),
            ),
        )
        for rank, (pace, peak, capacity) in enumerate(
            zip(paces, peaks, capacities, strict=True)
        )
    ]


def passes_s(plan: HybridPlan, rank: int) -> float:
    """Expected seconds of a rank in all passes of a step."""
    passes = plan.stage_of(rank).passes
    assert passes is not None
    return passes.expected_s


def answer(
    asked: Problem,
    plan: HybridPlan,
    found: Sequence[Observation],
    steps_left: int = MANY_STEPS,
) -> Revision | Stays:
    """Observe, then revise."""
    return revise(asked, plan, observed_stages(plan, asked.limits, found), steps_left)


def revised(asked: Problem, plan: HybridPlan, found: Sequence[Observation]) -> Revision:
    """Insist on a revision, and on its following the plan."""
    revision = answer(asked, plan, found)
    assert isinstance(revision, Revision), revision
    assert difference(revision, plan) is None
    return revision


def stays(asked: Problem, plan: HybridPlan, found: Sequence[Observation]) -> str:
    """Insist on the plan staying; why."""
    refusal = answer(asked, plan, found)
    assert isinstance(refusal, Stays), refusal
    return refusal.reason


def test_layers_leave_a_slow_stage() -> None:
    """Of eight equal blocks, embedding and head, whatever makes both stages as long."""
    asked, plan = a_running_plan()
    revision = revised(asked, plan, reports(plan, (1.0, 2.0)))
    assert cuts_of(revision.plan)[1] > cuts_of(plan)[1]
    assert revision.paces == (1.0, 2.0)
    assert revision.cause is Cause.PACE
    assert revision.step_after_s < 0.95 * revision.step_before_s
    # Planned with the paces: no news if they stay.
    again = reports(revision.plan)
    observed = observed_stages(revision.plan, asked.limits, again)
    assert observed.cause is None


def test_layers_come_back() -> None:
    """Paces count from the profile, whatever the plan that runs was made for."""
    asked, plan = a_running_plan()
    away = revised(asked, plan, reports(plan, (1.0, 2.0))).plan
    back = revised(asked, away, reports(away, (1.0, 0.5)))
    assert back.paces == (1.0, 1.0)
    assert cuts_of(back.plan)[1] < cuts_of(away)[1]
    assert back.plan.revision == 3


def test_a_plan_that_is_as_planned_stays() -> None:
    """Nobody searches."""
    asked, plan = a_running_plan()
    assert (
        stays(asked, plan, reports(plan, (1.09, 0.91))) == "all stages are as planned"
    )


def test_layers_that_carry_values_past_others_stay() -> None:
    """The trainer does not move them while it runs."""
    asked, plan = a_running_plan()
    carried = carried_columns([Value()])
    carrying = replace(asked, profile=replace(asked.profile, carried=carried))
    assert "carry values" in stays(carrying, plan, reports(plan, (1.0, 2.0)))


def test_stages_that_are_slow_alike_keep_their_layers() -> None:
    """There is less than 5 % to win: what plans may lose for less memory."""
    asked, plan = a_running_plan()
    reason = stays(asked, plan, reports(plan, (2.0, 2.0)))
    assert reason == "a step would be only 2.1 % shorter"


@pytest.mark.parametrize(("num_steps", "left_out"), [(19, 0), (20, 1)])
def test_few_steps_are_no_news(num_steps: int, left_out: int) -> None:
    """Twenty of every rank of all stages."""
    asked, plan = a_running_plan()
    found = reports(plan, (1.0, 2.0), num_steps=num_steps)[left_out:]
    assert stays(asked, plan, found) == "all stages are as planned"


def test_reports_of_another_revision_do_not_count() -> None:
    """They are of other layers."""
    asked, plan = a_running_plan()
    found = reports(plan, (1.0, 2.0))
    after = revised(asked, plan, found).plan
    assert stays(asked, after, found) == "all stages are as planned"


def test_a_lie_about_seconds_is_bounded() -> None:
    """It leads to another plan of its own job at most."""
    asked, plan = a_running_plan()
    revision = revised(asked, plan, reports(plan, (1.0, 1e6)))
    assert revision.paces == (1.0, 64.0)
    assert cuts_of(revision.plan)[1] > cuts_of(plan)[1] + 1
    revision = revised(asked, plan, reports(plan, (1e-6, 1.0)))
    assert revision.paces == (1 / 64, 1.0)


def test_moves_must_pay() -> None:
    """Within 1 % of the steps that are left."""
    asked, plan = a_running_plan()
    found = reports(plan, (1.0, 2.0))
    refusal = answer(asked, plan, found, steps_left=0)
    assert refusal == Stays(reason="0 steps are too few to win back what moves take")


def test_a_smaller_device_is_planned_for() -> None:
    """At any price in seconds, if the plan that runs does not fit."""
    asked, plan = a_running_plan()
    peaks = [stage.peaks for stage in plan.stages]
    most = max(peak.device.upper_bytes for each in peaks for peak in each)
    smaller = most * 9 // 10
    revision = revised(asked, plan, reports(plan, capacities=(smaller, smaller)))
    assert revision.cause is Cause.CAPACITY
    assert revision.step_after_s >= revision.step_before_s
    for stage in revision.plan.stages:
        peak = stage.peak()
        assert peak is not None
        assert peak.device.upper_bytes <= smaller
    hopeless = reports(plan, capacities=(100, 100))
    reason = stays(asked, plan, hopeless)
    assert reason == "no other plan of its stages fits on machines as they are"


def test_a_peak_above_its_bound_counts_as_a_smaller_device() -> None:
    """By what it was above; where all still fits, nothing moves."""
    asked, plan = a_running_plan()
    bounds = []
    for stage in plan.stages:
        peak = stage.peak()
        assert peak is not None
        bounds.append(peak.device.upper_bytes)
    room = 1500 - bounds[0]
    revision = revised(asked, plan, reports(plan, peaks=(1500 + 60, 1)))
    assert revision.cause is Cause.PEAK
    assert revision.lacking_bytes == (room + 60, 0)
    assert stays(asked, plan, reports(plan, peaks=(bounds[0] + 1, 1)))


def test_what_is_fixed_stays_fixed() -> None:
    """Cuts, layers that recompute, micro-batches in flight."""
    fixed = replace(FIXED, cuts=(0, 5), recomputed_layers=())
    asked, plan = a_running_plan(3000, override=fixed)
    reason = stays(asked, plan, reports(plan, (1.0, 3.0)))
    assert reason == "no other plan of its stages is faster"


def test_the_goal_of_least_memory_is_kept() -> None:
    """No stage holds more than the fullest did."""
    goal = Objective(goal=Goal.MINIMIZE_MEMORY)
    asked, plan = a_running_plan(3000, objective=goal)
    found = answer(asked, plan, reports(plan, (1.0, 3.0)))
    if isinstance(found, Revision):
        assert found.plan.peak_bytes is not None
        assert plan.peak_bytes is not None
        assert found.plan.peak_bytes <= plan.peak_bytes


@pytest.mark.parametrize(("memory_bytes", "has_room"), [(649, False), (650, True)])
def test_a_layer_needs_room_while_it_is_built(
    memory_bytes: int, *, has_room: bool
) -> None:
    """With its parameters twice, beside the four layers that its stage has by then."""
    light = Layer(
        parameters=100,
        gradients=10,
        kept=Activation(saved=1, forward=1, backward=1),
        again=Activation(forward=1, backward=1),
    )
    profile = chain_profile([light] * 8, device_kind=DeviceKind.EMULATED)
    asked, plan = a_running_plan(memory_bytes, profile=profile)
    assert cuts_of(plan) == (0, 4)
    found = answer(asked, plan, reports(plan, (1.0, 1.5)))
    reason = found.reason if isinstance(found, Stays) else ""
    refusal = "a stage has no room for the layers on their way"
    assert reason == ("" if has_room else refusal)


def offloading_block(scale: int) -> Layer:
    """A layer that waits in the memory of the machine, and cannot recompute."""
    kept = Activation(saved=60 * scale, forward=66 * scale, backward=80 * scale)
    away = replace(kept, saved=0, on_host=60 * scale)
    return Layer(
        parameters=40 * scale,
        gradients=40 * scale,
        boundary=4 * scale,
        kept=kept,
        again=kept,
        away=away,
        again_away=away,
        recomputable=False,
    )


@pytest.mark.parametrize("is_roomy", [False, True])
def test_pods_keep_their_memory(*, is_roomy: bool) -> None:
    """A revision does not offload what the pods have no room for."""
    layers = [offloading_block(MIB)] * 8
    device = a_device(
        1500 * MIB,
        host_memory_bytes=2**40,
        link_to_host=Link(bandwidth_bytes_per_s=1e8),
    )
    profile = chain_profile(layers, device_kind=DeviceKind.EMULATED)
    goal = Objective(throughput_tolerance=0.0)
    asked, plan = a_running_plan(
        offers=(device,),
        profile=profile,
        objective=goal,
        limits=Limits(max_gpus=8, in_flight_caps=False),
    )
    assert not any(stage.offloaded_layers for stage in plan.stages)
    if is_roomy:
        pods = replace(plan.pods, host_memory_bytes_per_pod=2**39)
        plan = replace(plan, pods=pods)
    smaller = reports(plan, capacities=(600 * MIB, 600 * MIB))
    if is_roomy:
        revision = revised(asked, plan, smaller)
        assert any(stage.offloaded_layers for stage in revision.plan.stages)
        assert revision.plan.pods == plan.pods
    else:
        reason = stays(asked, plan, smaller)
        assert reason == "its pods have too little memory besides that of devices"


def test_what_devices_were_found_to_lack_is_remembered() -> None:
    """A later revision, for another reason, does not fill them again."""
    asked, plan = a_running_plan()
    before = revised(asked, plan, reports(plan, peaks=(1500 + 60, 1)))
    assert before.lacking_bytes[0] > 0
    found = reports(before.plan, (0.9, 1.15))
    for known in (before.lacking_bytes, ()):
        observed = observed_stages(before.plan, asked.limits, found, known)
        after = revise(asked, before.plan, observed, MANY_STEPS)
        assert isinstance(after, Revision)
        peak = after.plan.stages[0].peak()
        assert peak is not None
        fits = peak.device.upper_bytes + before.lacking_bytes[0] <= 1500
        assert fits == bool(known)


def test_the_goal_of_least_memory_knows_no_replay() -> None:
    """A replay makes peaks smaller than the search can know, not the plan."""
    goal = Objective(goal=Goal.MINIMIZE_MEMORY)
    profile = chain_profile(
        CHAIN, device_kind=DeviceKind.EMULATED, byte_error=0.2, time_error=0.0
    )
    asked, plan = a_running_plan(3000, objective=goal, profile=profile)
    narrow = replace(plan, stages=tuple(map(with_exact_peaks, plan.stages)))
    assert narrow.peak_bytes != plan.peak_bytes
    for each in (plan, narrow):
        reason = stays(asked, each, reports(each, (1.0, 3.0)))
        assert reason == "no other plan of its stages is faster"


def with_exact_peaks(stage: Stage) -> Stage:
    """The stage as a replay leaves it: its peaks are known to the byte."""

    def exact(interval: ByteInterval) -> ByteInterval:
        lower = interval.lower_bytes
        return ByteInterval(lower_bytes=lower, expected_bytes=lower, upper_bytes=lower)

    peaks = tuple(
        replace(
            peak,
            allocated=exact(peak.allocated),
            reserved=exact(peak.reserved),
            device=exact(peak.device),
        )
        for peak in stage.peaks
    )
    return replace(stage, peaks=peaks)
