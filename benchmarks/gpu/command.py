"""Measures the GPU of this machine against predictions; called by `__main__`.

Writes one JSON with all numbers and a page of tables, after each model, so that what
was measured outlives whatever stops it. Needs torch and numpy alone, no network.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from benchmarks.gpu.device import MeasuredDevice, ask_gpu, find_device
from benchmarks.gpu.folder import ROOT, Folder, UnusableFolderError
from benchmarks.gpu.measuring import Measuring
from benchmarks.gpu.models import NAMES
from benchmarks.gpu.plans import CHOICES, Choice
from benchmarks.gpu.results import Results
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_trainer.errors import NoGpuError, TrainerError

FOLDERS = {"cuda": ROOT / "docs", "cpu": ROOT / "build"}
FAILED, WRONG_INPUT, INTERRUPTED = 1, 3, 130


def main(words: Sequence[str] | None = None) -> int:
    """Measure; 0 where everything that was asked for was."""
    options = parser().parse_args(words)
    try:
        return run(options)
    except UnusableFolderError as error:
        say(str(error))
        return WRONG_INPUT
    except TrainerError as error:
        say(str(error))
        return FAILED
    except KeyboardInterrupt:
        rest = " without --anew" * options.anew
        say(f"interrupted: the same command{rest} goes on where it was")
        return INTERRUPTED


def run(options: argparse.Namespace) -> int:
    """Measure what is left, and say what still is.

    Raises:
        TrainerError: there is no GPU.
        UnusableFolderError: results cannot be written.
    """
    device = find_device(options.device)
    folder = Folder(place=options.out or FOLDERS[options.device], say=say)
    results = folder.begin(device, anew=options.anew)
    bench = Bench(device=device, folder=folder, choices=CHOICES[: options.plans])
    try:
        bench.measure(results, options.models, options.minutes)
    except NoGpuError as error:  # any more; what was measured is written
        say(str(error))
    return bench.report(results, options.models)


class Parser(argparse.ArgumentParser):
    """Refuses in one line."""

    def error(self, message: str) -> NoReturn:
        """Print the message alone, and exit."""
        self.exit(WRONG_INPUT, f"{message}\n")


def parser() -> Parser:
    """Describe the command line."""
    made = Parser(prog="make gpu GPU=..", description=__doc__)
    made.add_argument("--device", choices=list(FOLDERS), default="cuda")
    made.add_argument(
        "--models", type=models, default=list(NAMES), help=f"of {', '.join(NAMES)}"
    )
    made.add_argument(
        "--plans",
        type=plans,
        default=len(CHOICES),
        help=f"how many of the {len(CHOICES)} plans of each model",
    )
    made.add_argument("--anew", action="store_true", help="keep nothing of before")
    made.add_argument(
        "--minutes", type=minutes, default=math.inf, help="begin no model after these"
    )
    made.add_argument("--out", type=Path, help="folder of gpu.json and gpu.md")
    return made


def models(text: str) -> list[str]:
    """Names of models, each once.

    Raises:
        ArgumentTypeError: there is no such model.
    """
    names = list(dict.fromkeys(text.split(",")))
    for name in names:
        if name not in NAMES:
            raise argparse.ArgumentTypeError(
                f"there is no {name!r}; there are {', '.join(NAMES)}"
            )
    return names


def plans(text: str) -> int:
    """How many plans.

    Raises:
        ArgumentTypeError: none.
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}, allowed is at least 1")
    return int(text)


def minutes(text: str) -> float:
    """After which no model is begun.

    Raises:
        ArgumentTypeError: none, or without an end.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"got {text!r}, allowed is a number above 0")
    return value


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """Models of one device, measured one after the other into a folder."""

    device: MeasuredDevice
    folder: Folder
    choices: Sequence[Choice]

    def measure(self, results: Results, names: Sequence[str], minutes: float) -> None:
        """Measure the models that are left, and write what is there after each.

        Args:
            results: of before; grows.
            names: of models, in order.
            minutes: after which no model is begun.

        Raises:
            NoGpuError: the GPU is gone; what was measured before is written.
            UnusableFolderError: results cannot be written any more.
        """
        end_s = time.monotonic() + 60 * minutes
        for name in names:
            if results.covers(name, len(self.choices)):
                say(f"{name}: measured before")
                continue
            if time.monotonic() > end_s:
                return
            self.measure_model(results, name)

    def measure_model(self, results: Results, name: str) -> None:
        """Measure one model, and write what is there.

        Raises:
            NoGpuError: the GPU is gone.
            UnusableFolderError: results cannot be written any more.
        """
        measuring = Measuring(
            model=name,
            device=self.device,
            is_tiny=results.is_tiny,
            choices=self.choices,
            say=say,
        )
        found = measuring.run()
        results.add(found)
        results.learn(measuring.measured)
        self.folder.write(results)
        for error in found.errors:
            say(f"{name}: not measured: {error}")
        if found.errors and self.device.kind is DeviceKind.CUDA:
            ask_gpu()  # it may be gone

    def report(self, results: Results, names: Sequence[str]) -> int:
        """Print the models that are done, failed and left; 0 if none is missing."""
        missing = [n for n in names if not results.covers(n, len(self.choices))]
        num_done = len(names) - len(missing)
        paths = f"{self.folder.data}, {self.folder.page}"
        say(f"{num_done} of {len(names)} models: {paths}")
        failed = [
            n for n in missing if n in results.models and results.models[n].errors
        ]
        if failed:
            say(f"failed: {', '.join(failed)}")
        if left := [n for n in missing if n not in failed]:
            say(f"left: {', '.join(left)}; the same command goes on with them")
        return FAILED if missing else 0


def say(text: str) -> None:
    """Print a line at once, as minutes may pass until the next."""
    print(text, file=sys.stderr, flush=True)
