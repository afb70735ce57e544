"""The rehearsal between the replay and the ranks: when, and what follows from it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from plimsoll_operator.api.reasons import DRY_RUN
from plimsoll_operator.api.status import Condition, ConditionType, Status, Truth
from plimsoll_operator.rules.actions import (
    Clear,
    RecordPlan,
    StartProfile,
    StartRehearsal,
    StoreRehearsal,
    WakeAt,
)
from plimsoll_operator.rules.decide import Decision, decide
from plimsoll_operator.rules.observed_state import (
    Attempt,
    Ending,
    ObservedAnswer,
    ObservedProfile,
    ObservedRehearsal,
    ObservedState,
    ObservedTask,
    TaskKind,
    TaskState,
)
from plimsoll_operator.rules.rehearsing import NO_DEVICE
from plimsoll_planner.records.document import digest_of
from tests.support.builders import a_solution, an_infeasible
from tests.support.plan_world import World
from tests.support.specs import a_spec

NOW_S, LIMIT_S = 10_000.0, 600
PLAN = digest_of(a_solution().plan)
ANSWER = ObservedAnswer(
    answer=a_solution(), headline="3 GPUs", is_certified=True, plan_digest=PLAN
)
READY = ObservedState(
    profile=ObservedProfile(source="measured", made_s=9000.0, was_cached=False),
    profile_key="request",
    answer=ANSWER,
    has_device=True,
)
REHEARSES = ObservedTask(
    kind=TaskKind.REHEARSAL,
    subject=PLAN,
    state=TaskState.RUNNING,
    since_s=NOW_S - 1,
    started_s=NOW_S - 1,
)
FITS = ObservedRehearsal(fits=True, message="rank 0 held 1 MiB")
RAN_OUT = ObservedRehearsal(fits=False, message="rank 0 ran out")
DISRUPTED = Attempt(
    number=1,
    plan_digest=PLAN,
    recorded_s=NOW_S - 50,
    ending=Ending.DISRUPTED,
    ended_s=NOW_S - 9,
    generation=1,
)


def decided(seen: ObservedState, rehearse: str = "Always", **parts: Any) -> Decision:
    """Decide on a look, under a wish for rehearsals."""
    launch = {"rehearse": rehearse} | parts.pop("launch", {})
    given = {"runPolicy": {"pendingSeconds": LIMIT_S}, "launch": launch}
    return decide(a_spec(**(given | parts)), Status(), seen, generation=1, now_s=NOW_S)


def certified(decision: Decision) -> Condition:
    """What is said of Certified."""
    found = decision.status.condition(ConditionType.CERTIFIED)
    assert found is not None
    return found


def with_task(**fields: Any) -> ObservedState:
    """A look at the rehearsal of the plan as a task."""
    return replace(READY, tasks=(replace(REHEARSES, **fields),))


def with_result(result: ObservedRehearsal, **fields: Any) -> ObservedState:
    """A look at a plan that was rehearsed."""
    return replace(READY, answer=replace(ANSWER, rehearsal=result), **fields)


@pytest.mark.parametrize(
    ("rehearse", "has_device", "is_rehearsed"),
    [
        ("Never", True, False),
        ("IfDevice", True, True),
        ("IfDevice", False, False),
        ("Always", True, True),
        ("Always", False, True),
    ],
)
def test_a_plan_is_rehearsed_as_a_person_wishes(
    rehearse: str, has_device: bool, is_rehearsed: bool
) -> None:
    """Before it is launched; where it is not, its replay certifies it."""
    seen = replace(READY, has_device=has_device)
    found = decided(seen, rehearse)
    said = certified(found)
    if is_rehearsed:
        assert found.actions == (StartRehearsal(digest=PLAN),)
        assert (said.status, said.reason) == (Truth.UNKNOWN, "Rehearsing")
    else:
        assert isinstance(found.actions[0], RecordPlan)
        assert (said.status, said.reason) == (Truth.TRUE, "Replayed")


@pytest.mark.parametrize("has_device", [True, False])
@pytest.mark.parametrize("rehearse", ["IfDevice", "Always"])
def test_what_a_rehearsal_found_counts_though_its_device_has_gone(
    rehearse: str, has_device: bool
) -> None:
    """A plan that fits is launched, one that does not is not."""
    fits = decided(with_result(FITS, has_device=has_device), rehearse)
    said = certified(fits)
    assert (said.status, said.reason) == (Truth.TRUE, "Rehearsed")
    assert said.message == FITS.message
    assert isinstance(fits.actions[0], RecordPlan)
    failed = decided(with_result(RAN_OUT, has_device=has_device), rehearse)
    assert certified(failed).reason == "RehearsalOOM"
    assert failed.actions == ()
    assert failed.status.is_over


def test_a_task_that_is_done_is_stored_and_cleared_when_it_is_known() -> None:
    """First the one, then the other: what crashes between them loses nothing."""
    done = replace(REHEARSES, state=TaskState.ENDED, ending=Ending.DONE)
    found = decided(replace(READY, tasks=(done,)))
    assert found.actions == (StoreRehearsal(task=done),)
    known = decided(with_result(FITS, tasks=(done,)))
    assert known.actions[0] == Clear(task=done)
    assert isinstance(known.actions[1], RecordPlan)


def test_rehearsals_of_plans_that_nobody_asks_for_are_cleared_away() -> None:
    """Whether or not another one is wanted."""
    stale = replace(REHEARSES, subject="another")
    seen = replace(READY, tasks=(stale,))
    assert decided(seen).actions == (Clear(task=stale), StartRehearsal(digest=PLAN))
    assert decided(seen, "Never").actions[0] == Clear(task=stale)
    waits = replace(
        seen,
        answer=ObservedAnswer(answer=a_solution(), unreplayed=PLAN, plan_digest=PLAN),
    )
    assert Clear(task=stale) in decided(waits).actions


def test_a_training_that_rests_takes_no_device() -> None:
    """One that runs already goes on; what it finds counts later."""
    found = decided(READY, suspend=True)
    assert found.actions == ()
    assert certified(found).status is Truth.UNKNOWN
    launched = found.status.condition(ConditionType.LAUNCHED)
    assert launched is not None
    assert launched.reason == "Suspended"
    assert decided(with_task(), suspend=True).actions == ()


def test_a_wish_without_a_device_ends_with_the_wait_for_one() -> None:
    """The task stays as a mark, so that the plan is launched and waits only once."""
    waits = {"state": TaskState.PENDING, "started_s": 0.0}
    seen = with_task(**waits, since_s=NOW_S - LIMIT_S + 1)
    assert decided(seen, "IfDevice").actions == (WakeAt(at_s=NOW_S + 1),)
    late = with_task(**waits, since_s=NOW_S - LIMIT_S)
    found = decided(late, "IfDevice")
    assert certified(found).reason == "Replayed"
    assert certified(found).message == NO_DEVICE
    [record] = found.actions
    assert isinstance(record, RecordPlan)
    must = decided(late, "Always")
    assert certified(must).reason == "RehearsalPendingTimeout"
    assert must.status.is_over


def test_a_busy_device_is_as_good_as_none() -> None:
    """The plan is launched without a rehearsal, which says why; if it must, it ends."""
    busy = with_task(
        state=TaskState.ENDED,
        ending=Ending.DEVICE_BUSY,
        message="others have 5 GiB of the device",
    )
    found = decided(busy, "IfDevice")
    assert certified(found).reason == "Replayed"
    assert certified(found).message == "not rehearsed: others have 5 GiB of the device"
    [record] = found.actions
    assert isinstance(record, RecordPlan)
    must = decided(busy, "Always")
    assert certified(must).reason == "RehearsalDeviceBusy"
    assert must.status.is_over


def test_a_plan_that_was_launched_before_takes_no_device_for_a_wish() -> None:
    """Its ranks have shown more; it would only hold them up after a disruption."""
    seen = replace(READY, attempts=(DISRUPTED,))
    assert isinstance(decided(seen, "IfDevice").actions[0], RecordPlan)
    assert decided(seen, "Always").actions == (StartRehearsal(digest=PLAN),)
    other = replace(DISRUPTED, plan_digest="another")
    seen = replace(READY, attempts=(other,))
    assert decided(seen, "IfDevice").actions == (StartRehearsal(digest=PLAN),)


def test_a_rehearsal_follows_a_replay_that_was_left_out() -> None:
    """What it held is said beside that; other ranks are as uncertain as before."""
    replay = ObservedTask(
        kind=TaskKind.REPLAY,
        subject=PLAN,
        state=TaskState.ENDED,
        since_s=NOW_S - 5,
        ending=Ending.APPLICATION_ERROR,
        message="it broke",
    )
    answer = ObservedAnswer(answer=a_solution(), unreplayed=PLAN, plan_digest=PLAN)
    seen = replace(READY, answer=answer, tasks=(replay,))
    loose = {"requireCertified": False}
    found = decided(seen, launch=loose)
    assert found.actions == (StartRehearsal(digest=PLAN),)
    seen = replace(seen, answer=replace(answer, rehearsal=FITS))
    found = decided(seen, launch=loose)
    said = certified(found)
    assert (said.status, said.reason) == (Truth.UNKNOWN, "Skipped")
    assert said.message == f"it broke; {FITS.message}"
    assert isinstance(found.actions[0], RecordPlan)
    strict = decided(replace(seen, answer=answer))
    assert certified(strict).reason == "ReplayFailed"


def test_a_rehearsal_waits_for_the_replay() -> None:
    """A device is taken for plans alone that hold in their replay."""
    answer = ObservedAnswer(answer=a_solution(), unreplayed=PLAN, plan_digest=PLAN)
    found = decided(replace(READY, answer=answer))
    assert certified(found).reason == "Replaying"
    assert not any(isinstance(one, StartRehearsal) for one in found.actions)


def test_other_code_than_was_profiled_is_profiled_again() -> None:
    """As a replay that finds it: the profile was there before; else it is a fault."""
    foreign = replace(
        REHEARSES,
        state=TaskState.ENDED,
        ending=Ending.FOREIGN_FINGERPRINT,
        message="new",
    )
    cached = ObservedProfile(source="measured", made_s=9000.0, was_cached=True)
    seen = replace(READY, profile=cached, tasks=(foreign,))
    assert decided(seen).actions == (StartProfile(request_key="request"),)
    again = replace(cached, made_s=NOW_S, was_cached=False)
    found = decided(replace(seen, profile=again))
    assert found.actions == (Clear(task=foreign),)
    assert certified(found).reason == "Rehearsing"
    fault = decided(replace(READY, tasks=(foreign,)))
    assert certified(fault).reason == "ForeignFingerprint"
    assert fault.status.is_over


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({}, "runPolicy.oomReplanLimit lets 2 other plans be looked for: raise it"),
        ({"override": {"gpus": 4}}, "what spec.override fixes is not planned around"),
    ],
)
def test_a_plan_that_is_not_planned_around_says_why(
    spec: dict[str, Any], told: str
) -> None:
    """After what the rank lacked."""
    limit = {"pendingSeconds": LIMIT_S, "oomReplanLimit": 2}
    found = decided(with_result(RAN_OUT), runPolicy=limit, **spec)
    assert certified(found).message.startswith(f"{RAN_OUT.message}; {told}")


def test_a_plan_says_which_one_ran_out_before_it() -> None:
    """While the search is under way, beside what fits, and where nothing does."""
    refuted = "the plan before ran out"

    def said(seen: ObservedState, kind: ConditionType) -> tuple[str, str]:
        found = decided(replace(seen, refuted=refuted)).status.condition(kind)
        assert found is not None
        return found.reason, found.message

    looking = replace(READY, answer=None)
    assert said(looking, ConditionType.PLANNED) == ("Solving", refuted)
    fits = with_result(FITS)
    assert said(fits, ConditionType.PLANNED) == ("Proven", "3 GPUs")
    told = f"{FITS.message}; {refuted}"
    assert said(fits, ConditionType.CERTIFIED) == ("Rehearsed", told)
    nothing = ObservedAnswer(answer=an_infeasible(), headline="nothing fits")
    told = f"nothing fits; {refuted}"
    seen = replace(READY, answer=nothing)
    assert said(seen, ConditionType.PLANNED) == ("Infeasible", told)


def a_world(rehearse: str = "Always", **fields: Any) -> World:
    """Ask for a training that is rehearsed."""
    spec = a_spec(launch={"rehearse": rehearse}, **fields.pop("spec", {}))
    return World(**({"spec": spec, "answer": a_solution()} | fields))


def summary(world: World) -> tuple[Truth, str]:
    """How a plan ended."""
    found = world.status.condition(ConditionType.SUCCEEDED)
    assert found is not None
    return found.status, found.reason


@pytest.mark.parametrize(
    ("verdicts", "spec", "end", "num_rehearsed"),
    [
        ([True], {}, (Truth.TRUE, "Trained"), 1),
        ([False, True], {}, (Truth.TRUE, "Trained"), 2),
        ([False, False, True], {}, (Truth.TRUE, "Trained"), 3),
        ([False] * 9, {}, (Truth.FALSE, "RehearsalOOM"), 3),
        (
            [False] * 9,
            {"runPolicy": {"oomReplanLimit": 0}},
            (Truth.FALSE, "RehearsalOOM"),
            1,
        ),
        ([False] * 9, {"override": {"gpus": 1}}, (Truth.FALSE, "RehearsalOOM"), 1),
    ],
)
def test_what_follows_rehearsals(
    verdicts: list[bool],
    spec: dict[str, Any],
    end: tuple[Truth, str],
    num_rehearsed: int,
) -> None:
    """Another plan is rehearsed, as often as is allowed; none of them twice."""
    world = a_world(verdicts=list(verdicts), spec=spec)
    world.run()
    assert summary(world) == end
    assert len(world.rehearsed) == num_rehearsed
    began = [kind for kind, _ in world.started]
    assert began.count(TaskKind.REHEARSAL) == num_rehearsed
    assert not world.tasks
    assert world.gangs == ([1] if end[0] is Truth.TRUE else [])


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("place", range(24))
@pytest.mark.parametrize("endings", [[], [Ending.OUT_OF_MEMORY]])
def test_a_crash_around_any_effect_of_a_rehearsal_changes_nothing(
    place: int, is_after: bool, endings: list[Ending]
) -> None:
    """The same plans are rehearsed, and the same gangs started, as without."""

    def ended(**fields: Any) -> World:
        world = a_world(
            verdicts=[False], endings={TaskKind.TRAIN: list(endings)}, **fields
        )
        world.run()
        return world

    undisturbed, world = ended(), ended(crash_at=(place, is_after))
    assert world.crash_at is None, "there are fewer effects than that"
    assert summary(world) == summary(undisturbed) == (Truth.TRUE, "Trained")
    assert world.rehearsed == undisturbed.rehearsed
    assert world.gangs == undisturbed.gangs
    assert not world.tasks


@pytest.mark.parametrize(
    ("ending", "end"),
    [
        (Ending.APPLICATION_ERROR, (Truth.FALSE, "RehearsalFailed")),
        (Ending.HOST_OUT_OF_MEMORY, (Truth.FALSE, "RehearsalHostOOM")),
        (Ending.OUT_OF_MEMORY, (Truth.FALSE, "RehearsalFailed")),
        (Ending.TIMED_OUT, (Truth.FALSE, "RehearsalTimeout")),
        (Ending.DISRUPTED, (Truth.TRUE, "Trained")),
        (Ending.DELETED, (Truth.TRUE, "Trained")),
    ],
)
@pytest.mark.parametrize("rehearse", ["IfDevice", "Always"])
def test_how_a_rehearsal_ends_that_gives_no_result(
    rehearse: str, ending: Ending, end: tuple[Truth, str]
) -> None:
    """Disturbed, it begins anew; what failed ends the plan, and nothing is launched."""
    world = a_world(rehearse, endings={TaskKind.REHEARSAL: [ending]})
    world.run()
    assert summary(world) == end
    assert not world.tasks
    assert bool(world.gangs) is (end[0] is Truth.TRUE)


def test_a_dry_run_is_rehearsed_as_well() -> None:
    """It ends when its rank has fitted, and nothing is launched."""
    spec = a_spec(launch={"policy": "PlanOnly", "rehearse": "Always"})
    world = World(spec=spec, answer=a_solution(), verdicts=[False])
    world.run()
    assert summary(world) == (Truth.TRUE, DRY_RUN)
    assert list(world.rehearsed.values()) == [False, True]
    assert world.gangs == []


def test_a_plan_that_is_suspended_again_and_again_is_rehearsed_once() -> None:
    """Whenever that is."""
    for first in range(12):
        world = a_world()
        world.run(toggles=(first, first + 4))
        assert summary(world) == (Truth.TRUE, "Trained")
        began = [kind for kind, _ in world.started]
        assert began.count(TaskKind.REHEARSAL) == 1
