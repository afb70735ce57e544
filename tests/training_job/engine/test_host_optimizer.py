"""An optimizer on the host: the same steps, and a device without its bytes."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from plimsoll_planner.records.engine import OptimizerHome, Sharding
from plimsoll_planner.records.model_profile import Precision
from plimsoll_planner.records.plan import Phase
from plimsoll_trainer.emulated.device import EmulatedDevice
from plimsoll_trainer.engine.boundaries import boundaries_of
from plimsoll_trainer.engine.stage import StageSlice
from plimsoll_trainer.engine.training import Trainer
from plimsoll_trainer.engine.world import join_world
from tests.support.ranks import run_ranks
from tests.support.workloads import a_gpt

CPU = torch.device("cpu")
NUM_STEPS = 10
LATE_BYTES = 128
"""Losses, counts and squares of norms, which gloo's threads may let go late."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A small GPT on some ranks, clipped and tied, its vectors without decay."""

    cuts: tuple[int, ...]
    replicas: int = 1
    divided: tuple[int, ...] = ()
    """Stages whose replicas divide the optimizer state."""
    on_host: tuple[int, ...]
    """Stages whose optimizers are on the host, where they are compared."""
    fields: tuple[tuple[str, Any], ...] = ()

    def slices(self, *, on_host: bool) -> list[StageSlice]:
        """Layers of every stage."""
        return [
            StageSlice(
                first_layer=first,
                end_layer=end,
                sharding=Sharding.OPTIMIZER if s in self.divided else Sharding.NONE,
                optimizer_home=OptimizerHome.HOST
                if on_host and s in self.on_host
                else OptimizerHome.DEVICE,
            )
            for s, (first, end) in enumerate(pairwise(self.cuts))
        ]


@dataclass(frozen=True, kw_only=True)
class Run:
    """Ten steps of one rank."""

    results: list[tuple[float, float]]
    """Loss and norm of each."""
    state: int
    """Bytes of the device between two steps."""
    peaks: dict[Phase, int]
    """Most of them in each phase of the later steps."""
    optimizer: int
    """Bytes of optimizer state and of fp32 copies, wherever they are."""


def run(case: Case, *, on_host: bool) -> Run:
    """Train on this rank."""
    workload, device = a_gpt(**dict(case.fields)), EmulatedDevice()
    boundaries = boundaries_of(workload, 2)
    world = join_world(len(case.cuts) - 1, case.replicas, CPU)
    peaks: dict[Phase, int] = {}
    gc.collect()
    before = device.current_bytes

    def read(phase: Phase) -> None:
        peaks[phase] = max(peaks.get(phase, 0), device.peak_bytes - before)
        device.reset_peak()

    trainer = Trainer(
        workload,
        slices=case.slices(on_host=on_host),
        boundaries=boundaries,
        num_micro_batches=3,
        world=world,
        on_phase=read,
    )
    results = [figures(trainer, 0)]
    gc.collect()
    state = device.current_bytes - before
    peaks.clear()
    device.reset_peak()
    results += [figures(trainer, step) for step in range(1, NUM_STEPS)]
    return Run(
        results=results,
        state=state,
        peaks=peaks,
        optimizer=optimizer_bytes(trainer),
    )


def figures(trainer: Trainer, step: int) -> tuple[float, float]:
    """Loss and norm of a step; nothing of it is kept."""
    result = trainer.run_step(step)
    assert result.gradient_norm is not None
    return float(result.loss), float(result.gradient_norm)


def optimizer_bytes(trainer: Trainer) -> int:
    """Bytes of state, and of masters that are not parameters."""
    total = 0
    for layer in trainer.trained.values():
        if (of := layer.optimizer) is not None:
            kept = [v for s in of.optimizer.state.values() for v in s.values()]
            total += sum(value.nbytes for value in kept)
            pairs = zip(of.parameters, of.masters, strict=True)
            total += sum(m.nbytes for p, m in pairs if m is not p)
    return total


def both(case: Case) -> tuple[Run, Run]:
    """The same steps with all optimizers on the device, and with some on the host."""
    return run(case, on_host=False), run(case, on_host=True)


DROPOUT, BF16 = ("dropout", 0.1), ("precision", Precision.BF16)
BF16_SUMS = (BF16, ("gradient_precision", Precision.BF16))
ALL = (0, 1, 2)
CASES = {
    "three stages": Case(cuts=(0, 2, 3, 5), on_host=ALL, fields=(DROPOUT,)),
    "three stages in bf16": Case(cuts=(0, 2, 3, 5), on_host=ALL, fields=(BF16,)),
    "bf16, sums too": Case(cuts=(0, 2, 5), on_host=ALL, fields=BF16_SUMS),
    "two replicas": Case(cuts=(0, 5), replicas=2, on_host=ALL),
    "divided by four": Case(cuts=(0, 5), replicas=4, divided=ALL, on_host=ALL),
    "one of two": Case(
        cuts=(0, 2, 5), replicas=2, divided=(1,), on_host=(1,), fields=(BF16, DROPOUT)
    ),
}


@pytest.mark.slow  # 3 s of CPU each: ranks that train twice
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_steps_are_the_same_and_the_device_has_no_byte_of_them(case: Case) -> None:
    """Losses and norms to the bit, in every plan of ranks.

    The device's peak falls by what the optimizer keeps, and a step of it holds nothing
    on top, whatever types it changes.
    """
    ranks = run_ranks(both, (len(case.cuts) - 1) * case.replicas, case)
    for rank, (there, here) in enumerate(ranks):
        assert here.results == there.results
        assert here.optimizer == there.optimizer > 0
        is_on_host = rank // case.replicas in case.on_host
        saved = there.optimizer if is_on_host else 0
        assert there.state - here.state == pytest.approx(saved, abs=LATE_BYTES)
        peak = max(there.peaks.values()) - max(here.peaks.values())
        assert peak == pytest.approx(saved, abs=LATE_BYTES)
        if is_on_host:
            on_top = here.peaks[Phase.OPTIMIZER_STEP] - here.state
            assert on_top <= LATE_BYTES
