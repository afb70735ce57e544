"""`python -m benchmarks.gpu`: measures the GPU of this machine against predictions.

Writes one JSON with all numbers and a page of tables, after each model, so that what
was measured outlives whatever stops it. Needs torch and numpy alone, no network.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.gpu.device import MeasuredDevice, ask_gpu, find_device
from benchmarks.gpu.measuring import Measuring
from benchmarks.gpu.models import NAMES
from benchmarks.gpu.page import page
from benchmarks.gpu.plans import CHOICES
from benchmarks.gpu.results import Results, results_from
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_trainer.errors import TrainerError

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {"cuda": ROOT / "docs", "cpu": ROOT / "build"}
FAILED, WRONG_INPUT = 1, 3


def main(words: Sequence[str] | None = None) -> int:
    """Measure; 0 where everything was."""
    options = parser().parse_args(words)
    names = options.models.split(",") if options.models else list(NAMES)
    if unknown := [name for name in names if name not in NAMES]:
        say(f"--models: there is no {unknown[0]}; there are {', '.join(NAMES)}")
        return WRONG_INPUT
    place = options.out or FOLDERS[options.device]
    try:
        device = find_device(options.device)
        results = begun(place / "gpu.json", device, anew=options.anew)
        bench = Bench(device=device, place=place, num_plans=options.plans)
        bench.measure(results, names, options.minutes)
    except TrainerError as error:  # no GPU, none any more, or a torch too old
        say(str(error))
        return FAILED
    errors = [e for model in results.models.values() for e in model.errors]
    say(f"{len(results.models)} models: {place / 'gpu.json'}, {place / 'gpu.md'}")
    return FAILED if errors else 0


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    made = argparse.ArgumentParser(prog="make gpu GPU=..", description=__doc__)
    made.add_argument("--device", choices=list(FOLDERS), default="cuda")
    made.add_argument("--models", default="", help=f"of {', '.join(NAMES)}")
    made.add_argument(
        "--plans",
        type=int,
        default=len(CHOICES),
        help=f"how many of the {len(CHOICES)} plans of each model",
    )
    made.add_argument("--anew", action="store_true", help="keep nothing of before")
    made.add_argument(
        "--minutes", type=float, default=0.0, help="begin no model after these"
    )
    made.add_argument("--out", type=Path, help="folder of gpu.json and gpu.md")
    return made


def begun(path: Path, device: MeasuredDevice, *, anew: bool) -> Results:
    """Results of before on the same device and torch, or none yet."""
    is_tiny = device.kind is DeviceKind.EMULATED
    if path.exists() and not anew:
        try:
            before = results_from(json.loads(path.read_text()))
        except (ValueError, KeyError, TypeError):
            say(f"{path} cannot be read any more: it is begun anew")
        else:
            if before.device == device.name:
                return before
            say(f"{path} is of {before.device}: it is begun anew for {device.name}")
    return Results(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        device=device.name,
        kind=device.kind,
        capacity_bytes=device.capacity_bytes,
        versions=device.versions,
        is_tiny=is_tiny,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """Where models are measured, and where results go."""

    device: MeasuredDevice
    place: Path
    num_plans: int

    def measure(self, results: Results, names: Sequence[str], minutes: float) -> None:
        """Measure the models that are left, and write what is there after each.

        Args:
            results: of before; grows.
            names: of models, in order.
            minutes: after which no model is begun; 0: all are.

        Raises:
            NoGpuError: the GPU is gone; what was measured before is written.
        """
        end_s = time.monotonic() + 60 * minutes if minutes else None
        for name in names:
            if name in results.models and not results.models[name].errors:
                say(f"{name}: measured before")
                continue
            if end_s is not None and time.monotonic() > end_s:
                say(f"{name}: no time is left; the same command goes on with it")
                break
            self.measure_model(results, name)

    def measure_model(self, results: Results, name: str) -> None:
        """Measure one model, and write what is there.

        Raises:
            NoGpuError: the GPU is gone.
        """
        measuring = Measuring(
            model=name,
            device=self.device,
            is_tiny=results.is_tiny,
            choices=CHOICES[: self.num_plans],
            say=say,
        )
        found = measuring.run()
        results.models[name] = found
        results.learn(measuring.measured)
        write(results, self.place)
        for error in found.errors:
            say(f"{name}: not measured: {error}")
        if found.errors and self.device.kind is DeviceKind.CUDA:
            ask_gpu()  # it may be gone


def write(results: Results, place: Path) -> None:
    """Write JSON and page, each whole or not at all."""
    place.mkdir(parents=True, exist_ok=True)
    texts = {
        "gpu.json": json.dumps(results.to_json(), indent=1) + "\n",
        "gpu.md": page(results),
    }
    for name, text in texts.items():
        part = place / f".{name}.part"
        part.write_text(text)
        part.replace(place / name)


def say(text: str) -> None:
    """Print a line at once, as minutes may pass until the next."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
