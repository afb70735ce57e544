"""Which models of the installed `transformers` can be read: all kinds, one by one.

    kind of model    its configuration, as it is by default    ->  a Reading, or why not

In: nothing. Out: findings. Called by the verb `support`. Each model is read in a
process of its own, which may take only so long, or die.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection

from plimsoll_profiler.reading.readings import Reading, reading_of
from plimsoll_trainer.errors import WorkloadError, described
from plimsoll_trainer.huggingface.configurations import hush, kinds, parsed

LONGEST_S = 120.0
"""For one model."""
FORK = multiprocessing.get_context("fork")
"""A forked process has all modules that are imported here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """Result for one kind of model."""

    model_type: str
    reading: Reading | None = None
    refusal: str = ""
    """Reason for which it is not read; empty if it is."""
    fault: str = ""
    """An error that nobody foresaw; empty if there was none."""


def num_kinds() -> int:
    """Number of kinds that are looked at."""
    return len(kinds())


def survey() -> Iterator[Finding]:
    """Yield what becomes of each kind."""
    for kind in kinds():
        ours, theirs = FORK.Pipe(duplex=False)
        process = FORK.Process(target=find, args=(kind, theirs), daemon=True)
        process.start()
        theirs.close()
        yield finding_of(kind, ours)
        process.kill()
        process.join()


def finding_of(kind: str, ours: Connection) -> Finding:
    """Wait for what a process has found."""
    if not ours.poll(LONGEST_S):
        fault = f"it was not read within {LONGEST_S:g} s"
        return Finding(model_type=kind, fault=fault)
    try:
        found: Finding = ours.recv()
    except EOFError:
        return Finding(model_type=kind, fault="its process died")
    return found


def find(kind: str, theirs: Connection) -> None:
    """Read one kind of model, in a process of its own."""
    hush()
    try:
        config = parsed({"model_type": kind}, kind)
        found = Finding(model_type=kind, reading=reading_of(config))
    except WorkloadError as error:
        found = Finding(model_type=kind, refusal=str(error))
    except Exception as error:  # noqa: BLE001 - it is what is looked for
        found = Finding(model_type=kind, fault=described(error))
    theirs.send(found)
