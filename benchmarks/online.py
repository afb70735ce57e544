"""A plan that is revised while it runs: how much of a slow rank is won back, and when.

Two ranks, each on a core of its own; from step 40 on a busy neighbour takes half of the
core of rank 1. The same training is run

    stays      by the plan that was launched
    revised    with `replanOnline`, as by default
    best       by every cut near the one that is best, from the first step on: the
               fastest of them is what the exact new plan could win back

Bars: at least 70 % of that is won within 60 steps of the neighbour's coming, in the
first attempt; a layer of 0.2 M parameters moves, with all its state, within 30 ms. Both
cores must be free.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.frame import CannotRunError, Goal, Measurement, run
from benchmarks.support.slowed_run import SlowedRun, slowed_run
from benchmarks.support.timed_moves import timed_moves
from plimsoll_planner.units import at_least

MANIFEST = """\
apiVersion: plimsoll.dev/v1alpha1
kind: TrainingPlan
metadata: {{name: {name}}}
spec:
  workload:
    entrypoint: examples.mlp:workload
    args: {{depth: 12, width: 384, num_points: 64}}
  training: {{globalBatchSize: 32, steps: {steps}}}
  override:
    {{pipeline: 2, data: 1, microBatch: 4, optimizerHome: device, offloadedLayers: [],
      recomputedLayers: []{cuts}}}
  runPolicy: {{replanOnline: {online}}}
"""
DEVICES = ["--device", "cpu", "--devices", "2", "--device-memory", "64MiB"]
NUM_LAYERS = 14
SLOWED_AT, WITHIN = 40, 60
"""Steps."""
STEPS = 300
BEST_STEPS = 40
NEAR = range(7, 13)
"""First layers of the second stage that are tried for the best."""
ROUNDS = 3
WIDTHS = (128, 512)
"""Of blocks of a GPT that move."""
NUM_MOVES = 20


def measure() -> Iterator[Measurement]:
    """Yield the figures."""
    if (os.cpu_count() or 1) < 2:  # noqa: PLR2004 - two ranks
        raise CannotRunError("two cores are needed")
    for width in WIDTHS:
        moves = timed_moves(width, NUM_MOVES)
        size = f"{moves.parameters / 1e6:.1f} M parameters, {at_least(moves.num_bytes)}"
        yield Measurement(
            name=f"a layer moves: {size}",
            runs=tuple(1000 * seconds for seconds in moves.seconds),
            unit="ms",
            goal=Goal(at_most=30.0) if width == WIDTHS[0] else None,
        )
    won: list[float] = []
    steps: list[float] = []
    stay_s: list[float] = []
    revised_s: list[float] = []
    best_s: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        trained(root, "warm-up", BEST_STEPS, online=False)
        for number in range(ROUNDS):
            stays = trained(root, f"stays-{number}", 2 * WITHIN, online=False)
            revised = trained(root, f"revised-{number}", STEPS, online=True)
            best = min(
                step_of(trained(root, f"best-{number}-{cut}", BEST_STEPS, cut=cut), 10)
                for cut in NEAR
            )
            before, after = step_of(stays, WITHIN), step_of(revised, WITHIN)
            stay_s.append(before)
            revised_s.append(after)
            best_s.append(best)
            won.append(100 * (before - after) / (before - best))
            within = [s - revised.slowed_from for s in revised.revised_after]
            steps.append(min(within, default=STEPS))
    for name, runs, unit, goal in (
        ("step, the plan stays", stay_s, "s", None),
        ("step, revised", revised_s, "s", None),
        ("step, the best cut from the start", best_s, "s", None),
        ("won back", won, "%", Goal(at_least=70.0)),
        ("steps until it is revised", steps, "steps", Goal(at_most=60.0)),
    ):
        yield Measurement(name=name, runs=tuple(runs), unit=unit, goal=goal)


def trained(
    root: Path, name: str, steps: int, *, online: bool = False, cut: int = 0
) -> SlowedRun:
    """Run the training; with a cut, beside the neighbour from the first step on."""
    manifest = root / f"{name}.yaml"
    cuts = f", cuts: [0, {cut}]" if cut else ""
    text = MANIFEST.format(
        name=name, steps=steps, cuts=cuts, online=str(online).lower()
    )
    manifest.write_text(text)
    found = slowed_run(manifest, root / "home", DEVICES, 1 if cut else SLOWED_AT)
    if found.attempts > 1:
        raise RuntimeError(f"{name} was started again")
    return found


def step_of(found: SlowedRun, after: int) -> float:
    """Median of the steps from so many on after the neighbour came."""
    return median(found.step_s[found.slowed_from + after :])


if __name__ == "__main__":
    sys.exit(run("online", measure))
