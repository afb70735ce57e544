"""Advice of our processes, in words of the person who runs a plan.

In: the last line of a process, and the words of a back end. Out: the same line; one of
ours with what a person types there in place of the trainer's options, which nobody
types. Called where the end of a task is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from plimsoll_planner.records.task import TaskKind

PREFIX: Final = "plimsoll: "
"""Before what trainer and profiler say themselves; others' lines stay as they are."""
Words = Mapping[str, str]
"""Words of the trainer, and those for a person in their place."""
EVERYWHERE: Final = {
    "give --checkpoint-dir": "give spec.checkpoint.claimName",
    "--resume-from": "spec.checkpoint.resumeFrom",
    "--steps": "spec.training.steps",
}
ON_ONE_MACHINE: Final = {
    "--debug shows": "`plimsoll logs {name}{of_kind}` shows",
    "give a new --checkpoint-dir to begin anew": "begin anew with --anew",
    "go on with --accept-other-data": "begin anew with --anew",
    **EVERYWHERE,
}
ON_CLUSTER: Final = {
    "--debug shows": "`kubectl logs` of its pods shows",
    "give a new --checkpoint-dir to begin anew": "give a new spec.checkpoint.path",
    "go on with --accept-other-data": "give a new spec.checkpoint.path",
    **EVERYWHERE,
}


def advised(line: str, kind: TaskKind, words: Words, name: str) -> str:
    """A line of a task of the plan of some name in the words of a back end."""
    if not line.startswith(PREFIX):
        return line
    line = line.removeprefix(PREFIX)
    of_kind = "" if kind is TaskKind.TRAIN else f" --of {kind}"
    for there, here in words.items():
        line = line.replace(there, here.format(name=name, of_kind=of_kind))
    return line
