"""The decision, run against a home made of memory: it converges, whatever happens."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_operator.api.spec import Rehearse, parse_spec
from plimsoll_operator.api.status import (
    CheckpointsStatus,
    ConditionType,
    Failures,
    Status,
    Truth,
)
from plimsoll_operator.rules.decide import decide
from plimsoll_operator.rules.failures import FIRST_WAIT_S
from plimsoll_operator.rules.observed_state import (
    Ending,
    ObservedProfile,
    ObservedState,
    TaskKind,
)
from plimsoll_operator.rules.step_result import StepInput
from plimsoll_operator.rules.task_steps import LEAST_S
from plimsoll_planner.records.problem import BatchStatistics
from tests.support.builders import a_solution, an_infeasible
from tests.support.drawing import draws
from tests.support.plan_world import ANOTHER_PLAN, World
from tests.support.specs import a_spec

MEASURED = ObservedProfile(source="measured", made_s=1.0, was_cached=True)


def a_world(spec: dict[str, Any] | None = None, **fields: Any) -> World:
    """Ask for a training of 60 steps."""
    given = {"spec": a_spec(**(spec or {})), "answer": a_solution()}
    return World(**(given | fields))


def ended(world: World) -> tuple[Truth, str]:
    """Ending of the plan."""
    found = world.status.condition(ConditionType.SUCCEEDED)
    assert found is not None
    return found.status, found.reason


def test_a_plan_is_profiled_planned_certified_and_trained() -> None:
    """One condition after the other comes true; nothing is left behind."""
    world = a_world()
    world.run()
    assert ended(world) == (Truth.TRUE, "Trained")
    assert world.gangs == [1]
    assert not world.tasks
    said = {c.type: (c.status, c.reason) for c in world.status.conditions}
    assert said[ConditionType.PROFILED] == (Truth.TRUE, "Measured")
    assert said[ConditionType.CERTIFIED] == (Truth.TRUE, "Replayed")
    assert said[ConditionType.LAUNCHED] == (Truth.TRUE, "Started")
    assert world.status.completion_time > world.status.start_time


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("place", range(23))
@pytest.mark.parametrize(
    "endings", [[], [Ending.OUT_OF_MEMORY], [Ending.DISRUPTED, Ending.DISRUPTED]]
)
def test_a_crash_around_any_effect_changes_nothing(
    place: int, is_after: bool, endings: list[Ending]
) -> None:
    """Before or after each: as many gangs as without, and the same end."""
    undisturbed = a_world(endings={TaskKind.TRAIN: list(endings)})
    undisturbed.run()
    world = a_world(endings={TaskKind.TRAIN: list(endings)}, crash_at=(place, is_after))
    world.run()
    assert world.crash_at is None, "there are fewer effects than that"
    assert ended(world) == ended(undisturbed) == (Truth.TRUE, "Trained")
    assert world.gangs == undisturbed.gangs
    assert world.status.failures == undisturbed.status.failures
    assert not world.tasks


TABLE: list[tuple[list[Ending], dict[str, Any], tuple[Truth, str], int]] = [
    ([Ending.OUT_OF_MEMORY] * 2, {}, (Truth.TRUE, "Trained"), 3),
    ([Ending.OUT_OF_MEMORY] * 3, {}, (Truth.FALSE, "GPUOutOfMemory"), 3),
    (
        [Ending.OUT_OF_MEMORY],
        {"override": {"gpus": 1}},
        (Truth.FALSE, "GPUOutOfMemory"),
        1,
    ),
    ([Ending.APPLICATION_ERROR] * 3, {}, (Truth.TRUE, "Trained"), 4),
    ([Ending.APPLICATION_ERROR] * 4, {}, (Truth.FALSE, "AppError"), 4),
    (
        [Ending.APPLICATION_ERROR],
        {"runPolicy": {"backoffLimit": 0}},
        (Truth.FALSE, "AppError"),
        1,
    ),
    ([Ending.HOST_OUT_OF_MEMORY] * 4, {}, (Truth.FALSE, "HostOOMKilled"), 4),
    ([Ending.DELETED] * 4, {}, (Truth.FALSE, "ChildDeleted"), 4),
    ([Ending.DISRUPTED] * 9, {}, (Truth.TRUE, "Trained"), 10),
    ([Ending.FOREIGN_FINGERPRINT], {}, (Truth.TRUE, "Trained"), 2),
    ([Ending.FOREIGN_FINGERPRINT] * 2, {}, (Truth.FALSE, "ForeignFingerprint"), 2),
    ([Ending.BAD_WORKLOAD], {}, (Truth.FALSE, "BadWorkload"), 1),
    ([Ending.INCOMPATIBLE], {}, (Truth.FALSE, "TrainerIncompatible"), 1),
    ([Ending.UNUSABLE_CHECKPOINT], {}, (Truth.FALSE, "UnusableCheckpoint"), 1),
    ([Ending.UNEQUAL_REPLICAS], {}, (Truth.FALSE, "UnequalReplicas"), 1),
    ([Ending.NO_LOSS], {}, (Truth.FALSE, "NoLoss"), 1),
    (
        [Ending.ENTRY_POINT_OUT_OF_MEMORY],
        {},
        (Truth.FALSE, "EntryPointOutOfMemory"),
        1,
    ),
    ([Ending.TIMED_OUT], {}, (Truth.FALSE, "DeadlineExceeded"), 1),
    ([Ending.NEVER_STARTED], {}, (Truth.FALSE, "PendingTimeout"), 1),
]


@pytest.mark.parametrize(("endings", "spec", "end", "num_gangs"), TABLE)
def test_what_follows_the_end_of_attempts(
    endings: list[Ending],
    spec: dict[str, Any],
    end: tuple[Truth, str],
    num_gangs: int,
) -> None:
    """The table of failures, row by row, at its limits."""
    world = a_world(spec, endings={TaskKind.TRAIN: list(endings)})
    world.run()
    assert ended(world) == end
    assert world.gangs == list(range(1, num_gangs + 1))
    assert not world.tasks
    for attempt, after in pairwise(world.attempts):
        is_another = after.plan != attempt.plan
        assert is_another == (attempt.ending in ANOTHER_PLAN)


def test_what_a_person_fixed_fails_with_the_count_that_is_certified() -> None:
    """The message names it where it is known: what to do instead stands there."""
    for fewest, told in (
        (3, "without it 3 GPUs are proven to be the fewest"),
        (None, ""),
    ):
        world = a_world(
            {"override": {"gpus": 1}},
            answer=a_solution(fewest_unfixed=fewest),
            endings={TaskKind.TRAIN: [Ending.OUT_OF_MEMORY]},
        )
        world.run()
        said = world.status.condition(ConditionType.SUCCEEDED)
        assert said is not None
        assert said.reason == "GPUOutOfMemory"
        assert said.message.endswith(told or "take it away, or fix less")


@pytest.mark.parametrize(
    ("override", "reason"), [({}, "Trained"), ({"gpus": 1}, "GPUOutOfMemory")]
)
def test_a_micro_batch_that_batch_norm_needs_is_planned_around(
    override: dict[str, int], reason: str
) -> None:
    """Out of memory asks for another plan, unless more than that is fixed.

    It ended with the advice to take the micro-batch away, which the planner refuses.
    """
    world = a_world(
        {"override": {"microBatch": 2} | override},
        profile=replace(MEASURED, has_batch_statistics=True),
        endings={TaskKind.TRAIN: [Ending.OUT_OF_MEMORY]},
    )
    world.run()
    assert ended(world)[1] == reason


@pytest.mark.parametrize(
    ("profile", "chosen_by", "is_by_hand"),
    [
        (None, "FixedMicroBatch", False),
        (MEASURED, "FixedMicroBatch", True),
        (MEASURED, "PerMicroBatch", True),
        (replace(MEASURED, has_batch_statistics=True), "FixedMicroBatch", False),
        (replace(MEASURED, has_batch_statistics=True), "PerMicroBatch", True),
    ],
)
def test_a_micro_batch_alone_is_by_hand_where_nothing_needs_it(
    profile: ObservedProfile | None, chosen_by: str, is_by_hand: bool
) -> None:
    """While no profile is seen nobody knows, and giving up is final."""
    spec = a_spec(override={"microBatch": 2})
    statistics = BatchStatistics(chosen_by)
    training = replace(spec.training, batch_statistics=statistics)
    look = StepInput(
        spec=replace(spec, training=training),
        state=ObservedState(profile=profile),
        generation=1,
        now_s=1.0,
    )
    assert look.is_fixed_by_hand is is_by_hand


@pytest.mark.parametrize("ending", [Ending.APPLICATION_ERROR, Ending.BAD_WORKLOAD])
def test_failures_before_an_edit_do_not_count(ending: Ending) -> None:
    """A plan that was given up and is opened again goes on with its next attempt."""
    world = a_world(
        {"runPolicy": {"backoffLimit": 0}}, endings={TaskKind.TRAIN: [ending] * 2}
    )
    world.run()
    assert ended(world)[0] is Truth.FALSE
    for generation in (2, 3):
        world.generation, world.status = generation, Status()
        world.run()
        assert world.gangs == list(range(1, generation + 1))
    assert ended(world) == (Truth.TRUE, "Trained")
    assert world.status.failures == Failures()


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        (Ending.OUT_OF_MEMORY, "ProfileOOM"),
        (Ending.TIMED_OUT, "ProfileTimeout"),
        (Ending.BAD_WORKLOAD, "BadWorkload"),
        (Ending.INCOMPATIBLE, "TrainerIncompatible"),
        (Ending.ENTRY_POINT_OUT_OF_MEMORY, "EntryPointOutOfMemory"),
        (Ending.APPLICATION_ERROR, "ProfileFailed"),
        (Ending.NEVER_STARTED, "ProfilePendingTimeout"),
    ],
)
def test_a_profile_that_fails_ends_the_plan(ending: Ending, reason: str) -> None:
    """With its own reason in Profiled and in the summary; nothing is launched."""
    world = a_world(endings={TaskKind.PROFILE: [ending]})
    world.run()
    assert ended(world) == (Truth.FALSE, reason)
    assert world.gangs == []


def test_an_image_that_cannot_train_is_not_accepted() -> None:
    """The profiling pod found its torch too old: Accepted says so, with its line."""
    world = a_world(endings={TaskKind.PROFILE: [Ending.INCOMPATIBLE]})
    world.run()
    said = world.status.condition(ConditionType.ACCEPTED)
    assert said is not None
    assert (said.status, said.reason) == (Truth.FALSE, "TrainerIncompatible")
    assert said.message
    assert not world.tasks


def test_a_profile_that_is_killed_is_taken_again() -> None:
    """Nothing was wrong with it."""
    world = a_world(endings={TaskKind.PROFILE: [Ending.DISRUPTED, Ending.DELETED]})
    world.run()
    assert ended(world) == (Truth.TRUE, "Trained")


def waits_s(world: World, kind: TaskKind) -> list[float]:
    """Seconds between the starts of tasks of a kind."""
    starts = [at_s for one, at_s in world.started if one is kind]
    return [later - earlier for earlier, later in pairwise(starts)]


def test_a_profile_that_is_killed_each_time_is_not_taken_in_a_hurry() -> None:
    """Whatever kills it, as a guard of the machine's memory, has time to be noticed."""
    world = a_world(endings={TaskKind.PROFILE: [Ending.DISRUPTED] * 5})
    world.run()
    assert ended(world) == (Truth.TRUE, "Trained")
    waits = waits_s(world, TaskKind.PROFILE)
    assert len(waits) == 5
    assert min(waits) >= LEAST_S


