"""The step of a condition that a child brings about: profiling, replay, rehearsal.

In: the observed state, and the child. Out: the result for its condition, with what is
done about the child; which children nobody asks for any more. Called by `preparing` and
`rehearsing`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from plimsoll_operator.api.status import FALSE, UNKNOWN
from plimsoll_operator.rules.actions import (
    Action,
    Clear,
    StoreProfile,
    StoreRehearsal,
    StoreReplay,
    WakeAt,
)
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
STEPS: Mapping[TaskKind, tuple[str, str, Callable[..., Action]]] = {
    TaskKind.PROFILE: ("Profile", "Profiling", StoreProfile),
    TaskKind.REPLAY: ("Replay", "Replaying", StoreReplay),
    TaskKind.REHEARSAL: ("Rehearsal", "Rehearsing", StoreRehearsal),
}
"""By kind: the opening of its reasons, the reason while it runs, and the action that
puts its result into the store."""


def again(child: Child, now_s: float) -> Action:
    """Clear away what was disrupted, so that it begins anew: not too soon each time."""
    at_s = child.started_s + LEAST_S
    return WakeAt(at_s=at_s) if child.started_s <= now_s < at_s else Clear(child=child)


def of_child(given: StepInput, child: Child) -> StepResult:
    """Progress of a child that exists."""
    what, under_way, store = STEPS[child.kind]
    if child.state is ChildState.PENDING and given.is_late(child):
        return failed(child, f"{what}PendingTimeout")
    if child.state is ChildState.PENDING:
        return StepResult(
            UNKNOWN,
            f"{what}Pending",
            child.message,
            actions=(WakeAt(at_s=given.late_s(child)),),
        )
    if child.state is ChildState.RUNNING or child.ending is None:
        return StepResult(UNKNOWN, under_way, child.message)
    if child.ending is Ending.DONE:
        return StepResult(UNKNOWN, f"{what}Stored", actions=(store(child=child),))
    if child.ending in (Ending.DISRUPTED, Ending.DELETED):
        return StepResult(
            UNKNOWN,
            f"{what}Disrupted",
            child.message,
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
        FALSE, reason, child.message, actions=(Clear(child=child),), is_final=True
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

    Those that found other code stay, until a newer profile has answered them. The plan
    whose digest is `wanted` is replayed or rehearsed; empty: none is.
    """
    foreign = foreign_children(given.state)
    return tuple(
        Clear(child=child)
        for child in given.state.children
        if child.kind is kind and child.subject != wanted and child not in foreign
    )
