"""Bytes of a layer's slices when they are stepped, against its columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn, optim

from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import DeviceKind, OptimizerMode, Precision
from plimsoll_profiler.counting.live_bytes import LiveBytes
from plimsoll_profiler.counting.meters import open_bench
from plimsoll_profiler.probing.divided_state import Divider
from plimsoll_profiler.probing.layer_state import probe_state
from plimsoll_profiler.probing.messages import DividedState
from plimsoll_profiler.probing.prober import Prober
from plimsoll_profiler.profiling.assemble import assemble
from plimsoll_profiler.profiling.findings import Findings
from plimsoll_profiler.profiling.profiler import ask_all
from plimsoll_trainer.emulated.device import is_on_host
from plimsoll_trainer.engine.built_layer import build_layer
from plimsoll_trainer.engine.flat_buffers import FlatBuffer, Share, lay_out
from plimsoll_trainer.engine.layer_optimizer import squared_norm
from plimsoll_trainer.engine.trained_layer import TrainedLayer
from plimsoll_trainer.workload import AdamW, Layer, MakeOptimizer, Workload
from tests.support.builders import a_fingerprint
from tests.support.profiles import a_request, ignore
from tests.support.workloads import a_sequential, mean_square, points

CPU, ALIGNMENT = torch.device("cpu"), 16
SCALARS = 64
"""Bytes of a step that do not grow, such as the norm."""


def a_frozen() -> nn.Module:
    """Build a layer of which the matrix is not trained."""
    layer = nn.Linear(40, 30)
    layer.weight.requires_grad_(False)
    return layer


def three_matrices() -> nn.Module:
    """Build matrices of 33, 33 and 1 rows."""
    return nn.Sequential(*(nn.Linear(50, n, bias=False) for n in (33, 33, 1)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A layer and its optimizer, and bytes of a number: kept, and on top of a step."""

    layer: Callable[[], nn.Module]
    make: MakeOptimizer
    kept: int
    on_top: int
    num_numbers: int
    precision: Precision = Precision.FP32
    sums: Precision = Precision.FP32

    @property
    def workload(self) -> Workload:
        """A workload of this one layer."""
        return Workload(
            layers=(Layer(name="one", factory=self.layer, kind="one"),),
            loss=mean_square,
            batch=points,
            optimizer=self.make,
            precision=self.precision,
            gradient_precision=self.sums,
        )

    def columns(self) -> DividedState:
        """Findings of the prober, on tensors without data."""
        workload = self.workload
        with open_bench(DeviceKind.EMULATED, Source.TRACED) as bench:
            found = probe_state(workload, 0, bench, Divider(workload))[1].divided
        assert found is not None
        return found


LOOP, LISTS = AdamW(mode=OptimizerMode.LOOP), AdamW(mode=OptimizerMode.FOREACH)
LINEAR = partial(nn.Linear, 41, 30)  # 1230 -> 1232 numbers, 30 -> 32
CASES = {
    "linear": Case(layer=LINEAR, make=AdamW(), kept=8, on_top=0, num_numbers=1264),
    "lists": Case(layer=LINEAR, make=LISTS, kept=8, on_top=4, num_numbers=1264),
    "loop": Case(layer=LINEAR, make=LOOP, kept=8, on_top=8, num_numbers=1264),
    "matrices": Case(
        layer=three_matrices, make=LOOP, kept=8, on_top=8, num_numbers=2 * 1664 + 64
    ),
    "matrices in lists": Case(
        layer=three_matrices, make=LISTS, kept=8, on_top=4, num_numbers=2 * 1664 + 64
    ),
    "norm": Case(
        layer=partial(nn.LayerNorm, 50), make=LOOP, kept=8, on_top=8, num_numbers=128
    ),
    "embedding": Case(
        layer=partial(nn.Embedding, 33, 7),
        make=partial(optim.Adam, amsgrad=True, fused=True),
        kept=12,
        on_top=0,
        num_numbers=240,
    ),
    "frozen": Case(layer=a_frozen, make=AdamW(), kept=8, on_top=0, num_numbers=32),
    "sgd": Case(
        layer=LINEAR,
        make=partial(optim.SGD, lr=0.1, foreach=False),
        kept=0,
        on_top=0,
        num_numbers=1264,
    ),
    "momentum and decay": Case(
        layer=LINEAR,
        make=partial(optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.1, foreach=True),
        kept=4,
        on_top=4,
        num_numbers=1264,
    ),
    "masters": Case(
        layer=LINEAR,
        make=AdamW(),
        kept=12,
        on_top=0,
        num_numbers=1264,
        precision=Precision.BF16,
    ),
    "masters, sums in bf16": Case(
        layer=LINEAR,
        make=LISTS,
        kept=12,
        on_top=8,
        num_numbers=1264,
        precision=Precision.BF16,
        sums=Precision.BF16,
    ),
}


