"""Whole profiles: lines, kinds, ties, and probes that are lost on the way."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import cast
from unittest.mock import patch

import pytest

pytest.importorskip("torch")

from plimsoll_planner.records.document import from_text, to_text
from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import (
    DeviceKind,
    ModelProfile,
    OptimizerMode,
    Precision,
    ProbeOutcome,
    Variant,
)
from plimsoll_profiler.errors import BadWorkloadError
from plimsoll_profiler.probing import layer_timing
from plimsoll_profiler.probing.messages import (
    WHOLE,
    Frame,
    ProbeRequest,
    ProbeResult,
    out_of_memory,
)
from plimsoll_profiler.profiling import profiler, several_probers
from plimsoll_profiler.profiling.findings import Findings
from plimsoll_profiler.profiling.prober_process import ProberProcess
from plimsoll_profiler.profiling.profiler import profile
from plimsoll_profiler.profiling.request import ProfileRequest
from tests.support.probes import a_result
from tests.support.profiles import a_request, ignore, profile_here, profile_on_device
from tests.support.ranks import Died, try_ranks

pytestmark = pytest.mark.slow
KILLER = "tests.support.workloads:a_killer"
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def at_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entry points of these tests are found from the root of the tree."""
    monkeypatch.chdir(ROOT)


@pytest.fixture(scope="module")
def traced() -> ModelProfile:
    """A traced profile of a GPT."""
    made = profile_on_device(source=Source.TRACED)
    assert isinstance(made, ModelProfile)
    return made


def test_a_profile_says_what_layers_cost(traced: ModelProfile) -> None:
    """Three kinds of four layers, in order, with the state that AdamW keeps.

    A block of width 48: LayerNorms 2*96, qkv 48*144+144, out 48*48+48, mlp
    48*192+192 + 192*48+48 = 28,272 floats; gradients as much, AdamW twice, and four
    bytes of step count for each of its 12 tensors.
    """
    made = traced
    assert made.kinds == ("embedding", "block", "head")
    assert made.layers.kind == (0, 1, 1, 2)
    costs = made.costs
    assert costs.parameter_bytes[1] == costs.gradient_bytes[1] == 4 * 28_272
    assert costs.optimizer_bytes[1] == 2 * 4 * 28_272 + 4 * 12
    assert costs.boundary.at(1, 3).expected_bytes == 3 * 32 * 48 * 4
    assert costs.boundary.at(2, 3).expected_bytes == 4
    [tie] = made.tied
    assert (tie.layers, tie.parameter_bytes) == ((0, 3), 96 * 48 * 4)
    assert tie.optimizer_bytes == 2 * 96 * 48 * 4 + 4
    assert not costs.is_timed
    assert from_text(to_text(made), ModelProfile) == made


def test_bf16_keeps_master_weights() -> None:
    """Two bytes for a parameter, twelve of optimizer, four for its gradients' sum.

    Sums in bf16 take two, and a copy of four in the step.
    """
    for sums, gradient, copied in ((Precision.FP32, 4, 0), (Precision.BF16, 2, 4)):
        arguments = json.dumps(
            {"depth": 2, "precision": "bf16", "gradient_precision": sums}
        )
        made = profile_here(a_request(arguments=arguments, micro_batches=(1, 2)))
        costs = made.costs
        assert costs.parameter_bytes[1] == 2 * 28_272
        assert costs.gradient_bytes[1] == gradient * 28_272
        assert costs.optimizer_bytes[1] == 3 * 4 * 28_272 + 4 * 12
        transient = costs.optimizer_transient_bytes[1]
        assert transient == pytest.approx(copied * 28_272, abs=1024)
        assert (made.recipe.precision, made.recipe.sums_in) == (Precision.BF16, sums)
        assert made.tied[0].gradient_bytes == gradient * 96 * 48


def test_a_measured_profile_equals_a_traced_one(traced: ModelProfile) -> None:
    """On the emulated device bytes are the same to the byte."""
    made = profile_on_device()
    assert isinstance(made, ModelProfile)
    for name in ("parameter_bytes", "optimizer_bytes", "optimizer_transient_bytes"):
        assert getattr(traced.costs, name) == getattr(made.costs, name)
    assert traced.costs.divided == made.costs.divided
    for way in ("kept", "recomputed"):
        fake, real = (getattr(costs, way) for costs in (traced.costs, made.costs))
        assert (fake.keeps_input, fake.keeps_output) == (
            real.keeps_input,
            real.keeps_output,
        )
        for name in ("saved", "forward_transient", "backward_transient"):
            assert getattr(fake, name).probed_bytes == getattr(real, name).probed_bytes
        assert fake.backward_transient_at_end == replace(
            real.backward_transient_at_end,
            source=fake.backward_transient_at_end.source,
        )


