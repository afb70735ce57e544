"""A plan that is revised while its ranks run: one look, one decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from plimsoll_operator.api.status import Status
from plimsoll_operator.rules.actions import (
    Action,
    OfferRevision,
    RecordEnding,
    RecordPlan,
    RecordRevision,
    Revise,
    RevisionAction,
    SettleRevision,
    WakeAt,
)
from plimsoll_operator.rules.decide import Decision, decide
from plimsoll_operator.rules.observed_state import (
    Attempt,
    Ending,
    ObservedAnswer,
    ObservedProfile,
    ObservedState,
    ObservedTask,
    RecordedRevision,
    RevisionState,
    RunningPlan,
    TaskKind,
    TaskState,
)
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.observation import Observation
from plimsoll_planner.records.plan import HybridPlan, Phase
from plimsoll_planner.records.revision import Cause
from plimsoll_planner.revising.observed import ObservedStages
from plimsoll_planner.revising.revise import Stays
from tests.support.builders import a_revision, a_solution, an_observation
from tests.support.placed_questions import a_placed_question
from tests.support.questions import solved
from tests.support.specs import a_spec

NOW_S = 10_000.0
SOLUTION = a_solution()
PLAN, LIMITS = SOLUTION.plan, SOLUTION.certificate.space.limits
REVISION = a_revision(PLAN)
SLOW = ObservedStages(passes_s=(1.0, 2.0), lacking_bytes=(0, 0), cause=Cause.PACE)
AS_PLANNED = replace(SLOW, cause=None)
BEGUN = Attempt(
    number=1, plan_digest=digest_of(PLAN), problem_digest="asked", recorded_s=9000.0
)
RUNNING = ObservedTask(
    kind=TaskKind.TRAIN,
    subject="1",
    state=TaskState.RUNNING,
    since_s=9100.0,
    started_s=9100.0,
)
OFFERED = RecordedRevision(revision=REVISION, made_s=9990.0)


def running(plan: HybridPlan = PLAN, **fields: Any) -> ObservedState:
    """Look at an attempt that runs by a plan."""
    defaults: dict[str, Any] = {"stages": SLOW, "steps_left": 1000}
    found = RunningPlan(plan=plan, limits=LIMITS, **(defaults | fields))
    return ObservedState(attempts=(BEGUN,), tasks=(RUNNING,), running=found)


def decided(seen: ObservedState, **policy: Any) -> Decision:
    """Decide on a look."""
    spec = a_spec(runPolicy=policy)
    return decide(spec, Status(), seen, generation=1, now_s=NOW_S)


def actions(seen: ObservedState, **policy: Any) -> list[Action]:
    """Actions on revisions, and when to look again."""
    kinds = RevisionAction, WakeAt
    return [one for one in decided(seen, **policy).actions if isinstance(one, kinds)]


def reports(plan: HybridPlan, **fields: Any) -> tuple[Observation, ...]:
    """A report of each rank that runs by a plan."""
    return tuple(
        an_observation(
            rank=rank, plan_digest=digest_of(plan), revision=plan.revision, **fields
        )
        for rank in range(plan.num_gpus)
    )


def test_a_plan_is_looked_at_once_it_is_not_as_planned() -> None:
    """And not while all is as planned, nothing is known, or nobody wants it."""
    assert actions(running()) == [Revise()]
    assert actions(running(stages=AS_PLANNED)) == []
    assert actions(running(stages=None)) == []
    assert actions(running(), replanOnline=False) == []
    assert actions(replace(running(), running=None)) == []


def test_placed_operators_stay_where_they_are() -> None:
    """No search is asked for: their ranks follow no revision."""
    placed = solved(a_placed_question()).plan
    assert placed.placement is not None
    assert actions(running(plan=placed)) == []


def test_an_answer_counts_until_something_else_is_seen() -> None:
    """A revision is written down; where the plan stays, nobody asks again."""
    record = RecordRevision(attempt=1, revision=REVISION)
    assert actions(running(answer=REVISION)) == [record]
    assert actions(running(answer=Stays(reason="it is the best"))) == []


def test_the_message_says_why_a_plan_stays() -> None:
    """Beside what the steps took; not where all is as planned again."""

    def message(**fields: Any) -> str:
        seen = replace(running(stays="moves take too long", **fields), step_fault="3 s")
        [found] = [c for c in decided(seen).status.conditions if c.reason == "Running"]
        return found.message

    text = "stages are not as planned (Pace), and the plan stays: moves take too long"
    assert message() == f"3 s; {text}"
    assert message(stages=AS_PLANNED) == "3 s"


def test_searches_take_little_of_the_time() -> None:
    """Another question waits; the cool-down is for revisions alone."""
    assert actions(running(again_s=NOW_S + 5)) == [WakeAt(at_s=NOW_S + 5)]
    assert actions(running(again_s=NOW_S - 1)) == [Revise()]


def test_nothing_swings() -> None:
    """A plan stays for a while as it was revised, whatever is seen."""
    settled = replace(OFFERED, state=RevisionState.FOLLOWED, settled_s=NOW_S - 10)
    seen = running(revisions=(settled,))
    assert actions(seen) == [WakeAt(at_s=NOW_S + 50)]
    assert actions(seen, replanCooldownSeconds=5) == [Revise()]
    assert actions(seen, replanCooldownSeconds=5, replanLimit=1) == []


def test_ranks_that_refuse_are_left_alone() -> None:
    """They hardly follow another time what they cannot follow."""
    refused = replace(OFFERED, state=RevisionState.REFUSED, settled_s=NOW_S - 100)
    assert actions(running(revisions=(refused,))) == []
    assert actions(running(revisions=(refused,), answer=REVISION)) == []


def test_a_revision_that_ends_attempts_is_not_offered_for_ever() -> None:
    """Whatever the reason is, ranks that nobody revises may go on."""

    def after(endings: Sequence[Ending], **fields: Any) -> list[Action]:
        before = tuple(
            replace(BEGUN, number=number, ending=ending, **fields)
            for number, ending in enumerate(endings, 1)
        )
        unanswered = tuple(one.number for one in before)
        now = replace(BEGUN, number=len(before) + 1)
        task = replace(RUNNING, subject=str(now.number))
        seen = running(unanswered=unanswered)
        return actions(replace(seen, attempts=(*before, now), tasks=(task,)))

    lost = Ending.DISRUPTED
    assert after([lost, lost]) == [Revise()]
    assert after([lost, lost, lost]) == []
    assert after([lost, lost, Ending.CHECKPOINTED]) == [Revise()]  # as was asked for
    full = Ending.OUT_OF_MEMORY
    assert after([full], phase=Phase.BACKWARD) == [Revise()]
    assert after([full], phase=Phase.MIGRATION) == []


def test_what_ranks_followed_counts_though_they_have_ended() -> None:
    """And though nobody wants revisions any more."""
    following = reports(REVISION.plan, num_steps=7)
    seen = running(revisions=(OFFERED,), reports=following)
    [settle] = actions(seen, replanOnline=False)
    assert isinstance(settle, SettleRevision)
    ended = replace(RUNNING, state=TaskState.ENDED, ending=Ending.DISRUPTED)
    first, second = decided(replace(seen, tasks=(ended,))).actions
    assert isinstance(first, SettleRevision)
    assert isinstance(second, RecordEnding)


def test_a_revision_is_offered_until_all_ranks_have_answered() -> None:
    """Those that follow report by it."""
    offer = OfferRevision(attempt=1, revision=REVISION)
    assert actions(running(revisions=(OFFERED,))) == [offer]
    following = reports(
        REVISION.plan, moved_step=7, moved_bytes=8, moved_s=0.5, num_steps=9
    )
    some = (*following[1:], reports(PLAN)[0])
    assert actions(running(revisions=(OFFERED,), reports=some)) == [offer]
    [settle] = actions(running(revisions=(OFFERED,), reports=following))
    assert settle == SettleRevision(
        attempt=1,
        settled=replace(
            OFFERED,
            state=RevisionState.FOLLOWED,
            settled_s=NOW_S,
            num_steps=7,
            moved_bytes=4 * PLAN.num_gpus,
            moved_s=0.5,
        ),
    )


def test_a_revision_that_one_rank_refuses_is_over() -> None:
    """Its reason is kept; an earlier refusal is no answer."""
    seen = (*reports(PLAN)[1:], an_observation(refused_revision=2, refusal="no room"))
    [settle] = actions(running(revisions=(OFFERED,), reports=seen))
    assert isinstance(settle, SettleRevision)
    assert settle.settled.state is RevisionState.REFUSED
    assert settle.settled.message == "no room"
    earlier = (an_observation(refused_revision=1, refusal="no room"),)
    [offer] = actions(running(revisions=(OFFERED,), reports=earlier))
    assert isinstance(offer, OfferRevision)


def test_the_status_shows_the_plan_that_runs() -> None:
    """And the revisions of the attempt."""
    followed = replace(
        OFFERED,
        state=RevisionState.FOLLOWED,
        settled_s=NOW_S - 5,
        num_steps=7,
        moved_s=0.25,
    )
    seen = running(REVISION.plan, stages=AS_PLANNED, revisions=(followed,))
    status = decided(seen).status
    assert status.plan is not None
    assert status.plan.digest == digest_of(REVISION.plan)
    assert status.plan.revision == 2
    [revision] = status.revisions
    assert revision.to_json() == {
        "revision": 2,
        "state": "followed",
        "cause": "Pace",
        "movedLayers": 1,
        "stepPercent": "75",
        "step": 7,
        "seconds": "0.25",
        "message": "",
        "time": "1970-01-01T02:46:30Z",
    }


def recorded(running_plan: HybridPlan, problem_digest: str) -> HybridPlan:
    """Plan of the next attempt, where the latest ran by a plan and was lost."""
    ended = replace(
        BEGUN, ending=Ending.DISRUPTED, ended_s=NOW_S - 1, generation=1, message="lost"
    )
    seen = ObservedState(
        profile=ObservedProfile(source="measured", made_s=9000.0, was_cached=False),
        profile_key="request",
        answer=ObservedAnswer(
            answer=a_solution(), is_certified=True, problem_digest=problem_digest
        ),
        attempts=(ended,),
        running=RunningPlan(plan=running_plan, limits=LIMITS),
    )
    [record] = [one for one in decided(seen).actions if isinstance(one, RecordPlan)]
    assert record.attempt == 2
    return record.plan


@pytest.mark.parametrize("problem_digest", ["asked", "another"])
def test_the_next_attempt_begins_with_the_revision_that_was_followed(
    problem_digest: str,
) -> None:
    """Unless the attempt has taught something, so that another question was asked."""
    wanted = REVISION.plan if problem_digest == "asked" else PLAN
    assert recorded(REVISION.plan, problem_digest) == wanted


def test_a_plan_that_was_never_revised_gives_way_to_the_answer() -> None:
    """A replay that came since may have led to another one."""
    assert recorded(replace(REVISION.plan, revision=1), "asked") == PLAN
