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
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.gpu.device import MeasuredDevice, NoGpuError, ask_gpu, find_device
from benchmarks.gpu.measuring import Measuring
from benchmarks.gpu.models import NAMES
from benchmarks.gpu.page import page
from benchmarks.gpu.results import Results, results_from
from plimsoll_planner.observed_overhead import ObservedRank, observed_overhead
from plimsoll_planner.records.device_overhead import OverheadKey
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.observation import Observation
from plimsoll_planner.records.plan import PhasePeak

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
        measure(results, device, names, place, options.minutes)
    except NoGpuError as error:
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


def measure(
    results: Results,
    device: MeasuredDevice,
    names: Sequence[str],
    place: Path,
    minutes: float,
) -> None:
    """Measure the models that are left, and write what is there after each.

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
        measuring = Measuring(
            model=name, device=device, is_tiny=results.is_tiny, say=say
        )
        found = measuring.run()
        results.models[name] = found
        results.observations += [
            {"model": name, **one} for one in measuring.observations
        ]
        fit(results)
        write(results, place)
        for error in found.errors:
            say(f"{name}: not measured: {error}")
        if found.errors and device.kind is DeviceKind.CUDA:
            ask_gpu()  # it may be gone


def fit(results: Results) -> None:
    """Fit what sits beside tensors to all that was observed."""
    ranks: dict[OverheadKey, list[ObservedRank]] = {}
    for place, one in enumerate(results.observations):
        seen = Observation.from_json(one["observation"], f"observations[{place}]")
        peak = PhasePeak.from_json(one["predicted"], f"observations[{place}]")
        fullest = max(seen.peaks, key=lambda found: found.device_bytes)
        ranks.setdefault(seen.overhead_key, []).append(
            ObservedRank(
                attempt=f"{one['model']} {seen.plan_digest}",
                micro_batch=one["micro_batch"],
                num_communicators=seen.num_communicators,
                predicted_allocated_bytes=peak.allocated.expected_bytes,
                allocated_bytes=fullest.allocated_bytes,
                reserved_bytes=fullest.reserved_bytes,
                device_bytes=fullest.device_bytes,
            )
        )
    for key, observed in ranks.items():
        overhead = observed_overhead(key, observed, ())
        results.overhead = None if overhead is None else overhead.to_json()


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
