"""Inputs of a pod from the operator: the task of its processes, and their files.

In: the environment, files of a ConfigMap. Out: a `Task` for this pod's share of the
job. The operator writes one task for all pods of a Job; which ranks are whose follows
from the index that Kubernetes gives each.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from plimsoll_planner.errors import UnreadableError
from plimsoll_planner.pod_names import ROOT, TASK_VARIABLE
from plimsoll_planner.records.document import from_text
from plimsoll_planner.records.task import Command, Task, TaskKind, Variable

INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
"""Set by the controller of Indexed Jobs; of other Jobs there is one pod."""
PACKED, RANK = ".gz", "RANK"


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Paths in a pod."""

    inputs: Path = Path(ROOT, "inputs")
    """Of the ConfigMap."""
    work: Path = Path(ROOT, "work")
    """Ours to write to."""
    token: Path = Path(ROOT, "token/token")
    termination_log: Path = Path("/dev/termination-log")


def unpack(place: Place) -> None:
    """Write the files of the ConfigMap out, for those who read plain ones."""
    if not place.inputs.is_dir():
        return
    for packed in place.inputs.glob(f"*{PACKED}"):
        plain = place.work / packed.name.removesuffix(PACKED)
        plain.write_bytes(gzip.decompress(packed.read_bytes()))


def task_from(environment: Mapping[str, str]) -> Task:
    """Task of this pod.

    Raises:
        UnreadableError: the operator did not say.
        InvalidInputError: this release cannot read it.
    """
    text = environment.get(TASK_VARIABLE)
    if not text:
        raise UnreadableError(
            f"{TASK_VARIABLE} is not set: pods of Plimsoll are started by its operator"
        )
    task = from_text(text, Task, TASK_VARIABLE)
    index = int(environment.get(INDEX_VARIABLE, "0"))
    commands = tuple(
        placed(task.child_kind, command, index * len(task.commands) + local)
        for local, command in enumerate(task.commands)
    )
    return replace(task, commands=commands, folder=task.folder or str(Path.cwd()))


def placed(kind: TaskKind, command: Command, rank: int) -> Command:
    """A command as this interpreter runs it; ranks learn which one they are."""
    words = (sys.executable, *command.words)
    if kind is not TaskKind.TRAIN:
        return replace(command, words=words)
    others = (one for one in command.variables if one.name != RANK)
    mine = Variable(name=RANK, value=str(rank))
    return replace(command, words=words, variables=(*others, mine))