def test_attempts_that_are_disrupted_soon_each_time_wait_longer_and_longer() -> None:
    """Two are tried again at once; one that ran for a while is where counting ends."""
    world = a_world(endings={TaskKind.TRAIN: [Ending.DISRUPTED] * 6})
    world.run()
    first, second, *later = waits_s(world, TaskKind.TRAIN)
    assert max(first, second) < FIRST_WAIT_S
    assert [round(wait / FIRST_WAIT_S) for wait in later] == [1, 2, 4, 8]


def test_nothing_fits() -> None:
    """Infeasible is a result: the message says what would do."""
    world = a_world(answer=an_infeasible())
    world.run()
    assert ended(world) == (Truth.FALSE, "Infeasible")
    planned = world.status.condition(ConditionType.PLANNED)
    assert planned is not None
    assert planned.message == an_infeasible().nearest_change


def test_the_folder_of_checkpoints_is_in_the_status_of_what_is_launched() -> None:
    """A dry run saves nothing."""
    world, saves = a_world(), CheckpointsStatus(claim_name="ckpt", folder="uid")
    state = replace(world.seen(), checkpoints=saves)
    now: dict[str, Any] = {"generation": 1, "now_s": 1.0}
    assert decide(world.spec, Status(), state, **now).status.checkpoints == saves
    dry = a_spec(launch={"policy": "PlanOnly"})
    assert decide(dry, Status(), state, **now).status.checkpoints is None


