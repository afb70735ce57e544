"""Seconds of a layer on a real device, with others of its kind run in turn.

A step comes back to a layer after all others: one that is timed alone has its
parameters in a cache and looks faster than it is. So copies of it are built, as many as
the model has, or as fill the caches:

    forward 0, 1, 2, ...  then  backward ..., 2, 1, 0

Copies take memory, so they are built after the layer's bytes were probed, and where
they do not fit the layer is timed alone.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import nn

from plimsoll_profiler.counting.meters import Bench
from plimsoll_profiler.probing.layer_probe import LayerCase, MicroBatch
from plimsoll_trainer.out_of_memory import is_out_of_memory

FEWEST_RUNS, MOST_RUNS, ENOUGH_S = 3, 30, 0.025
"""A pass is timed until it ran for so long in total, within these bounds."""
CACHE_BYTES = 2**27
"""More than the last cache of a CPU or a GPU of 2026 holds."""

PassSeconds = tuple[float, float]
"""Of forward and backward."""


def num_in_turn(num_alike: int, layer_bytes: int) -> int:
    """Number of a kind's layers that take turns, the first one included.

    `layer_bytes` are those of one layer's parameters and gradients.
    """
    return min(num_alike, -(-CACHE_BYTES // layer_bytes)) if layer_bytes else 1


def time_ways(
    layer: nn.Module,
    copies: Callable[[], Sequence[nn.Module]],
    ways: Sequence[LayerCase],
    bench: Bench,
) -> list[PassSeconds]:
    """Median seconds of each way to run a layer on a real device: kept and recomputed.

    Their differences matter, so all are timed in turn and under the same conditions.
    The layer has gradients already; `copies` builds others to take turns with.
    """
    try:
        return time_in_turn([layer, *copies()], ways, bench)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
    return time_in_turn([layer], ways, bench)


def time_in_turn(
    alike: Sequence[nn.Module], ways: Sequence[LayerCase], bench: Bench
) -> list[PassSeconds]:
    """Median seconds of all forward, then all backward passes, by way.

    The first round is not counted: it meets memory that was never touched.
    """
    for where in ways:
        time_once(alike, where, bench, Runs())
    runs = [Runs() for _ in ways]
    while not all(each.are_enough for each in runs):
        for each, where in zip(runs, ways, strict=True):
            time_once(alike, where, bench, each)
    return [
        (statistics.median(each.forward_s), statistics.median(each.backward_s))
        for each in runs
    ]


@dataclass(kw_only=True, slots=True)
class Runs:
    """Seconds of every run so far."""

    forward_s: list[float] = field(default_factory=list)
    backward_s: list[float] = field(default_factory=list)

    @property
    def are_enough(self) -> bool:
        """Whether a median can be taken."""
        num_runs = len(self.forward_s)
        took_s = sum(self.forward_s) + sum(self.backward_s)
        return num_runs >= MOST_RUNS or (num_runs >= FEWEST_RUNS and took_s >= ENOUGH_S)


def time_once(
    alike: Sequence[nn.Module], where: LayerCase, bench: Bench, runs: Runs
) -> None:
    """Run each layer forward, then each backward, and note the seconds."""
    steps = [MicroBatch(layer, where, bench.device) for layer in alike]
    runs.forward_s += [seconds(step.forward, bench) for step in steps]
    for step in reversed(steps):
        step.release_output()
        step.turn()
        runs.backward_s.append(seconds(step.backward, bench))


def median_s(run: Callable[[], object], bench: Bench) -> float:
    """Median seconds of a few runs."""
    return statistics.median(seconds(run, bench) for _ in range(FEWEST_RUNS))


def seconds(run: Callable[[], object], bench: Bench) -> float:
    """Run something and return its seconds, the device's work included."""
    bench.wait()
    start = time.perf_counter()
    run()
    bench.wait()
    return time.perf_counter() - start
