"""The steps before an attempt: accepted, profiled, planned, certified.

In: the observed state. Out: a result for each condition, with the actions that bring it
about. Called by `decide` while no attempt is open.
"""

from __future__ import annotations

from plimsoll_operator.api.spec import ProfilePolicy, TrainingPlanSpec
from plimsoll_operator.api.status import FALSE, TRUE, UNKNOWN
from plimsoll_operator.rules.actions import (
    Clear,
    Solve,
    StartProfile,
    StartReplay,
    WakeAt,
)
from plimsoll_operator.rules.failures import RESPONSES
from plimsoll_operator.rules.observed_state import Ending, ObservedState, TaskKind
from plimsoll_operator.rules.rehearsing import rehearsed
from plimsoll_operator.rules.step_result import StepInput, StepResult, joined
from plimsoll_operator.rules.task_steps import (
    clearing,
    failed,
    mismatched_tasks,
    of_task,
    outdated_tasks,
)
from plimsoll_planner.records.solution import Infeasible, Termination

STORE_AGAIN_S = 10.0
"""Until a store that could not be asked is asked again."""


def accepted(given: StepInput) -> StepResult:
    """Whether all that the spec names is there, and its image can train.

    What an image has is known from the process that was to profile in it.
    """
    if given.state.complaint:
        return StepResult(FALSE, "InvalidSpec", given.state.complaint)
    task = given.state.task(TaskKind.PROFILE, given.state.profile_key)
    if task is not None and task.ending is Ending.INCOMPATIBLE:
        return failed(task, RESPONSES[task.ending].reason)
    return StepResult(TRUE, "Valid", given.state.remark)


def profiled(given: StepInput) -> StepResult:
    """Whether there is a profile, and bring it about."""
    state = given.state
    if state.store_fault:
        return StepResult(
            UNKNOWN,
            "StoreUnavailable",
            state.store_fault,
            actions=(WakeAt(at_s=given.now_s + STORE_AGAIN_S),),
        )
    unwanted = [
        Clear(task=task)
        for task in state.tasks
        if task.kind is TaskKind.PROFILE and task.subject != state.profile_key
    ]
    return profile_result(given).after(*unwanted)


def profile_result(given: StepInput) -> StepResult:
    """Whether the profile that is asked for is there, and bring it about."""
    state = given.state
    task = state.task(TaskKind.PROFILE, state.profile_key)
    if state.profile is not None and is_current(given.spec, state):
        done = (task, *outdated_tasks(given.state))
        clear = tuple(Clear(task=one) for one in done if one is not None)
        reason = "Cached" if state.profile.was_cached else "Measured"
        if state.profile.source == "traced" and not state.profile.was_cached:
            reason = "Traced"
        return StepResult(TRUE, reason, actions=clear)
    if task is None and given.spec.profile.policy is ProfilePolicy.NEVER:
        return StepResult(
            FALSE,
            "ProfileMissing",
            "there is no profile, and profile.policy is Never",
            is_final=True,
        )
    if task is None:
        start = StartProfile(request_key=state.profile_key)
        return StepResult(UNKNOWN, "Profiling", actions=(start,))
    return of_task(given, task)


def is_current(spec: TrainingPlanSpec, state: ObservedState) -> bool:
    """Whether the profile counts: nobody found other code since it was made.

    With the policy Always, one that was there before the plan does not. A replay or a
    rehearsal that finds other code than a profile of this very plan is a fault, not
    news.
    """
    profile = state.profile
    if profile is None or not profile.is_of_this_code:
        return False
    if profile.was_cached:
        is_refused = spec.profile.policy is ProfilePolicy.ALWAYS
        mismatched = mismatched_tasks(state)
        if is_refused or any(task.since_s > profile.made_s for task in mismatched):
            return False
    return not any(
        latest.ending is Ending.FOREIGN_FINGERPRINT and profile.made_s <= latest.ended_s
        for latest in state.attempts[-1:]
    )


def planned(given: StepInput) -> StepResult:
    """Whether a plan fits."""
    found = given.state.answer
    if found is None:
        return StepResult(UNKNOWN, "Solving", given.state.refuted, actions=(Solve(),))
    answer = found.answer
    if isinstance(answer, Infeasible):
        return StepResult(
            FALSE,
            "Infeasible",
            joined(found.headline, given.state.refuted),
            is_final=True,
        )
    if answer.termination is Termination.FIXED:
        message = "; ".join([found.headline, *answer.warnings])
        return StepResult(TRUE, "Overridden", message)
    is_proof = answer.termination is Termination.OPTIMAL
    reason = "Proven" if is_proof else "Feasible"
    return StepResult(TRUE, reason, found.headline)


def certified(given: StepInput) -> StepResult:
    """Whether the plan's replay agrees and its rehearsal fits."""
    found = given.state.answer
    if found is not None and found.is_certified:
        clear = clearing(given, TaskKind.REPLAY, "")
        result = StepResult(TRUE, "Replayed", actions=clear)
    else:
        wanted = found.unreplayed if found is not None else ""
        clear = clearing(given, TaskKind.REPLAY, wanted)
        result = replay_result(given).after(*clear)
    return rehearsed(given, result)


def replay_result(given: StepInput) -> StepResult:
    """Progress of the replay of a plan that is not certified."""
    found = given.state.answer
    must = given.spec.launch.require_certified
    if found is not None and found.has_replay:
        return StepResult(UNKNOWN, "Comparing", actions=(Solve(),))
    if found is not None and found.unreplayed:
        task = given.state.task(TaskKind.REPLAY, found.unreplayed)
        if task is None or task in outdated_tasks(given.state):
            start = (StartReplay(digest=found.unreplayed),) if task is None else ()
            return StepResult(UNKNOWN, "Replaying", actions=start)
        result = of_task(given, task)
        if must or not result.is_final:
            return result
        # Nobody asks for a replay: it is left out, and its task stays as a mark.
        return StepResult(UNKNOWN, "Skipped", result.message, goes_on=True)
    rounds = found.num_rounds if found is not None else 0
    return StepResult(
        FALSE,
        "ReplayDisagrees",
        f"search and replay do not agree after {rounds} rounds",
        is_final=must,
        goes_on=not must,
    )
