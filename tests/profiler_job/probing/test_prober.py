"""Findings of a prober before it probes, and its counts beside bytes."""

from __future__ import annotations

from functools import partial

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_profiler.counting.meters import open_bench
from plimsoll_profiler.probing.layer_probe import LayerCase
from plimsoll_profiler.probing.messages import ProbeRequest
from plimsoll_profiler.probing.pass_costs import work_of
from plimsoll_profiler.probing.prober import Prober
from plimsoll_profiler.profiling.assemble import assemble
from plimsoll_profiler.profiling.findings import Findings
from plimsoll_profiler.profiling.profiler import ask_all
from plimsoll_trainer.adapters.sequential import from_sequential
from plimsoll_trainer.engine.tensor_specs import TensorSpec
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.evaluation import Evaluation
from plimsoll_trainer.workload import Workload
from tests.support.builders import a_fingerprint
from tests.support.profiles import a_request, ignore
from tests.support.workloads import a_sequential, mean_square, points

B, N, FLOAT = 3, 8, 4
BETWEEN = LayerCase(incoming=TensorSpec((B, N), torch.float32), is_untrained=False)


def test_the_work_of_backward_is_the_layers_own() -> None:
    """A ReLU reads dy and y and writes dx; making dy is the work of the next layer."""
    with open_bench(DeviceKind.EMULATED, Source.TRACED) as bench:
        forward, backward = work_of(nn.ReLU(), BETWEEN, bench)
    assert forward.traffic_bytes == 2 * B * N * FLOAT
    assert backward.traffic_bytes == 3 * B * N * FLOAT


def test_a_layer_that_overwrites_its_input_is_not_recomputed() -> None:
    """A recompute would start from another input; torch refuses it."""
    net = [nn.Linear(6, 6), nn.ReLU(inplace=True), nn.Linear(6, 6)]
    workload = from_sequential(
        net, loss=mean_square, batch=points, optimizer=torch.optim.SGD
    )
    prober = Prober(workload, [1])
    assert [case.recomputable for case in prober.cases] == [True, False, True]
    with open_bench(DeviceKind.EMULATED, Source.TRACED) as bench:
        found = prober.probe(ProbeRequest(case=1, micro_batch=1), bench)
    assert found.kept is not None
    assert found.recomputed is None
    assert found.kept.saved_bytes == 0
    assert (found.kept.keeps_input, found.kept.keeps_output) == (False, True)


def a_batch_norm() -> Workload:
    """Build a chain that takes no single sample."""
    net = [nn.Flatten(), nn.Linear(30, 30), nn.BatchNorm1d(30), nn.Unflatten(1, (5, 6))]
    return from_sequential(
        net, loss=mean_square, batch=points, optimizer=torch.optim.SGD
    )


def test_a_batch_norm_is_probed_from_two_samples_on() -> None:
    """It takes no single one, which ended a run whose micro-batch was fixed to 4."""
    one, two = Prober(a_sequential(), [1, 2]), Prober(a_batch_norm(), [1, 2, 4])
    with open_bench(DeviceKind.EMULATED, Source.TRACED) as bench:
        frame = two.frame(a_fingerprint(), bench)
        plain = one.frame(a_fingerprint(), bench)
        found = Findings(request=a_request(micro_batches=(1, 2, 4)), frame=frame)
        ask_all(partial(two.probe, bench=bench), found, ignore)
    made = assemble(found.request, frame, found.results)
    assert (plain.micro_batches, frame.micro_batches) == ((1, 2), (2, 4))
    assert frame.input_bytes_per_sample == plain.input_bytes_per_sample
    assert frame.target_bytes_per_sample == plain.target_bytes_per_sample
    assert made.least_micro_batch == 2
    assert made.batch_statistics


def test_who_asks_for_one_sample_alone_is_told_what_to_ask_for() -> None:
    """A chain that fits together at none has another fault."""
    with pytest.raises(
        WorkloadError, match=r"least 2 samples .* --micro-batches 2,3,4"
    ):
        Prober(a_batch_norm(), [1])
    net = [nn.Linear(7, 6)]
    workload = from_sequential(
        net, loss=mean_square, batch=points, optimizer=torch.optim.SGD
    )
    with pytest.raises(WorkloadError, match=r"layer '0' fails on ((?!2 samples).)*$"):
        Prober(workload, [1, 2, 4])


def test_samples_that_depend_on_the_micro_batch_are_refused() -> None:
    """Before anything is probed; the profile would be as good for any data."""

    def batch(step: int, first: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = points(step, first, count)
        return x + count, y

    with pytest.raises(WorkloadError, match="other inputs than"):
        Prober(a_sequential(batch=batch), [1, 2])


def test_an_evaluation_of_what_is_not_there_is_refused() -> None:
    """When the job is profiled: the first one may come hours after that."""
    evaluation = Evaluation(data=[points(0, 0, 1)], num_samples=2)
    with pytest.raises(WorkloadError, match="has num_samples 2, and its data 1 sam"):
        Prober(a_sequential(evaluation=evaluation), [1, 2])
