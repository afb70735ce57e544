"""What processes in pods do, seen from the machine that all nodes of a lab are on.

In: the name of a plan. Out: a line for each process in its pods. Called where a plan
does not do as it should: a pod may say nothing because it waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil


def processes_of(name: str) -> Iterator[str]:
    """Yield what the processes in the pods of a plan do now, as the kernel has it."""
    for process in psutil.process_iter():
        try:
            host = process.environ().get("HOSTNAME", "")
            waits = Path(f"/proc/{process.pid}/wchan").read_text()
            words = " ".join(process.cmdline())[:100]
            state = process.status()
        except (psutil.Error, OSError):
            continue  # gone meanwhile
        if host.startswith(f"{name}-"):
            yield f"{host} {process.pid} {state} in {waits}: {words}"
