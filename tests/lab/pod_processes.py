"""Processes in pods, seen from the machine that all nodes of a lab are on.

In: the name of a plan. Out: a line for each process in its pods. Called where a plan
does not do as it should: a pod may say nothing because it waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil


def processes_of(name: str) -> Iterator[str]:
    """Yield what the processes in the pods of a plan do now, as the kernel has it.

    With what each of their threads waits in; also those of a plan whose name begins
    with this one's. A process that has ended, and that nobody has waited for, has no
    environment left: it counts to the pod of its parent.
    """
    for process in psutil.process_iter():
        try:
            state = process.status()
            has_ended = state == psutil.STATUS_ZOMBIE
            kept = process.parent() if has_ended else process
            host = kept.environ().get("HOSTNAME", "") if kept else ""
            threads = Path(f"/proc/{process.pid}/task").glob("*/wchan")
            waits = ", ".join(thread.read_text() for thread in threads)
            words = process.name() if has_ended else " ".join(process.cmdline())[:100]
        except (psutil.Error, OSError):
            continue  # gone meanwhile
        if host.startswith(f"{name}-"):
            yield f"{host} {process.pid} {state} in {waits}: {words}"
