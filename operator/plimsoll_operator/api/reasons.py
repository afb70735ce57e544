"""The reasons of conditions: which there are, and their meanings for a person.

In: nothing. Out: `REASONS`, for each condition its reasons in the order in which they
come about. Read where docs/trainingplan.md is written; a test compares them with all
that a decision says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from plimsoll_operator.api.status import FALSE, TRUE, UNKNOWN, ConditionType, Truth

Meanings = Mapping[tuple[Truth, str], str]
WAITING: Final = "Waiting"
"""Of a condition while it is Unknown because another one comes first."""
DRY_RUN: Final = "PlanOnly"
"""Of a plan that is there, and is not to be launched."""
ENTRY_POINT_FULL: Final = (
    "The entry point itself needs more memory than the device has, whatever is planned."
)
INCOMPATIBLE: Final = (
    "Python, torch or numpy of the image are missing or too old; the message says "
    "what was found and what is needed."
)


def of_task(what: str, verb: str) -> dict[tuple[Truth, str], str]:
    """Reasons, opened by `what`, of a step that a task, called `verb`, carries out."""
    return {
        (UNKNOWN, f"{what}Pending"): f"{verb} waits for a place to run in.",
        (UNKNOWN, f"{what}Disrupted"): f"{verb} was killed or evicted; it starts anew.",
        (UNKNOWN, f"{what}Stored"): f"{verb} is done; its result goes into the store.",
        (FALSE, f"{what}OOM"): f"{verb} ran out of the device's memory.",
        (FALSE, f"{what}HostOOM"): f"{verb} ran out of the host's memory.",
        (FALSE, f"{what}PendingTimeout"): f"{verb} waited for a place to run in for "
        "longer than `runPolicy.pendingSeconds`; the message says for what.",
        (FALSE, f"{what}Timeout"): f"{verb} took longer than it may.",
        (FALSE, f"{what}Failed"): f"{verb} ended with an error; the message has it.",
        (FALSE, "BadWorkload"): "The entry point breaks the contract of workloads.",
        (FALSE, "EntryPointOutOfMemory"): ENTRY_POINT_FULL,
        (FALSE, "ForeignFingerprint"): "The code changed while it was looked at.",
    }


REASONS: Final[Mapping[ConditionType, Meanings]] = {
    ConditionType.ACCEPTED: {
        (TRUE, "Valid"): "What the spec names is there.",
        (FALSE, "InvalidSpec"): "The message names what is wrong or missing. Looked at "
        "again each minute, and when the spec changes.",
        (FALSE, "TrainerIncompatible"): INCOMPATIBLE,
    },
    ConditionType.PROFILED: {
        (UNKNOWN, "StoreUnavailable"): "The store, which has the profiles, does not "
        "answer; it is asked again. What runs goes on.",
        (UNKNOWN, "Profiling"): "The workload is being profiled.",
        (TRUE, "Cached"): "The profile was there before the plan was.",
        (TRUE, "Measured"): "The profile was timed on a device.",
        (TRUE, "Traced"): "The profile was made without a device.",
        (FALSE, "ProfileMissing"): "There is none, and `profile.policy` is `Never`.",
        **of_task("Profile", "Profiling"),
    },
    ConditionType.PLANNED: {
        (UNKNOWN, "Solving"): "The search is on.",
        (TRUE, "Proven"): "A plan fits, and no better one does in the space searched.",
        (TRUE, "Feasible"): "A plan fits; a better one is not excluded.",
        (TRUE, "Overridden"): "`override` fixes what no plan that fits has; it is "
        "obeyed, and the message warns.",
        (FALSE, "Infeasible"): "No plan fits; the message has the nearest change that "
        "would do.",
    },
    ConditionType.CERTIFIED: {
        (UNKNOWN, "Replaying"): "The plan's ranks are replayed without data.",
        (UNKNOWN, "Comparing"): "The search is asked again, with the replay's numbers.",
        (TRUE, "Replayed"): "The replay holds what was predicted.",
        (UNKNOWN, "Skipped"): "The replay failed, and `launch.requireCertified` is "
        "false.",
        (FALSE, "ReplayDisagrees"): "Search and replay did not come together in the "
        "rounds that they have.",
        **of_task("Replay", "The replay"),
        (UNKNOWN, "Rehearsing"): "The plan's fullest rank runs alone on a device.",
        (TRUE, "Rehearsed"): "The replay holds what was predicted, and the fullest "
        "rank ran on a device; the message says what it held there.",
        **of_task("Rehearsal", "The rehearsal"),
        (FALSE, "RehearsalDeviceBusy"): "The fullest rank ran out of memory beside "
        "other processes, so nothing follows from it; the message has their bytes.",
        (FALSE, "RehearsalOOM"): "The fullest rank ran out of memory on a device, and "
        "nothing else is planned: it is fixed by `override`, or that happened more "
        "often than `runPolicy.oomReplanLimit`.",
        (FALSE, "TrainerIncompatible"): INCOMPATIBLE,
    },
    ConditionType.LAUNCHED: {
        (FALSE, "Starting"): "The attempt is written down and about to start.",
        (FALSE, "Pending"): "The ranks wait for machines; the message says for what.",
        (FALSE, "PendingTimeout"): "They waited for longer than "
        "`runPolicy.pendingSeconds`, and are being removed.",
        (FALSE, "Suspending"): "`suspend` is true: the ranks, which have not begun, "
        "are being removed.",
        (FALSE, "Replanning"): "The spec was edited before the ranks began: they are "
        "removed, and it is planned anew.",
        (TRUE, "Started"): "The ranks run.",
        (FALSE, "BackingOff"): "An error is waited out before the next attempt.",
        (FALSE, "Suspended"): "`suspend` is true.",
        (FALSE, DRY_RUN): "`launch.policy` is `PlanOnly`: nothing is started.",
    },
    ConditionType.SUCCEEDED: {
        (UNKNOWN, "Running"): "The ranks train.",
        (UNKNOWN, "Suspending"): "The ranks were asked to save and leave.",
        (UNKNOWN, "Replanning"): "The spec was edited just before the ranks began: "
        "they were asked to leave.",
        (UNKNOWN, "Ended"): "The attempt is over; what became of it is written down.",
        (TRUE, "Trained"): "All steps are done, or an early stop has ended them.",
        (TRUE, DRY_RUN): "The plan is there, and no more was asked for.",
        (FALSE, "GPUOutOfMemory"): "Devices ran out of memory too often.",
        (FALSE, "HostOOMKilled"): "The host ran out of memory too often.",
        (FALSE, "AppError"): "The application failed too often; the message has the "
        "root cause.",
        (FALSE, "ChildDeleted"): "Somebody deleted the ranks too often.",
        (FALSE, "ForeignFingerprint"): "The code is not what was profiled, twice.",
        (FALSE, "BadWorkload"): "The entry point breaks the contract of workloads.",
        (FALSE, "TrainerIncompatible"): INCOMPATIBLE,
        (FALSE, "UnusableCheckpoint"): "There is none to go on from: missing, broken, "
        "or of another training.",
        (FALSE, "UnequalReplicas"): "Ranks that hold the same tensor built different "
        "values; the message names it.",
        (FALSE, "NoLoss"): "The loss is not finite; the message has the step and the "
        "last good checkpoint.",
        (FALSE, "EntryPointOutOfMemory"): ENTRY_POINT_FULL,
        (FALSE, "PendingTimeout"): "The ranks waited for their machines for longer "
        "than `runPolicy.pendingSeconds`; the message says for what.",
        (UNKNOWN, "DeadlineExceeded"): "`runPolicy.runningSeconds` are over: the ranks "
        "were asked to save and leave.",
        (FALSE, "DeadlineExceeded"): "`runPolicy.runningSeconds` are over, and the "
        "ranks have left.",
    },
}
"""Succeeded also takes on the reason of the condition that is waited for, and of one
that is False for good."""
