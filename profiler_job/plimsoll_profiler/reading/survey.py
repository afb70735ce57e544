"""Which models of the installed libraries can be read: all kinds, one by one.

    kind of model    its configuration, as it is by default    ->  a Reading, or why not

Kinds of `transformers` are read for each task that they have, so encoders that can be
made causal models are looked at for that as well. Classifiers of `torchvision` are read
where it is installed.

In: nothing. Out: findings. Called by the verb `support`. Each model is read in a
process of its own, which may take only so long, or die.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection

from plimsoll_profiler.reading.readings import (
    Reading,
    reading_of,
    reading_of_classifier,
)
from plimsoll_profiler.reading.tasks import Family
from plimsoll_trainer.adapters import torchvision
from plimsoll_trainer.adapters.model_tasks import TaskName
from plimsoll_trainer.errors import WorkloadError, described
from plimsoll_trainer.huggingface.configurations import hush, parsed
from plimsoll_trainer.huggingface.tasks import kinds_of

LONGEST_S = 120.0
"""For one model."""
FORK = multiprocessing.get_context("fork")
"""A forked process has all modules that are imported here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """Result for one kind of model."""

    family: Family
    model_type: str
    reading: Reading | None = None
    refusal: str = ""
    """Reason for which it is not read; empty if it is."""
    fault: str = ""
    """An error that nobody foresaw; empty if there was none."""


def kinds_in(family: Family) -> list[str]:
    """Kinds of a family, in order; none, if its library is not installed."""
    if family is not Family.TORCHVISION:
        return kinds_of(TaskName(family.value))
    try:
        return torchvision.names()
    except WorkloadError:
        return []


def num_kinds() -> int:
    """Number of kinds that are looked at."""
    return sum(len(kinds_in(family)) for family in Family)


def survey() -> Iterator[Finding]:
    """Yield what becomes of each kind, family by family."""
    for family in Family:
        for kind in kinds_in(family):
            ours, theirs = FORK.Pipe(duplex=False)
            process = FORK.Process(
                target=find, args=(family, kind, theirs), daemon=True
            )
            process.start()
            theirs.close()
            yield finding_of(family, kind, ours)
            process.kill()
            process.join()


def finding_of(family: Family, kind: str, ours: Connection) -> Finding:
    """Wait for what a process has found."""
    if not ours.poll(LONGEST_S):
        fault = f"it was not read within {LONGEST_S:g} s"
        return Finding(family=family, model_type=kind, fault=fault)
    try:
        found: Finding = ours.recv()
    except EOFError:
        return Finding(family=family, model_type=kind, fault="its process died")
    return found


def find(family: Family, kind: str, theirs: Connection) -> None:
    """Read one kind of model, in a process of its own."""
    hush()
    try:
        reading, refusal, fault = read(family, kind), "", ""
    except WorkloadError as error:
        reading, refusal, fault = None, str(error), ""
    except Exception as error:  # noqa: BLE001 - it is what is looked for
        reading, refusal, fault = None, "", described(error)
    theirs.send(
        Finding(
            family=family,
            model_type=kind,
            reading=reading,
            refusal=refusal,
            fault=fault,
        )
    )


def read(family: Family, kind: str) -> Reading:
    """Read a kind of model with its default sizes."""
    if family is Family.TORCHVISION:
        return reading_of_classifier(kind)
    return reading_of(parsed({"model_type": kind}, kind), family)