def test_trained_weights_are_in_the_status_once_they_are_written() -> None:
    """Beside the checkpoints, if that is asked for and the job has ended well."""
    saves = CheckpointsStatus(claim_name="ckpt", folder="uid")
    for asked, weights in ((True, "uid/weights"), (False, None)):
        checkpoint = {"exportWeights": asked, "claimName": "ckpt"}
        world = a_world({"checkpoint": checkpoint}, checkpoints=saves)
        assert world.decided(Status()).status.checkpoints == saves
        world.run()
        assert world.status.checkpoints is not None
        assert world.status.checkpoints.weights == weights


def test_a_dry_run_starts_nothing() -> None:
    """It succeeds with a plan that is certified."""
    world = a_world({"launch": {"policy": "PlanOnly"}})
    world.run()
    assert ended(world) == (Truth.TRUE, "PlanOnly")
    assert world.status.holds(ConditionType.CERTIFIED)
    assert world.gangs == []


def test_a_run_over_its_time_saves_and_ends() -> None:
    """It is asked to stop, and not resumed after that."""
    world = a_world({"runPolicy": {"runningSeconds": 1}})
    world.run()
    assert ended(world) == (Truth.FALSE, "DeadlineExceeded")
    assert world.gangs == [1]


def test_a_suspended_plan_waits_and_goes_on() -> None:
    """Suspended in the run: the ranks save and leave, a new attempt resumes."""
    world = a_world()
    while not world.live_gangs():
        world.one_pass()
        world.now_s += 1
        world.advance()
    running = world.spec
    world.spec = parse_spec(world.spec.to_json() | {"suspend": True})
    world.run()
    assert world.status.condition(ConditionType.LAUNCHED).reason == "Suspended"  # type: ignore[union-attr]
    assert not world.status.is_over
    world.spec = running
    world.run()
    assert ended(world) == (Truth.TRUE, "Trained")
    assert world.gangs == [1, 2]
    assert world.status.failures.application == 0


