"""Search and replay take turns until they agree, at most five times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

pytest.importorskip("numpy")

from plimsoll_planner.engines import PLIMSOLL
from plimsoll_planner.records.device_overhead import OverheadLine
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import DeviceKind, ModelProfile
from plimsoll_planner.records.objective import Objective
from plimsoll_planner.records.plan import HybridPlan, Phase
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.replay import Replay, ReplayedPeak, ReplayedStage
from plimsoll_planner.records.solution import Infeasible, Solution
from plimsoll_planner.search import replayed
from plimsoll_planner.search.answer import solve
from plimsoll_planner.search.replayed import (
    MOST_ROUNDS,
    REPLAY_ERROR,
    largest,
    solve_with_replay,
)
from tests.support.builders import MIB, an_offer, an_overhead
from tests.support.chains import chain_profile
from tests.support.command_lines import BLOCK
from tests.support.placed_questions import a_placed_question, a_tight_question
from tests.support.placed_questions import replay_of as placed_replay_of

NOTHING_BESIDES = an_overhead(
    allocator=OverheadLine(constant_bytes=0), outside=OverheadLine(constant_bytes=0)
)


def a_problem(
    memory_mib: int,
    *,
    source: Source = Source.TRACED,
    byte_error: float = 0.01,
    kind: DeviceKind = DeviceKind.EMULATED,
) -> Problem:
    """Ask for the fewest devices for eight blocks, at any speed."""
    offer = an_offer(
        device_kind=kind,
        device_memory_bytes=memory_mib * MIB,
        devices_per_node=8,
    )
    profile = chain_profile([BLOCK] * 8, byte_error=byte_error, device_kind=kind)
    return Problem(
        profile=obtained(profile, source),
        overheads=(NOTHING_BESIDES,),
        offers=(offer,),
        engine=PLIMSOLL,
        global_batch_size=8,
        limits=Limits(max_gpus=8),
        objective=Objective(rate_floor=0.0),
    )


def obtained(profile: ModelProfile, source: Source) -> ModelProfile:
    """Profile with bytes of another source."""
    kept = profile.costs.kept
    sources = (source,) * len(kept.backward_transient.source)
    transient = replace(kept.backward_transient, source=sources)
    kept = replace(kept, backward_transient=transient)
    return replace(profile, costs=replace(profile.costs, kept=kept))


def replay_as(factor: float, seen: list[HybridPlan]) -> Callable[[HybridPlan], Replay]:
    """Replay whose peaks are the expected ones times a factor."""

    def replay(plan: HybridPlan) -> Replay:
        seen.append(plan)
        return Replay(
            plan_digest=digest_of(plan),
            torch_version="2.15.0",
            stages=tuple(
                ReplayedStage(
                    stage=place,
                    peaks=(
                        ReplayedPeak(
                            phase=Phase.BACKWARD,
                            allocated_bytes=int(factor * largest(stage).expected_bytes),
                        ),
                    ),
                )
                for place, stage in enumerate(plan.stages)
            ),
        )

    return replay


def test_a_replay_inside_the_interval_certifies_and_narrows() -> None:
    """0.05 % above the expected peak: one round, and the peaks are the replay's."""
    seen: list[HybridPlan] = []
    found = solve_with_replay(a_problem(96), replay_as(1.0005, seen))
    assert found.is_certified
    assert len(found.rounds) == len(seen) == 1
    assert isinstance(found.answer, Solution)
    error = REPLAY_ERROR[DeviceKind.EMULATED]
    for stage, before in zip(found.answer.plan.stages, seen[0].stages, strict=True):
        [peak] = stage.peaks
        replayed = int(1.0005 * largest(before).expected_bytes)
        assert peak.allocated.expected_bytes == replayed
        upper = min(replayed * (1 + error), largest(before).upper_bytes)
        assert peak.allocated.upper_bytes == pytest.approx(max(upper, replayed), abs=1)
        assert peak.device.upper_bytes >= peak.allocated.upper_bytes


def test_a_replay_does_not_cut_what_was_measured() -> None:
    """A profile saw workspaces inside kernels, and the replay is 0.8 % below it.

    The peak may lie as high as before, where a traced profile's upper bound is cut.
    """
    upper: dict[Source, int] = {}
    before: dict[Source, int] = {}
    for source in (Source.TRACED, Source.MEASURED):
        seen: list[HybridPlan] = []
        problem = a_problem(96, source=source, byte_error=0.05, kind=DeviceKind.CUDA)
        found = solve_with_replay(problem, replay_as(0.992, seen))
        assert len(found.rounds) == 1
        assert found.is_certified
        assert isinstance(found.answer, Solution)
        upper[source] = largest(found.answer.plan.stages[0]).upper_bytes
        before[source] = largest(seen[0].stages[0]).upper_bytes
    assert upper[Source.MEASURED] == before[Source.MEASURED]
    assert upper[Source.TRACED] < upper[Source.MEASURED]


