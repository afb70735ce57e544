"""The plan of an open attempt, revised while it runs.

    offered     -> the ranks have it, and have not answered
    followed    -> all of them report by it
    refused     -> one of them says why not; the plan before stays
    a stage is not as planned  -> the search is asked, not too often
    it has a revision          -> that is written down, then offered

In: the observed state. Out: actions. Called by `attempting` while ranks run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from plimsoll_operator.rules.actions import (
    Action,
    OfferRevision,
    RecordRevision,
    Revise,
    SettleRevision,
    WakeAt,
)
from plimsoll_operator.rules.observed_state import (
    Ending,
    ObservedAnswer,
    ObservedState,
    RecordedRevision,
    RevisionState,
    RunningPlan,
)
from plimsoll_operator.rules.step_result import StepInput
from plimsoll_planner.records.observation import Observation, of_plan
from plimsoll_planner.records.plan import HybridPlan, Phase
from plimsoll_planner.records.revision import Revision
from plimsoll_planner.records.solution import Solution

MOST_UNANSWERED = 3
"""Attempts that end with a revision on offer: it may be why they end."""
WANTED = (Ending.DONE, Ending.CHECKPOINTED, Ending.DELETED)
"""Endings that no revision is the reason of."""


def revising(given: StepInput) -> tuple[Action, ...]:
    """Actions by which the plan that runs is revised, if any."""
    running = given.state.running
    if running is None:
        return ()
    if settled := settling(given):
        return settled
    offered = open_revision(running)
    if not given.spec.run_policy.replan_online:
        return ()
    if offered is None:
        return searching(given, running)
    attempt = given.state.attempts[-1].number
    return (OfferRevision(attempt=attempt, revision=offered.revision),)


def settling(given: StepInput) -> tuple[Action, ...]:
    """Action that writes down what ranks made of a revision, once they have answered.

    Also after they have ended: the next attempt begins with what they followed.
    """
    running = given.state.running
    offered = None if running is None else open_revision(running)
    if running is None or offered is None:
        return ()
    settled = answer_to(offered, running, given.now_s)
    attempt = given.state.attempts[-1].number
    return (
        () if settled is None else (SettleRevision(attempt=attempt, settled=settled),)
    )


def searching(given: StepInput, running: RunningPlan) -> tuple[Action, ...]:
    """Actions if no revision is under way: search, or write down what was found."""
    policy, stages = given.spec.run_policy, running.stages
    is_as_planned = stages is None or stages.cause is None
    is_placed = running.plan.placement is not None  # operators do not move
    states = [one.state for one in running.revisions]
    is_over = len(states) >= policy.replan_limit
    # What ranks cannot follow they cannot follow later: the attempt keeps its plan.
    is_refused = RevisionState.REFUSED in states
    is_left = is_as_planned or is_placed or is_over or is_refused
    if is_left or is_harmful(given, running):
        return ()
    if isinstance(running.answer, Revision):
        attempt = given.state.attempts[-1].number
        return (RecordRevision(attempt=attempt, revision=running.answer),)
    if running.answer is not None:
        return ()
    at_s = next_look_s(given, running)
    return (WakeAt(at_s=at_s),) if at_s > given.now_s else (Revise(),)


def is_harmful(given: StepInput, running: RunningPlan) -> bool:
    """Whether revisions may be why earlier attempts have ended.

    One is enough that ran out of device memory while layers moved.
    """
    attempts = given.state.attempts
    unanswered = [
        one
        for one in attempts
        if one.number in running.unanswered and one.ending not in WANTED
    ]
    has_run_out = any(one.phase is Phase.MIGRATION for one in attempts)
    return has_run_out or len(unanswered) >= MOST_UNANSWERED


def staying_text(running: RunningPlan | None) -> str:
    """Why the plan stays though a stage is not as planned; empty where all are."""
    cause = None if running is None or running.stages is None else running.stages.cause
    if running is None or cause is None or not running.stays:
        return ""
    return f"stages are not as planned ({cause}), and the plan stays: {running.stays}"


def open_revision(running: RunningPlan) -> RecordedRevision | None:
    """The revision that the ranks have not answered, None if there is none."""
    latest = running.revisions[-1] if running.revisions else None
    is_open = latest is not None and latest.state is RevisionState.OFFERED
    return latest if is_open else None


def next_look_s(given: StepInput, running: RunningPlan) -> float:
    """Time until which nothing is searched for, since 1970."""
    settled_s = [one.settled_s for one in running.revisions if one.settled_s]
    cooldown_s = given.spec.run_policy.replan_cooldown_seconds
    return max(running.again_s, *(one + cooldown_s for one in settled_s), 0.0)


def answer_to(
    offered: RecordedRevision, running: RunningPlan, now_s: float
) -> RecordedRevision | None:
    """The revision as the ranks have answered, None until they have."""
    number = offered.number
    following = following_ranks(offered.revision.plan, running.reports)
    if following is not None:
        return replace(
            offered,
            state=RevisionState.FOLLOWED,
            settled_s=now_s,
            num_steps=max(one.moved_step for one in following),
            moved_bytes=sum(one.moved_bytes for one in following) // 2,
            moved_s=max(one.moved_s for one in following),
        )
    refusals = [one for one in running.reports if one.refused_revision == number]
    if not refusals:
        return None
    return replace(
        offered,
        state=RevisionState.REFUSED,
        settled_s=now_s,
        num_steps=max(one.num_steps for one in refusals),
        message=refusals[0].refusal,
    )


def following_ranks(
    plan: HybridPlan, reports: Sequence[Observation]
) -> list[Observation] | None:
    """Reports of all ranks by a plan, None unless each has one."""
    found = of_plan(plan, reports)
    return found if len(found) == plan.num_gpus else None


def plan_to_go_on_with(
    state: ObservedState, found: ObservedAnswer, answer: Solution
) -> HybridPlan:
    """The plan of the next attempt: as the latest was revised, if the question stays.

    An attempt that has taught something asks another question.
    """
    running, latest = state.running, state.attempts[-1] if state.attempts else None
    if running is None or latest is None or running.plan.revision == 1:
        return answer.plan
    is_same = latest.problem_digest == found.problem_digest
    return running.plan if is_same else answer.plan


def followed_plan(
    of_record: HybridPlan, revisions: tuple[RecordedRevision, ...]
) -> HybridPlan:
    """The plan of the newest revision that all ranks followed."""
    followed = [
        one.revision.plan for one in revisions if one.state is RevisionState.FOLLOWED
    ]
    return followed[-1] if followed else of_record
