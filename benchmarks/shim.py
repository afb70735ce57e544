"""Cost of the emulated device's library for a training step: under 5 %.

Two processes train the same model, one with the library preloaded and one without. They
take turns, a few steps at a time, and each pair of turns gives one ratio, so that a
drift of the machine hits both. Several pairs of processes, for where a process lies in
memory shifts its speed by a little. The smaller the tensors, the more of a step is
allocation: the tiny model is the worst case, the small one what tests and plans use.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from benchmarks.frame import ROOT, CannotRunError, Goal, Measurement, run
from plimsoll_trainer.emulated import device
from plimsoll_trainer.errors import NoEmulatedDeviceError

MODELS = {"tiny": {"depth": 3, "width": 48}, "small": {"depth": 3, "width": 192}}
STEPS = {"tiny": 16, "small": 4}
"""Of one turn: about a third of a second."""
NUM_PAIRS = 4
"""Of processes."""
WARM_UP, NUM_TURNS = 2, 20
"""Of each process."""
MOST_PERCENT = 5.0


class Worker:
    """A process that trains when it is asked to."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        """Talk to a process that has just been started."""
        self._into = cast("IO[str]", process.stdin)
        self._out = cast("IO[str]", process.stdout)

    def seconds(self, model: str) -> float:
        """Let it run its steps of a model; return how long they took."""
        self._into.write(f"{model} {STEPS[model]}\n")
        self._into.flush()
        return float(self._out.readline())


@contextmanager
def worker(extra: Mapping[str, str]) -> Iterator[Worker]:
    """Start a worker with variables on top of the environment, and end it."""
    around = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(  # noqa: S603 - our own module
            [
                sys.executable,
                "-m",
                "benchmarks.support.shim_step",
                str(Path(folder) / "store"),
                json.dumps(MODELS),
            ],
            env=around | {"OMP_NUM_THREADS": "1"} | dict(extra),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with process:
            yield Worker(process)
            cast("IO[str]", process.stdin).close()


def added_percent() -> Iterator[tuple[str, float]]:
    """Yield what the library adds to the steps of each model, turn by turn."""
    with (
        worker(device.KEPT_WHEN_FREED) as plain,
        worker(device.environment(0)) as counted,
    ):
        for turn in range(WARM_UP + NUM_TURNS):
            order = (plain, counted) if turn % 2 else (counted, plain)
            for name in MODELS:
                taken_s = {each: each.seconds(name) for each in order}
                if turn >= WARM_UP:
                    yield name, 100 * (taken_s[counted] / taken_s[plain] - 1)


def measure() -> Iterator[Measurement]:
    """Yield the figures."""
    try:
        device.library()
    except NoEmulatedDeviceError as error:
        raise CannotRunError(str(error)) from None
    found: dict[str, list[float]] = {name: [] for name in MODELS}
    for _ in range(NUM_PAIRS):
        for name, percent in added_percent():
            found[name].append(percent)
    for name, runs in found.items():
        yield Measurement(
            name=f"what the shim adds to a step of a {name} model",
            runs=tuple(runs),
            unit="%",
            goal=Goal(at_most=MOST_PERCENT),
        )


if __name__ == "__main__":
    sys.exit(run("shim", measure))