def test_a_measured_profile_has_seconds() -> None:
    """Of layers that take some: more samples longer, backward longer than forward.

    What a recompute adds is about a forward pass. Measured are the seconds that the
    rank computes: what else runs on this machine has no part in how they compare.
    """
    arguments = json.dumps({"depth": 1, "width": 256})
    request = a_request(
        source=Source.MEASURED, arguments=arguments, micro_batches=(1, 4)
    )
    [made] = try_ranks(profile_by_cpu_time, [request.device_memory_bytes], request)
    assert isinstance(made, ModelProfile), made
    costs = made.costs
    assert costs.is_timed
    assert costs.forward is not None
    assert costs.backward is not None
    assert costs.recompute is not None
    forward_s = costs.forward.at(1, 4).expected_s
    assert forward_s > costs.forward.at(1, 1).expected_s
    assert costs.backward.at(1, 4).expected_s > forward_s
    assert forward_s / 3 < costs.recompute.at(1, 4).expected_s < forward_s * 3


def profile_by_cpu_time(request: ProfileRequest) -> ModelProfile:
    """Profile whose seconds are those of this process, which has one thread."""
    clock = SimpleNamespace(perf_counter=time.process_time)
    with patch.object(layer_timing, "time", clock):
        return profile_here(request)


def test_a_lost_probe_is_recorded_and_widens(traced: ModelProfile) -> None:
    """On a device that holds a block at two samples, four are lost, and it goes on."""
    small = profile_on_device(device_memory_bytes=700_000)
    assert isinstance(small, ModelProfile)
    lost = [p for p in small.probes if p.outcome is ProbeOutcome.OUT_OF_MEMORY]
    assert [(p.kind, p.micro_batch) for p in lost] == [(1, 4)]
    errors = small.costs.kept.saved.relative_error
    assert errors[1] > errors[0]
    slopes = [p.costs.kept.saved.slope_bytes_per_sample[1] for p in (small, traced)]
    assert slopes[0] == slopes[1]


def test_a_layer_that_never_fits_is_named() -> None:
    """A device too small for one block at one sample: which layer, and what to do."""
    died = profile_on_device(device_memory_bytes=400_000)
    assert isinstance(died, Died)
    line = died.text.splitlines()[0]
    assert line.startswith("TooFewProbesError: layer 'block.0' does not fit the device")
    assert "more memory" in line


