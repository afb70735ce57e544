"""How fast the lab is there, warm: from nothing to ready, as a test waits for it.

Bars: the control plane within 8 s, two real nodes within 20 s.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

from benchmarks.frame import CannotRunError, Goal, Measurement, run
from tests.lab import owner
from tests.lab.errors import LabError
from tests.lab.owner import Level
from tests.lab.prepare import require

RUNS = 3


def seconds_until_ready(level: Level) -> tuple[float, ...]:
    """Start and end a lab several times; return the seconds until it was ready."""
    try:
        require(level)
    except LabError as error:
        raise CannotRunError(str(error)) from None
    times: list[float] = []
    for _ in range(RUNS):
        started_s = time.perf_counter()
        lab = owner.start(level)
        times.append(time.perf_counter() - started_s)
        lab.close()
    return tuple(times)


def measure() -> Iterator[Measurement]:
    """Yield the figures; without root only those of the control plane."""
    yield Measurement(
        name="control plane ready, warm",
        runs=seconds_until_ready("control-plane"),
        unit="s",
        goal=Goal(at_most=8),
    )
    if os.geteuid() == 0:
        yield Measurement(
            name="two real nodes ready, warm",
            runs=seconds_until_ready("nodes"),
            unit="s",
            goal=Goal(at_most=20),
        )


if __name__ == "__main__":
    sys.exit(run("lab", measure))
