"""The largest batch under one cap on 1, 2 and 3 devices, placed and trained.

Parameters, gradients and optimizer state are there once, however many devices share
them. So what is left for values grows faster than the number of devices: ParDNN
(Qararyah et al., 2020) claims batches that grow superlinearly. For each model the cap
is what two samples take on one device; the batch is one micro-batch. The largest is
found by bisection over placements, then trained for two steps by as many processes,
each of which has no byte above the cap. One sample more is placed as well: what is
found for it, if anything, does not fit. Written to docs/benchmarks/superlinear.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import torch

from benchmarks.frame import Goal, Measurement, run
from benchmarks.support.branching_models import workload
from benchmarks.support.capped_run import require_no_other_death, run_capped
from benchmarks.support.pages import markdown, write_page
from plimsoll_planner.graph.place import place
from plimsoll_planner.graph.placed import placed_of
from plimsoll_planner.records.graph_profile import GraphProfile
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.offer import Link
from plimsoll_planner.records.placement_plan import PlacementPlan
from plimsoll_planner.units import at_least
from plimsoll_trainer.devices.device import HostDevice
from plimsoll_trainer.emulated.device import EmulatedDevice
from plimsoll_trainer.engine.world import join_world
from plimsoll_trainer.placed.capture import capture
from plimsoll_trainer.placed.costs import measured
from plimsoll_trainer.placed.profile import profile_of
from plimsoll_trainer.placed.training import PlacedTrainer
from plimsoll_trainer.placed.workload import of_chain
from tests.support.ranks import run_on_device

MODELS = ("two towers", "u-net", "t5")
DEVICES = (1, 2, 3)
FEW = 2
"""Samples that one device has just room for."""
MUCH_BYTES = 2**40
MOST = 1024
"""Samples that are tried at most."""
LINK = Link(bandwidth_bytes_per_s=1e9, latency_s=1e-4)
HEAD = (
    *("model", "cap", "states", "devices", "largest batch", "of one device's"),
    *("fullest device", "trained", "one sample more"),
)
PROSE = """# Largest batch under one cap

`make bench-superlinear` writes this page. Operators are placed one by one on devices
that have as much memory as the fastest order of two samples takes on one device:
parameters, gradients and Adam's state of the whole model, and the values of two.
The batch is one micro-batch of one replica. "Trained" are two steps by real
processes on emulated devices under that cap to the byte; "one sample more" is the
verdict on the next larger batch: undecided means that no placement was found and no
bound proves that there is none, fails that one does.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """The largest batch on some devices."""

    batch: int
    """0: not even one sample."""
    plan: PlacementPlan | None
    after: Verdict
    """On one sample more."""


@cache
def profile(name: str, batch: int) -> GraphProfile:
    """Graph of a model with measured costs."""
    return run_on_device(profile_here, name, batch)


def profile_here(name: str, batch: int) -> GraphProfile:
    """Measure as an emulated device."""
    made = of_chain(workload(name=name))
    graph = capture(made, batch)
    return profile_of(graph, measured(graph, made, HostDevice()))


def state_bytes(of: GraphProfile) -> int:
    """Parameters, gradients and optimizer state."""
    held = of.parameters
    parts = (held.parameter_bytes, held.gradient_bytes, held.optimizer_bytes)
    return sum(map(sum, parts))


def placed(name: str, batch: int, num_devices: int, cap_bytes: int) -> PlacementPlan:
    """Place a batch."""
    return place(profile(name, batch), num_devices, capacity_bytes=cap_bytes, link=LINK)


def largest(name: str, num_devices: int, cap_bytes: int) -> Found:
    """Largest batch whose placement fits, by bisection."""

    def fits(batch: int) -> bool:
        found = placed(name, batch, num_devices, cap_bytes)
        return found.verdict is Verdict.FITS

    low, high = 0, 1
    while high <= MOST and fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return Found(
        batch=low,
        plan=placed(name, low, num_devices, cap_bytes) if low else None,
        after=placed(name, low + 1, num_devices, cap_bytes).verdict,
    )


def train(name: str, batch: int, plan: PlacementPlan) -> None:
    """Be a rank that trains for two steps."""
    device = EmulatedDevice()
    made = of_chain(workload(name=name))
    graph = capture(made, batch)
    bare = profile_of(graph)
    world = join_world(plan.num_devices, 1, torch.device("cpu"))
    device.leave_out()
    device.set_cap(plan.capacity_bytes)
    trainer = PlacedTrainer(
        made,
        graph,
        profile=bare,
        placed=placed_of(plan, bare),
        world=world,
        micro_batch=batch,
    )
    for step in range(2):
        trainer.run_step(step)


def measure() -> Iterator[Measurement]:
    """Find and train the largest batches."""
    rows, wanted = list[tuple[str, ...]](), sys.argv[1:]
    for name in wanted or MODELS:
        states = state_bytes(profile(name, 1))
        cap_bytes = placed(name, FEW, 1, MUCH_BYTES).peak_bytes
        first = last = 0
        for count in DEVICES:
            found = largest(name, count, cap_bytes)
            first, last = first or found.batch, found.batch
            trained = "-"
            if found.plan is not None:
                done = run_capped(train, [0] * count, name, found.batch, found.plan)
                require_no_other_death([done])
                trained = "yes" if done.is_done else "out of memory"
                yield Measurement(
                    name=f"{name}, {count} devices: trained under the cap",
                    runs=(float(done.is_done),),
                    unit="",
                    goal=Goal(at_least=1),
                )
            rows.append(row_of(name, cap_bytes, states, count, first, found, trained))
            print(*rows[-1], sep=" | ", flush=True)
        if first:
            most = DEVICES[-1]
            yield Measurement(
                name=f"{name}: batch on {most} devices, of {most} times that on one",
                runs=(last / (most * first),),
                unit="",
                goal=Goal(at_least=1),
            )
    if not wanted:
        write_page("superlinear", PROSE, [("Batches", markdown(HEAD, rows))])


def row_of(
    name: str,
    cap_bytes: int,
    states: int,
    count: int,
    first: int,
    found: Found,
    trained: str,
) -> tuple[str, ...]:
    """A row of the page."""
    times = f"{found.batch / first:.1f}" if first else "-"
    peak = "-" if found.plan is None else at_least(found.plan.peak_bytes)
    return (
        *(name, at_least(cap_bytes), at_least(states), str(count), str(found.batch)),
        *(times, peak, trained, str(found.after)),
    )


if __name__ == "__main__":
    sys.exit(run("superlinear", measure))
