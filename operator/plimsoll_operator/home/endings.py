"""What the exit codes of a child's processes mean.

In: an `End`, and what the processes said. Out: an `Ending` and its line. The first rule
that applies counts, because one rank's failure takes the others with it:

    all done                                        done
    it took too long                                timed out
    a reserved code: foreign, bad, out of memory    as that says
    ranks have saved and left                       checkpointed
    stopped, or killed from outside                 disrupted; host out of memory where
                                                    the kernel did so for memory
    anything else                                   the application's own error
"""

from __future__ import annotations

import signal
from pathlib import Path

from plimsoll_operator.brain.seen import ChildKind, Ending
from plimsoll_operator.home.tasks import End
from plimsoll_planner.errors import one_line
from plimsoll_planner.exit_codes import ExitCode

RESERVED = {
    ExitCode.DEVICE_OUT_OF_MEMORY: Ending.OUT_OF_MEMORY,
    ExitCode.FOREIGN_FINGERPRINT: Ending.FOREIGN_FINGERPRINT,
    ExitCode.BAD_WORKLOAD: Ending.BAD_WORKLOAD,
    ExitCode.UNUSABLE_CHECKPOINT: Ending.UNUSABLE_CHECKPOINT,
}
FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
OTHER_RANK = "another rank went away"
"""Said by ranks that failed because another one did."""
PREFIX = "plimsoll: "
AT_HOME = {
    "--debug shows": "`plimsoll logs{of_kind}` shows",
    "give a new --checkpoint-dir to begin anew": "begin anew with --anew",
    "go on with --accept-other-data": "begin anew with --anew",
    "--resume-from": "spec.checkpoint.resumeFrom",
    "--steps": "spec.training.steps",
}
"""What the trainer advises in its own options, and what a person does here."""


def ending_of(end: End, folder: Path) -> tuple[Ending, str]:
    """Return how a child ended, and why, in one line."""
    statuses = [one.status for one in end.exits]
    if not any(statuses):
        return Ending.DONE, ""
    if end.was_late:
        return Ending.TIMED_OUT, "it took too long"
    for code, ending in RESERVED.items():
        if code in statuses:
            return ending, last_line(folder, statuses.index(code))
    killed, failed = culprits(end, folder)
    if failed:
        place = end.first if end.first in failed else failed[0]
        return Ending.APPLICATION_ERROR, end.message or said(end, folder, place)
    if ExitCode.CHECKPOINTED in statuses and (end.was_stopped or not killed):
        return Ending.CHECKPOINTED, ""
    return killed_from_outside(end, killed)


def killed_from_outside(end: End, killed: list[int]) -> tuple[Ending, str]:
    """Return what it means that somebody stopped or killed processes."""
    if end.was_stopped or not killed:
        return Ending.DISRUPTED, "it was stopped before it could save"
    place = killed[0]
    name = signal.Signals(-end.exits[place].status).name
    if end.host_was_full and name == "SIGKILL":
        return (
            Ending.HOST_OUT_OF_MEMORY,
            f"process {place} was killed by the kernel: the machine's memory is full",
        )
    return Ending.DISRUPTED, f"process {place} was ended by {name}"


def culprits(end: End, folder: Path) -> tuple[list[int], list[int]]:
    """Return which processes were killed from outside, and which failed themselves."""
    killed: list[int] = []
    failed: list[int] = []
    for place, one in enumerate(end.exits):
        if one.by_keeper or one.status in (ExitCode.DONE, ExitCode.CHECKPOINTED):
            continue
        if -one.status in FROM_OUTSIDE:
            killed.append(place)
        elif OTHER_RANK not in last_line(folder, place):
            failed.append(place)
    is_lost = not killed and not failed and not end.was_stopped
    if is_lost and ExitCode.CHECKPOINTED not in [one.status for one in end.exits]:
        failed = [end.first or 0]  # every rank points at another one
    return killed, failed


def said(end: End, folder: Path, place: int) -> str:
    """Return the line that a process ended with."""
    status = end.exits[place].status
    if status < 0:
        return f"process {place} was ended by {signal.Signals(-status).name}"
    return last_line(folder, place) or f"process {place} ended with status {status}"


def last_line(folder: Path, place: int) -> str:
    """Return the last line that a process wrote to stderr."""
    path = folder / f"{place}.err"
    lines = path.read_text(errors="replace").split("\n") if path.exists() else []
    line = next((line for line in reversed(lines) if line.strip()), "")
    kind = folder.name.partition("-")[0]
    of_kind = "" if kind == ChildKind.TRAIN else f" --of {kind}"
    if not line.startswith(PREFIX):
        return one_line(line)[:1024]
    line = line.removeprefix(PREFIX)
    for there, here in AT_HOME.items():
        line = line.replace(there, here.format(of_kind=of_kind))
    return one_line(line)[:1024]
