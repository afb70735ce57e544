"""What our processes advise, in words of who runs a plan at home.

In: the last line of a process. Out: the same, where it is one of ours with the options
of the command line that people type here. Called where the end of a child is read.
"""

from __future__ import annotations

from plimsoll_planner.records.task import ChildKind

PREFIX = "plimsoll: "
"""Before what trainer and profiler say themselves; others' lines stay as they are."""
AT_HOME = {
    "--debug shows": "`plimsoll logs{of_kind}` shows",
    "give a new --checkpoint-dir to begin anew": "begin anew with --anew",
    "go on with --accept-other-data": "begin anew with --anew",
    "--resume-from": "spec.checkpoint.resumeFrom",
    "--steps": "spec.training.steps",
}
"""What the trainer advises in its own options, and what a person does here."""


def advised(line: str, kind: ChildKind) -> str:
    """Return a line of a child in the words of a manifest and of our command."""
    if not line.startswith(PREFIX):
        return line
    line = line.removeprefix(PREFIX)
    of_kind = "" if kind is ChildKind.TRAIN else f" --of {kind}"
    for there, here in AT_HOME.items():
        line = line.replace(there, here.format(of_kind=of_kind))
    return line