def stepped(
    workload: Workload, share: Share
) -> tuple[list[FlatBuffer], TrainedLayer, int, int]:
    """Step a replica's slices of real tensors; bytes kept, and those on top."""
    with LiveBytes() as meter:
        layer = build_layer(workload, 0, CPU)
        buffers = lay_out(layer.parameters(), (), workload.gradient_dtype, share)
        before_bytes = meter.current_bytes
        trained = TrainedLayer(layer.parameters(), buffers, workload.optimizer)
        step(trained)
        kept_bytes = meter.current_bytes - before_bytes
        meter.reset_peak()
        step(trained)
        on_top_bytes = meter.peak_bytes - before_bytes - kept_bytes
    return buffers, trained, kept_bytes, on_top_bytes


def step(trained: TrainedLayer) -> None:
    """Do what a trainer does with a layer's slices at the end of a step."""
    trained.scale(1.0)
    squared_norm(trained.own_gradients, CPU)
    trained.step(1.0)


@pytest.mark.parametrize("num_replicas", [2, 3])
@pytest.mark.parametrize("name", CASES)
def test_slices_hold_what_the_columns_say(name: str, num_replicas: int) -> None:
    """Real tensors of every replica: kept to the byte, and on top no more.

    Besides, a replica has a count of steps for each parameter of which it owns a piece,
    4 bytes with Adam: less than the rest of the whole layer.
    """
    case = CASES[name]
    found, workload = case.columns(), case.workload
    assert found.num_numbers == case.num_numbers
    assert found.optimizer_bytes_per_number == case.kept
    assert found.transient_bytes_per_number == case.on_top
    for replica in range(num_replicas):
        share = Share(replica=replica, num_replicas=num_replicas)
        buffers, trained, kept_bytes, on_top_bytes = stepped(workload, share)
        own = [place.end - place.first for place in trained.places]
        rest_bytes = kept_bytes - case.kept * sum(own)
        assert 0 <= rest_bytes <= found.optimizer_rest_bytes
        assert rest_bytes == (4 * len(own) if case.kept >= 8 else 0)
        size = sum(buffer.own.stop - buffer.own.start for buffer in buffers)
        assert on_top_bytes <= case.on_top * size + SCALARS
        if len(own) == 1:
            assert on_top_bytes >= case.on_top * sum(own)


@pytest.mark.parametrize("name", CASES)
def test_parameters_lie_as_large_as_the_columns_say(name: str) -> None:
    """But for the padding that makes equal slices, less than 16 numbers for each."""
    case, num_replicas = CASES[name], 2
    found, workload = case.columns(), case.workload
    layer = build_layer(workload, 0, CPU)
    share = Share(num_replicas=num_replicas)
    [buffer] = lay_out(layer.parameters(), (), workload.gradient_dtype, share)
    assert buffer.values is not None
    frozen = [p.nbytes for p in layer.parameters() if not p.requires_grad]
    padding_bytes = buffer.values.nbytes + sum(frozen) - found.parameter_bytes
    assert 0 <= padding_bytes < ALIGNMENT * num_replicas * buffer.values.itemsize
    assert buffer.values.numel() - found.num_numbers < ALIGNMENT * num_replicas


