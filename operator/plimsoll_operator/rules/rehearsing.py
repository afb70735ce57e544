"""The rehearsal of a plan: its fullest rank on one device, before the others.

In: the observed state, and the result of the replay for `Certified`. Out: the same with
the rehearsal, and the actions that bring it about. Called by `preparing`.

    launch.rehearse  Never                     what the replay says
                     IfDevice, and no device,  what the replay says
                     a busy one, or the plan
                     was tried
    no result yet                              Rehearsing, by a task of its own
    it fits                                    Rehearsed
    out of memory    what is asked changes with it, so another plan comes;
                     fixed by hand, or too often: RehearsalOOM
"""

from __future__ import annotations

from dataclasses import replace

from plimsoll_operator.api.reasons import WAITING
from plimsoll_operator.api.spec import Rehearse
from plimsoll_operator.api.status import FALSE, TRUE, UNKNOWN
from plimsoll_operator.rules.actions import StartRehearsal
from plimsoll_operator.rules.failures import fixed_text
from plimsoll_operator.rules.observed_state import (
    Ending,
    ObservedAnswer,
    ObservedRehearsal,
    TaskKind,
)
from plimsoll_operator.rules.step_result import StepInput, StepResult, joined
from plimsoll_operator.rules.task_steps import clearing, of_task, outdated_tasks
from plimsoll_planner.text.counts import counted

NO_DEVICE = "no device got free to rehearse on"
LEFT_OUT = ("RehearsalPendingTimeout", "RehearsalDeviceBusy")
"""Reasons for which a plan goes on without a rehearsal under `IfDevice`."""


def rehearsed(given: StepInput, result: StepResult) -> StepResult:
    """The result of the replay, for `Certified`, and the rehearsal after it."""
    found = given.state.answer
    clear = clearing(given, TaskKind.REHEARSAL, "")
    if found is None or not (result.may_go_on and found.plan_digest):
        return replace(result, actions=(*result.actions, *clear))
    rehearsal = found.rehearsal
    if rehearsal is None and is_wanted(given, found.plan_digest):
        return under_way(given, result, found)
    result = replace(result, actions=(*result.actions, *clear))
    return result if rehearsal is None else with_result(given, result, rehearsal)


def is_wanted(given: StepInput, digest: str) -> bool:
    """Whether the plan of a digest, without a result, is to be rehearsed.

    If a device is used only when it is free, a plan that was launched before says more
    than its rehearsal would.
    """
    rehearse, state = given.spec.launch.rehearse, given.state
    was_tried = any(one.plan_digest == digest for one in state.attempts)
    if_device = rehearse is Rehearse.IF_DEVICE and state.has_device and not was_tried
    return if_device or rehearse is Rehearse.ALWAYS


def with_result(
    given: StepInput, result: StepResult, rehearsal: ObservedRehearsal
) -> StepResult:
    """The result of the replay, for `Certified`, with that of the rehearsal."""
    if not rehearsal.fits:
        return StepResult(
            FALSE,
            "RehearsalOOM",
            f"{rehearsal.message}; {no_other_plan(given)}",
            actions=result.actions,
            is_final=True,
        )
    message = joined(result.message, rehearsal.message, given.state.refuted)
    if result.truth is not TRUE:  # the other ranks are as uncertain as before
        return replace(result, message=message)
    return replace(result, reason="Rehearsed", message=message)


def under_way(
    given: StepInput, result: StepResult, found: ObservedAnswer
) -> StepResult:
    """The step while there is no result: it is brought about.

    A training that rests takes no device.
    """
    digest = found.plan_digest
    task = given.state.task(TaskKind.REHEARSAL, digest)
    before = (*result.actions, *clearing(given, TaskKind.REHEARSAL, digest))
    if task is None and given.spec.suspend:
        return StepResult(
            UNKNOWN,
            WAITING,
            "the rehearsal waits while the plan is suspended",
            actions=before,
            goes_on=True,
        )
    if task is None or task in outdated_tasks(given.state):
        start = (StartRehearsal(digest=digest),) if task is None else ()
        return StepResult(UNKNOWN, "Rehearsing", actions=(*before, *start))
    now = of_task(given, task)
    may_be_left_out = given.spec.launch.rehearse is Rehearse.IF_DEVICE
    if may_be_left_out and now.is_final and now.reason in LEFT_OUT:
        # The task stays as a mark: without it the wait would begin again.
        is_busy = task.ending is Ending.DEVICE_BUSY
        why = f"not rehearsed: {task.message}" if is_busy else NO_DEVICE
        return replace(result, message=joined(result.message, why), actions=before)
    return now.after(*before)


def no_other_plan(given: StepInput) -> str:
    """Why no other plan is looked for, and what to do."""
    if given.is_fixed_by_hand:
        return fixed_text(given)
    limit = given.spec.run_policy.oom_replan_limit
    return (
        f"runPolicy.oomReplanLimit lets {counted(limit, 'other plan')} be looked for: "
        "raise it, or use devices with more memory"
    )
