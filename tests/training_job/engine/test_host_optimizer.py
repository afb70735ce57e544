"""An optimizer on the host: the same steps, and a device without its bytes."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

from plimsoll_planner.records.engine import OptimizerHome, Sharding
from plimsoll_planner.records.model_profile import Precision
from plimsoll_planner.records.plan import Phase
from plimsoll_trainer.emulated.device import EmulatedDevice
from plimsoll_trainer.engine import training
from plimsoll_trainer.engine.boundaries import boundaries_of
from plimsoll_trainer.engine.flat_buffers import Share
from plimsoll_trainer.engine.host_bytes import host_bytes
from plimsoll_trainer.engine.host_link import HostLink
from plimsoll_trainer.engine.host_optimizer import choose_fused
from plimsoll_trainer.engine.stage import StageSlice
from plimsoll_trainer.engine.training import Trainer
from plimsoll_trainer.engine.world import join_world
from plimsoll_trainer.workload import MakeOptimizer
from tests.support.ranks import run_ranks
from tests.support.workloads import a_gpt

CPU = torch.device("cpu")
NUM_STEPS = 10
LATE_BYTES = 128
"""Losses, counts and squares of norms, which gloo's threads may let go late."""
STEP_BYTES = 4
"""Of each piece: how many steps it has taken."""


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
    held_on_host: int
    """As the trainer counts them."""
    needed_on_host: int
    """As they were foreseen."""
    num_pieces: int
    """Parameters that are stepped on, or pieces of them."""


def run(case: Case, *, on_host: bool) -> Run:
    """Train on this rank."""
    workload, device = a_gpt(**dict(case.fields)), EmulatedDevice()
    boundaries = boundaries_of(workload, 2)
    world = join_world(len(case.cuts) - 1, case.replicas, CPU)
    share = Share(replica=world.replica, num_replicas=case.replicas)
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
        held_on_host=trainer.host_bytes,
        needed_on_host=host_bytes(workload, trainer.part, share).needed,
        num_pieces=sum(len(layer.places) for layer in trainer.trained.values()),
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


def warm_up(step: int) -> float:
    """Factor on the learning rate."""
    return (step + 1) / NUM_STEPS


WARM_UP = ("learning_rate_factor", warm_up)
DROPOUT, BF16 = ("dropout", 0.1), ("precision", Precision.BF16)
BF16_SUMS = (BF16, ("gradient_precision", Precision.BF16))
ALL = (0, 1, 2)
CASES = {
    "three stages": Case(cuts=(0, 2, 3, 5), on_host=ALL, fields=(DROPOUT,)),
    "three stages in bf16": Case(cuts=(0, 2, 3, 5), on_host=ALL, fields=(BF16,)),
    "bf16, sums too": Case(cuts=(0, 2, 5), on_host=ALL, fields=BF16_SUMS),
    "two replicas": Case(cuts=(0, 5), replicas=2, on_host=ALL, fields=(WARM_UP,)),
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
    on top, whatever types it changes. The host holds what was foreseen for each number,
    and a count of steps for each piece.
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
        counts = STEP_BYTES * here.num_pieces if is_on_host else 0
        assert here.held_on_host == here.needed_on_host + counts
        assert there.held_on_host == there.needed_on_host == 0


@pytest.mark.parametrize(
    ("make", "fused"),
    [
        (torch.optim.AdamW, True),
        (torch.optim.Adam, True),
        (torch.optim.Adagrad, True),
        (partial(torch.optim.SGD, momentum=0.9), True),
        (partial(torch.optim.AdamW, foreach=True), None),
        (partial(torch.optim.AdamW, foreach=False), None),
        (partial(torch.optim.SGD, fused=False), False),
        (torch.optim.NAdam, None),
    ],
)
def test_a_fused_step_is_chosen_where_nobody_has_chosen(
    make: MakeOptimizer, fused: bool | None
) -> None:
    """It gives the same values to 1e-6, in the kernel that is asked for."""
    values: list[Tensor] = []
    for chooses in (False, True):
        torch.manual_seed(1)
        parameter = nn.Parameter(torch.randn(33, 17))
        optimizer = make([parameter])
        if chooses:
            choose_fused(optimizer)
            assert optimizer.param_groups[0].get("fused") is fused
        with torch.profiler.profile() as profile:
            for _ in range(10):
                parameter.grad = torch.randn(33, 17)
                optimizer.step()
        kernels = {event.key for event in profile.key_averages()}
        is_fused = any(key.startswith("aten::_fused_") for key in kernels)
        assert is_fused is bool(chooses and fused)
        values.append(parameter.detach())
    torch.testing.assert_close(*values, rtol=1e-6, atol=1e-6)


class FusingLink(HostLink):
    """Lets the optimizer of a CPU take the step that is taken beside a GPU."""

    def __init__(self, device: torch.device) -> None:
        """Copy as ever."""
        super().__init__(device)
        self.is_cuda = True


def tied_values(on_host: tuple[int, ...]) -> Tensor:
    """Train with fused steps on the host alone; return this rank's tied embedding."""
    case = Case(cuts=(0, 3, 5), on_host=on_host)
    workload = a_gpt(optimizer=torch.optim.AdamW)
    with mock.patch.object(training, "HostLink", FusingLink):
        trainer = Trainer(
            workload,
            slices=case.slices(on_host=True),
            boundaries=boundaries_of(workload, 2),
            num_micro_batches=2,
            world=join_world(2, 1, CPU),
        )
    for step in range(3):
        trainer.run_step(step)
    (shared,) = trainer.shared
    return shared.tensor.detach()


def test_copies_of_a_tensor_stay_equal_where_steps_round_otherwise() -> None:
    """A fused step on the host, and a plain one on the device, of a tied embedding."""
    device, _ = run_ranks(tied_values, 2, ())
    for on_host in ((0,), (1,)):
        first, second = run_ranks(tied_values, 2, on_host)
        assert torch.equal(first, second)
        torch.testing.assert_close(first, device, rtol=1e-6, atol=1e-6)
    assert not torch.equal(run_ranks(tied_values, 2, (0, 1))[0], device)