def test_a_group_of_vectors_does_not_dilute_that_of_matrices() -> None:
    """Lists of a group at a time: by the layer's numbers it would be 3.5 bytes each."""
    case = Case(
        layer=partial(nn.Linear, 7, 512), make=LISTS, kept=8, on_top=4, num_numbers=4096
    )
    workload = case.workload
    with open_bench(DeviceKind.EMULATED, Source.TRACED) as bench:
        whole = probe_state(workload, 0, bench, Divider(workload))[1]
    assert whole.divided is not None
    assert whole.optimizer_transient_bytes == 3.5 * case.num_numbers
    assert whole.divided.transient_bytes_per_number == case.on_top


def test_several_types_count_as_the_one_that_takes_most() -> None:
    """An upper bound: a norm in fp32 has no masters, beside a matrix in bf16."""
    layer = nn.Sequential(nn.Linear(40, 30).bfloat16(), nn.LayerNorm(30))
    workload = CASES["masters"].workload
    with open_bench(DeviceKind.EMULATED, Source.TRACED) as bench:
        found = Divider(workload).state_of(layer.parameters(), 100_000, bench)
    assert found.num_numbers == 1200 + 3 * 32
    assert found.parameter_bytes == 2 * (1200 + 32) + 4 * 2 * 32
    assert found.optimizer_bytes_per_number == 12
    assert found.optimizer_rest_bytes == 100_000 - 12 * (1200 + 30 * 3)


def test_a_layer_that_trains_nothing_divides_nothing() -> None:
    """All its columns are 0; it has no optimizer."""
    found = Case(layer=nn.ReLU, make=AdamW(), kept=0, on_top=0, num_numbers=0).columns()
    assert found == DividedState(
        num_parameters=0,
        num_buffers=0,
        num_numbers=0,
        smallest_buffer=0,
        parameter_bytes=0,
        optimizer_bytes_per_number=0,
        optimizer_rest_bytes=0,
        transient_bytes_per_number=0,
    )


class Lars(optim.SGD):
    """Steps of one length, whatever the gradient's."""

    def step(self, closure: Any = None) -> Any:
        """Scale each gradient to a norm of 1."""
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad.div_(parameter.grad.norm())
        return super().step(closure)


class OnDevices(torch.optim.SGD):
    """Stands for an optimizer whose kernels are for GPUs alone."""

    def step(self, closure: Any = None) -> Any:
        """Refuse tensors of the host."""
        if is_on_host():
            raise RuntimeError("this kernel is for CUDA")
        return super().step(closure)


@pytest.mark.parametrize("make", [AdamW(), partial(OnDevices, lr=0.1)])
def test_an_optimizer_that_cannot_step_on_the_host_is_profiled(
    make: MakeOptimizer,
) -> None:
    """The recipe says so, and no seconds of such a step are asked for."""
    prober = Prober(replace(a_sequential(), optimizer=make), [1])
    with open_bench(DeviceKind.EMULATED, Source.TRACED) as bench:
        frame = prober.frame(a_fingerprint(), bench)
    may_be = isinstance(make, AdamW)
    assert frame.recipe.steps_on_host is may_be
    assert (prober.host_steps is not None) is may_be


@pytest.mark.parametrize("make", [AdamW(), partial(Lars, lr=0.1)])
def test_an_optimizer_that_mixes_numbers_is_not_divided(make: MakeOptimizer) -> None:
    """The recipe says so, and neither layers nor ties have columns of it.

    Ties are a matrix of 4 x 4 and a vector of 4, both in a part of 16 numbers.
    """
    prober = Prober(replace(a_sequential(), optimizer=make), [1])
    with open_bench(DeviceKind.EMULATED, Source.TRACED) as bench:
        frame = prober.frame(a_fingerprint(), bench)
        findings = Findings(request=a_request(micro_batches=(1,)), frame=frame)
        ask_all(partial(prober.probe, bench=bench), findings, ignore)
    made = assemble(findings.request, frame, findings.results)
    may_be = isinstance(make, AdamW)
    assert made.recipe.elementwise is may_be
    assert (made.costs.divided is not None) is may_be
    for tie in made.tied:
        assert tie.num_numbers == (16 if may_be else 0)
        assert tie.optimizer_bytes_per_number == (8 if may_be else 0)