def test_a_replay_narrows_a_trace_to_half_a_percent() -> None:
    """Whatever the formula's interval was, the replay's own takes its place."""
    found = solve_with_replay(a_problem(96, byte_error=0.2), replay_as(1.0, []))
    assert isinstance(found.answer, Solution)
    peak = largest(found.answer.plan.stages[0])
    assert peak.upper_bytes / peak.expected_bytes == pytest.approx(1.005, abs=1e-6)


def test_a_replay_outside_is_searched_again_with_wider_intervals() -> None:
    """Every stage holds 8 % more than thought: the next answer's bounds hold that."""
    seen: list[HybridPlan] = []
    problem = a_problem(96)
    found = solve_with_replay(problem, replay_as(1.08, seen))
    assert found.is_certified
    assert 1 < len(found.rounds) <= MOST_ROUNDS
    assert found.rounds[0].disagreements
    first, last = seen[0], seen[-1]
    assert largest(first.stages[0]).upper_bytes < 1.08 * (
        largest(first.stages[0]).expected_bytes
    )
    for stage in last.stages:
        replayed = 1.08 * largest(stage).expected_bytes
        assert largest(stage).upper_bytes >= replayed * 0.998


def test_more_devices_are_planned_where_the_replay_leaves_no_room() -> None:
    """A plan that only just fits is given up when its replay is 10 % above."""
    tight = next(
        memory
        for memory in range(40, 200)
        if isinstance(solve(a_problem(memory)), Solution)
        and largest_of(a_problem(memory)) > 0.97 * memory * MIB
    )
    before = solve(a_problem(tight))
    after = solve_with_replay(a_problem(tight), replay_as(1.10, [])).answer
    assert isinstance(before, Solution)
    if isinstance(after, Solution):
        assert after.plan != before.plan
        assert after.plan.peak_bytes is not None
        assert after.plan.peak_bytes <= tight * MIB
    else:
        assert isinstance(after, Infeasible)


def largest_of(problem: Problem) -> int:
    """Upper bound of the plan that a problem is answered with."""
    answer = solve(problem)
    assert isinstance(answer, Solution)
    return answer.plan.peak_bytes or 0


def test_widening_never_makes_a_proof() -> None:
    """A count that was not proven to fail is not after the intervals widened."""
    problem = a_problem(96)
    before = solve(problem)
    after = solve_with_replay(problem, replay_as(1.08, [])).answer
    open_before = {
        count.num_gpus
        for count in before.certificate.counts
        if count.verdict is not Verdict.FAILS
    }
    failing_after = {
        count.num_gpus
        for count in after.certificate.counts
        if count.verdict is Verdict.FAILS
    }
    assert not open_before & failing_after


def test_a_replay_that_never_agrees_ends_uncertified() -> None:
    """Each replay is twice the upper bound of its plan: five rounds, no certificate."""
    seen: list[HybridPlan] = []

    def replay(plan: HybridPlan) -> Replay:
        upper = largest(plan.stages[0])
        factor = 2 * upper.upper_bytes / upper.expected_bytes
        return replay_as(factor, seen)(plan)

    found = solve_with_replay(a_problem(10_000), replay)
    assert not found.is_certified
    assert len(found.rounds) == len(seen) == MOST_ROUNDS


def test_a_search_goes_on_from_its_first_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The search does not run a second time, and the plan at the end is the same."""
    problem = a_problem(96)
    whole = solve_with_replay(problem, replay_as(1.0, []))
    first = solve(problem)
    assert isinstance(first, Solution)
    seen: list[HybridPlan] = []
    monkeypatch.setattr(replayed, "solve", None)  # nobody calls it
    again = solve_with_replay(problem, replay_as(1.0, seen), first)
    assert seen == [first.plan]
    assert isinstance(whole.answer, Solution)
    assert isinstance(again.answer, Solution)
    assert again.answer.plan == whole.answer.plan


@pytest.mark.parametrize("factors", [(1.0,), (1.0, 0.5), (0.5, 1.0), (0, 1.0)])
def test_a_replay_that_agrees_certifies_a_placement(factors: tuple[float, ...]) -> None:
    """In whichever phase its peak is; both phases then have that of the replay."""
    found = solve_with_replay(
        a_tight_question(), lambda plan: placed_replay_of(plan, *factors)
    )
    assert found.is_certified
    assert isinstance(found.answer, Solution)
    before = found.rounds[0].plan
    for stage, first in zip(found.answer.plan.stages, before.stages, strict=True):
        assert len(stage.peaks) == sum(factor > 0 for factor in factors)
        assert largest(stage) == largest(first)


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_a_replay_outside_a_placement_ends_the_search(factor: float) -> None:
    """Nothing can be widened: one round, and the plan is not certified."""
    seen: list[HybridPlan] = []

    def replay(plan: HybridPlan) -> Replay:
        seen.append(plan)
        return placed_replay_of(plan, factor, 0.1)

    found = solve_with_replay(a_placed_question(), replay)
    assert len(seen) == len(found.rounds) == 1
    assert not found.is_certified
    assert not found.waits
    [round_] = found.rounds
    assert len(round_.disagreements) == len(seen[0].stages)
    assert isinstance(found.answer, Solution)
    assert found.answer.plan == seen[0]
