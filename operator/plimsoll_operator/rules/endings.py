"""Meaning of the exit codes of a task's processes.

In: an `End`. Out: an `Ending` and the line that says why, as the process wrote it. The
first rule that applies counts, because one rank's failure takes the others with it:

    all done                                        done, early or not
    it took too long                                timed out
    a reserved code: foreign, bad, out of memory, ..    as that says
    ranks have saved and left                       checkpointed
    stopped, or killed from outside                 disrupted; host out of memory where
                                                    the kernel did so for memory
    anything else                                   the application's own error
"""

from __future__ import annotations

import signal

from plimsoll_operator.rules.observed_state import Ending
from plimsoll_planner.exit_codes import DECISIVE, ExitCode
from plimsoll_planner.records.task import End

RESERVED = {
    ExitCode.INCOMPATIBLE: Ending.INCOMPATIBLE,
    ExitCode.ENTRY_POINT_OUT_OF_MEMORY: Ending.ENTRY_POINT_OUT_OF_MEMORY,
    ExitCode.DEVICE_OUT_OF_MEMORY: Ending.OUT_OF_MEMORY,
    ExitCode.FOREIGN_FINGERPRINT: Ending.FOREIGN_FINGERPRINT,
    ExitCode.BAD_WORKLOAD: Ending.BAD_WORKLOAD,
    ExitCode.UNUSABLE_CHECKPOINT: Ending.UNUSABLE_CHECKPOINT,
    ExitCode.UNEQUAL_REPLICAS: Ending.UNEQUAL_REPLICAS,
    ExitCode.NO_LOSS: Ending.NO_LOSS,
    ExitCode.DEVICE_BUSY: Ending.DEVICE_BUSY,
    ExitCode.HOST_FULL: Ending.HOST_OUT_OF_MEMORY,
}
FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
OTHER_RANK = "another rank went away"
"""Printed by ranks that failed because another one did."""
STOPPED_EARLY = "stopped early, "
"""Printed last by rank 0 where an evaluation has ended the job before its last step."""
UNSAVED = "and nothing is saved"
"""Printed by ranks that were asked to stop, and have nowhere to save."""


def ending_of(end: End) -> tuple[Ending, str]:
    """Ending of a task, and its reason in one line."""
    statuses = [one.status for one in end.exits]
    if not any(statuses):
        early = (one.said for one in end.exits if STOPPED_EARLY in one.said)
        return Ending.DONE, next(early, "")
    if end.was_late:
        return Ending.TIMED_OUT, "it took too long"
    for code in DECISIVE:
        if code in statuses:
            return RESERVED[code], end.exits[statuses.index(code)].said
    killed, failed = culprits(end)
    if failed:
        place = end.first if end.first in failed else failed[0]
        return Ending.APPLICATION_ERROR, end.message or reason_of(end, place)
    if ExitCode.CHECKPOINTED in statuses and (end.was_stopped or not killed):
        return Ending.CHECKPOINTED, ""
    return killed_from_outside(end, killed)


def killed_from_outside(end: End, killed: list[int]) -> tuple[Ending, str]:
    """Ending and reason if somebody stopped or killed processes."""
    if end.was_stopped or not killed:
        return Ending.DISRUPTED, "it was stopped before it could save"
    place = killed[0]
    if end.host_was_full and end.exits[place].status == -signal.SIGKILL:
        return (
            Ending.HOST_OUT_OF_MEMORY,
            f"process {place} was killed by the kernel: the machine's memory is full",
        )
    return Ending.DISRUPTED, ended_by_signal(end, place)


def culprits(end: End) -> tuple[list[int], list[int]]:
    """Which processes were killed from outside, and which failed themselves."""
    killed: list[int] = []
    failed: list[int] = []
    for place, one in enumerate(end.exits):
        if one.by_keeper or one.status in (ExitCode.DONE, ExitCode.CHECKPOINTED):
            continue
        was_asked = end.was_stopped and UNSAVED in one.said
        if -one.status in FROM_OUTSIDE or was_asked:
            killed.append(place)
        elif OTHER_RANK not in one.said:
            failed.append(place)
    is_lost = not killed and not failed and not end.was_stopped
    if is_lost and ExitCode.CHECKPOINTED not in [one.status for one in end.exits]:
        failed = [end.first or 0]  # every rank points at another one
    return killed, failed


def reason_of(end: End, place: int) -> str:
    """The line that a process ended with."""
    found = end.exits[place]
    if found.status < 0:
        return ended_by_signal(end, place)
    return found.said or f"process {place} ended with status {found.status}"


def ended_by_signal(end: End, place: int) -> str:
    """Reason of a process that a signal ended."""
    number = -end.exits[place].status
    names = {one.value: one.name for one in signal.Signals}
    return f"process {place} was ended by {names.get(number, f'signal {number}')}"