ENDINGS = st.sampled_from([e for e in Ending if e is not Ending.DONE])
SCRIPTS = st.fixed_dictionaries(
    {kind: st.lists(ENDINGS, max_size=4) for kind in TaskKind}
)


@settings(max_examples=draws(300))
@given(
    SCRIPTS,
    st.integers(0, 80),
    st.booleans(),
    st.booleans(),
    st.lists(st.integers(0, 30), max_size=4, unique=True),
    st.dictionaries(st.integers(0, 30), st.floats(-500, 500), max_size=2),
    st.sampled_from(Rehearse),
    st.lists(st.booleans(), max_size=4),
)
def test_every_plan_comes_to_an_end(
    endings: dict[TaskKind, list[Ending]],
    place: int,
    is_after: bool,
    was_replayed: bool,
    toggles: list[int],
    clock_steps: dict[int, float],
    rehearse: Rehearse,
    verdicts: list[bool],
) -> None:
    """Whatever its tasks end by, wherever a crash falls, whenever it is suspended.

    Also where somebody sets the clock meanwhile, and where the first plan was replayed
    before.

    At most one gang lives at a time, each attempt has one gang at most, attempts are
    numbered without a gap, and nothing is left behind.
    """
    scripts = {kind: list(script) for kind, script in endings.items()}
    world = a_world(
        {"launch": {"rehearse": rehearse}},
        endings=scripts,
        crash_at=(place, is_after),
        verdicts=list(verdicts),
    )
    world.replayed = {world.digest} if was_replayed else set()
    world.run(toggles=toggles, clock_steps=clock_steps, most_passes=3000)
    assert world.status.is_over
    assert not world.tasks
    assert world.gangs == sorted(set(world.gangs))
    assert [a.number for a in world.attempts] == list(range(1, len(world.attempts) + 1))
    truth, reason = ended(world)
    if rehearse is Rehearse.ALWAYS:
        launched = {one.plan_digest for one in world.attempts}
        assert launched <= {digest for digest, fits in world.rehearsed.items() if fits}
    if truth is Truth.TRUE:
        assert reason == "Trained"
        assert world.attempts[-1].ending is Ending.DONE
