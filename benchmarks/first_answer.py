"""Time from a model's name to its first answer, on two cores.

Bars: 60 s for 8B on one node of 8 GPUs, 120 s for 70B on 8 such nodes, up to 64 GPUs.
The command is what a person types, with nothing in its cache; a second answer about the
same model takes its profile from there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.frame import NUM_CORES, Goal, Measurement, few_cores, run, seconds_of

NUM_RUNS = 3


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and how long its first answer may take."""

    model: str
    machines: str
    max_gpus: int
    most_s: float


QUESTIONS = (
    Question("Qwen3-8B", "8xH100-80GB", 8, 60.0),
    Question("Llama-3.1-70B", "8x8xH100-80GB", 64, 120.0),
)
LENGTH, GLOBAL_BATCH = "8192", "256"


def measure() -> Iterator[Measurement]:
    """Yield the figures."""
    for question in QUESTIONS:
        name = f"{question.model} on {question.machines}, {NUM_CORES} cores"
        with TemporaryDirectory() as folder, few_cores():
            [first] = seconds_of(partial(ask_anew, question), runs=NUM_RUNS, warm_up=0)
            [later] = seconds_of(partial(ask, question, Path(folder)))
        bar = Goal(at_most=question.most_s)
        yield Measurement(name=f"first answer: {name}", runs=first, unit="s", goal=bar)
        yield Measurement(name=f"later answer: {name}", runs=later, unit="s")


def ask_anew(question: Question) -> None:
    """Ask with an empty cache."""
    with TemporaryDirectory() as cache:
        ask(question, Path(cache))


def ask(question: Question, cache: Path) -> None:
    """Ask as a person does, with a cache of its own."""
    words = ["plan", question.model, "--sequence", LENGTH, "--batch", GLOBAL_BATCH]
    words += ["--on", question.machines, "--max-gpus", str(question.max_gpus)]
    subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "plimsoll_cli", *words],
        env=os.environ | {"XDG_CACHE_HOME": str(cache)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )


if __name__ == "__main__":
    sys.exit(run("first_answer", measure))
