"""The step of a condition that a child brings about: profiling, replay, rehearsal.

In: the observed state, and the child. Out: the result for its condition, with what is
done about the child; which children nobody asks for any more. Called by `preparing` and
`rehearsing`.
"""

from __future__ import annotations

from plimsoll_operator.api.status import Truth
from plimsoll_operator.rules.actions import Action, Clear, WakeAt
from plimsoll_operator.rules.failures import RESPONSES
from plimsoll_operator.rules.observed_state import (
    Child,
    ChildState,
    Ending,
    ObservedState,
    TaskKind,
)
from plimsoll_operator.rules.step_result import StepInput, StepResult

LEAST_S = 10.0
"""From one beginning to the next of something that is disrupted each time."""
OF_A_PLAN = (TaskKind.REPLAY, TaskKind.REHEARSAL)
"""Kinds that hold the code of a plan to what was profiled."""
UNDER_WAY = {
    TaskKind.PROFILE: "Profiling",
    TaskKind.REPLAY: "Replaying",
    TaskKind.REHEARSAL: "Rehearsing",
}


def again(child: Child, now_s: float) -> Action:
    """Clear away what was disrupted, so that it begins anew: not too soon each time."""
    at_s = child.started_s + LEAST_S
    return WakeAt(at_s=at_s) if child.started_s <= now_s < at_s else Clear(child=child)


def of_child(given: StepInput, child: Child, what: str, store: Action) -> StepResult:
    """Where a child stands.

    Args:
        given: what the step reads.
        child: it exists.
        what: opens the reason.
        store: puts its result into the store.
    """
    if child.state is ChildState.PENDING and given.is_late(child):
        return failed(child, f"{what}PendingTimeout")
    if child.state is ChildState.PENDING:
        return StepResult(
            truth=Truth.UNKNOWN,
            reason=f"{what}Pending",
            message=child.message,
            actions=(WakeAt(at_s=given.late_s(child)),),
        )
    if child.state is ChildState.RUNNING or child.ending is None:
        reason = UNDER_WAY[child.kind]
        return StepResult(truth=Truth.UNKNOWN, reason=reason, message=child.message)
    if child.ending is Ending.DONE:
        return StepResult(truth=Truth.UNKNOWN, reason=f"{what}Stored", actions=(store,))
    if child.ending in (Ending.DISRUPTED, Ending.DELETED):
        return StepResult(
            truth=Truth.UNKNOWN,
            reason=f"{what}Disrupted",
            message=child.message,
            actions=(again(child, given.now_s),),
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
    if child.kind is TaskKind.REHEARSAL:
        # Out of memory is a result, and this one did not come so far.
        reasons |= {
            Ending.OUT_OF_MEMORY: "RehearsalFailed",
            Ending.DEVICE_BUSY: "RehearsalDeviceBusy",
        }
    return failed(child, reasons.get(child.ending, f"{what}Failed"))


def failed(child: Child, reason: str) -> StepResult:
    """The step where a child has failed for good; it is cleared away."""
    return StepResult(
        truth=Truth.FALSE,
        reason=reason,
        message=child.message,
        actions=(Clear(child=child),),
        is_final=True,
    )


def foreign_children(state: ObservedState) -> list[Child]:
    """Replays and rehearsals that found other code than was profiled."""
    return [
        child
        for child in state.children
        if child.kind in OF_A_PLAN and child.ending is Ending.FOREIGN_FINGERPRINT
    ]


def outdated_children(state: ObservedState) -> list[Child]:
    """Those of them that a newer profile has answered."""
    made_s = state.profile.made_s if state.profile is not None else 0.0
    return [child for child in foreign_children(state) if child.since_s <= made_s]


def clearing(given: StepInput, kind: TaskKind, wanted: str) -> tuple[Action, ...]:
    """What ends the children of a kind for plans that nobody asks for any more.

    Those that found other code stay, until a newer profile has answered them.

    Args:
        given: what the step reads.
        kind: replay or rehearsal.
        wanted: digest of the plan that is replayed or rehearsed; empty: none is.
    """
    foreign = foreign_children(given.state)
    return tuple(
        Clear(child=child)
        for child in given.state.children
        if child.kind is kind and child.subject != wanted and child not in foreign
    )