def test_a_profile_for_gpus_is_traced_where_there_are_none() -> None:
    """In whole blocks of CUDA's allocator, and with its kernels.

    In bf16 32 x 48 numbers are 3,072 bytes, six blocks. A block of the GPT keeps them
    15 times for one sample: outputs of the norms (2), q, k and v (3), what attention
    gives (1), the sum behind it (1), both sides of the GELU, which are four times as
    wide (8). And seven blocks for a few numbers each: scales and means of the norms
    (4), flash attention's sums (1) and random state (2). No scores of pairs.
    """
    arguments = json.dumps({"depth": 2, "precision": "bf16"})
    made = profile_here(a_request(arguments=arguments, device_kind=DeviceKind.CUDA))
    costs = made.costs
    assert costs.boundary.at(1, 1).expected_bytes == 3_072
    assert costs.kept.saved.at(1, 1).expected_bytes == 15 * 3_072 + 7 * 512
    assert costs.recomputed.saved.at(1, 1).expected_bytes == 0
    sizes = (48, 48, 144 * 48, 144, 48 * 48, 48, 48, 48, 192 * 48, 192, 48 * 192, 48)
    assert costs.parameter_bytes[1] == sum(-(-2 * n // 512) * 512 for n in sizes)
    assert made.recipe.optimizer_mode is OptimizerMode.FUSED
    assert made.device_kind is DeviceKind.CUDA


def test_a_process_probes_as_this_one_does() -> None:
    """The process that `profile` starts gives the same, number by number."""
    request = a_request(micro_batches=(1, 2))
    made = profile(request, ignore)
    here = profile_on_device(source=Source.TRACED, micro_batches=(1, 2))
    assert isinstance(here, ModelProfile)
    assert made == replace(here, fingerprint=made.fingerprint)


def test_seconds_are_taken_in_rounds_of_what_fits() -> None:
    """Three rounds of two kinds; the first loses 4 samples and is asked no more of."""
    request = a_request(source=Source.MEASURED, micro_batches=(1, 2, 4, 8))
    frame = SimpleNamespace(
        cases="ab",
        micro_batches=request.micro_batches,
        variants=(WHOLE,),
        is_own=lambda *_: True,
    )
    found = Findings(request=request, frame=cast(Frame, frame))

    def answer(probe: ProbeRequest) -> ProbeResult:
        is_lost = (probe.case, probe.micro_batch) == (0, 4)
        return (
            out_of_memory(probe, "killed")
            if is_lost
            else a_result(1.0, 2.0, case=probe.case, micro_batch=probe.micro_batch)
        )

    for probe in found.open_probes(found.places):
        found.results.append(answer(probe))
    asked = [(result.case, result.micro_batch) for result in found.results]
    of_second = [(1, b) for b in (1, 2, 4, 8)]
    later = [(0, 1), (0, 2), *of_second]
    assert asked == [(0, 1), (0, 2), (0, 4), *of_second, *later, *later]


@pytest.mark.parametrize(
    ("saved", "asked"),
    [
        ({1: 10, 4: 40, 8: 80}, [1, 4, 8]),
        ({1: 25, 2: 25, 3: 30, 4: 40, 8: 80}, [1, 4, 8, 2, 3]),
    ],
    ids=["straight", "bent"],
)
def test_a_part_is_probed_in_the_middle_if_its_bytes_bend(
    saved: dict[int, int], asked: list[int]
) -> None:
    """A whole layer always is; max(10 b, 25) is no line from 1 to 8."""
    request = a_request(micro_batches=(1, 2, 3, 4, 8))
    frame = SimpleNamespace(
        cases="a",
        micro_batches=request.micro_batches,
        variants=(Variant(), Variant(tensor_degree=2)),
        is_own=lambda *_: True,
    )
    found = Findings(request=request, frame=cast(Frame, frame))
    for probe in found.open_probes(found.places):
        where = {"case": probe.case, "micro_batch": probe.micro_batch}
        result = a_result(1.0, 2.0, variant=probe.variant, **where)
        assert result.kept is not None
        kept = replace(result.kept, saved_bytes=saved.get(probe.micro_batch, 0))
        found.results.append(replace(result, kept=kept))
    by_degree = {
        degree: [
            result.micro_batch
            for result in found.results
            if result.variant.tensor_degree == degree
        ]
        for degree in (1, 2)
    }
    assert by_degree == {1: [1, 2, 3, 4, 8], 2: asked}


def test_a_killed_prober_loses_one_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's SIGKILL in one probe: it is recorded, all others are there."""
    monkeypatch.setenv("PLIMSOLL_TEST_KILL_AT", "4")
    made = profile(a_request(KILLER, source=Source.MEASURED), ignore)
    outcomes = {(p.kind, p.micro_batch): p.outcome for p in made.probes}
    lost = {at for at, end in outcomes.items() if end is ProbeOutcome.OUT_OF_MEMORY}
    assert lost == {(0, 4)}
    assert set(outcomes) - lost == {
        *((0, b) for b in (1, 2, 3)),
        *((1, b) for b in (1, 2, 3, 4, 8)),
    }


@pytest.mark.parametrize(
    "dying",
    [pytest.param(None, marks=pytest.mark.nightly), profiler, several_probers],
)
def test_several_probers_find_what_one_does(
    dying: ModuleType | None, traced: ModelProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever probes which layer, and though the first one or another dies."""
    monkeypatch.setattr(several_probers, "JOIN_AFTER_S", 0.0)
    monkeypatch.setattr(several_probers, "num_others", lambda: 2)
    started: list[ProberProcess] = []

    def killed(request: ProfileRequest) -> ProberProcess:
        started.append(ProberProcess(request))
        if len(started) == 1:
            os.kill(started[0]._process.pid, signal.SIGKILL)
        return started[-1]

    if dying is not None:
        monkeypatch.setattr(dying, "ProberProcess", killed)
    found = profile(a_request(), ignore)
    assert found.costs == traced.costs
    assert found.probes == traced.probes
    assert len(started) == (0 if dying is None else 2)


def test_what_the_workload_raises_is_one_line() -> None:
    """An entry point that raises ends the profile with its own words."""
    with pytest.raises(BadWorkloadError) as caught:
        profile(a_request(arguments='{"depth": "deep"}'), ignore)
    assert "\n" not in str(caught.value)
