"""The step of a condition that a task brings about: profiling, replay, rehearsal.

In: the observed state, and the task. Out: the result for its condition, with what is
done about the task; which tasks nobody asks for any more. Called by `preparing` and
`rehearsing`.
"""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll_operator.api.status import FALSE, UNKNOWN
from plimsoll_operator.rules.actions import (
    Action,
    Clear,
    StoreProfile,
    StoreRehearsal,
    StoreReplay,
    StoreResult,
    WakeAt,
)
from plimsoll_operator.rules.failures import RESPONSES
from plimsoll_operator.rules.observed_state import (
    Ending,
    ObservedState,
    ObservedTask,
    TaskKind,
    TaskState,
)
from plimsoll_operator.rules.step_result import StepInput, StepResult

LEAST_S = 10.0
"""From one beginning to the next of something that is disrupted each time."""
OF_A_PLAN = (TaskKind.REPLAY, TaskKind.REHEARSAL)
"""Kinds that hold the code of a plan to what was profiled."""
STEPS: Mapping[TaskKind, tuple[str, str, type[StoreResult]]] = {
    TaskKind.PROFILE: ("Profile", "Profiling", StoreProfile),
    TaskKind.REPLAY: ("Replay", "Replaying", StoreReplay),
    TaskKind.REHEARSAL: ("Rehearsal", "Rehearsing", StoreRehearsal),
}
"""By kind: the opening of its reasons, the reason while it runs, and the action that
puts its result into the store."""


def again(task: ObservedTask, now_s: float) -> Action:
    """Clear away what was disrupted, so that it begins anew: not too soon each time."""
    at_s = task.started_s + LEAST_S
    return WakeAt(at_s=at_s) if task.started_s <= now_s < at_s else Clear(task=task)


def of_task(given: StepInput, task: ObservedTask) -> StepResult:
    """Progress of a task that exists."""
    what, under_way, store = STEPS[task.kind]
    if task.state is TaskState.PENDING and given.is_late(task):
        return failed(task, f"{what}PendingTimeout")
    if task.state is TaskState.PENDING:
        return StepResult(
            UNKNOWN,
            f"{what}Pending",
            task.message,
            actions=(WakeAt(at_s=given.late_s(task)),),
        )
    if task.state is TaskState.RUNNING or task.ending is None:
        return StepResult(UNKNOWN, under_way, task.message)
    if task.ending is Ending.DONE:
        return StepResult(UNKNOWN, f"{what}Stored", actions=(store(task=task),))
    if task.ending in (Ending.DISRUPTED, Ending.DELETED):
        return StepResult(
            UNKNOWN,
            f"{what}Disrupted",
            task.message,
            actions=(again(task, given.now_s),),
        )
    reasons = {
        Ending.OUT_OF_MEMORY: f"{what}OOM",
        Ending.HOST_OUT_OF_MEMORY: f"{what}HostOOM",
        Ending.TIMED_OUT: f"{what}Timeout",
        Ending.BAD_WORKLOAD: "BadWorkload",
        Ending.ENTRY_POINT_OUT_OF_MEMORY: "EntryPointOutOfMemory",
        Ending.FOREIGN_FINGERPRINT: "ForeignFingerprint",
        Ending.INCOMPATIBLE: RESPONSES[Ending.INCOMPATIBLE].reason,
        Ending.NEVER_STARTED: f"{what}PendingTimeout",
    }
    if task.kind is TaskKind.REHEARSAL:
        # Out of memory is a result, and this one did not come so far.
        reasons |= {
            Ending.OUT_OF_MEMORY: "RehearsalFailed",
            Ending.DEVICE_BUSY: "RehearsalDeviceBusy",
        }
    return failed(task, reasons.get(task.ending, f"{what}Failed"))


def failed(task: ObservedTask, reason: str) -> StepResult:
    """The step where a task has failed for good; it is cleared away."""
    return StepResult(
        FALSE, reason, task.message, actions=(Clear(task=task),), is_final=True
    )


def mismatched_tasks(state: ObservedState) -> list[ObservedTask]:
    """Replays and rehearsals that found other code than was profiled."""
    return [
        task
        for task in state.tasks
        if task.kind in OF_A_PLAN and task.ending is Ending.FOREIGN_FINGERPRINT
    ]


def outdated_tasks(state: ObservedState) -> list[ObservedTask]:
    """Those of them that a newer profile has answered."""
    made_s = state.profile.made_s if state.profile is not None else 0.0
    return [task for task in mismatched_tasks(state) if task.since_s <= made_s]


def clearing(given: StepInput, kind: TaskKind, wanted: str) -> tuple[Action, ...]:
    """Actions that end the tasks of a kind for plans that nobody asks for any more.

    Those that found other code stay, until a newer profile has answered them. The plan
    whose digest is `wanted` is replayed or rehearsed; empty: none is.
    """
    mismatched = mismatched_tasks(given.state)
    return tuple(
        Clear(task=task)
        for task in given.state.tasks
        if task.kind is kind and task.subject != wanted and task not in mismatched
    )
