"""Whole profiles: lines, kinds, ties, and probes that are lost on the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from plimsoll_planner.records.document import from_text, to_text
from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import (
    DeviceKind,
    ModelProfile,
    Precision,
    ProbeOutcome,
)
from plimsoll_profiler.errors import BadWorkloadError, TooFewProbesError
from plimsoll_profiler.profiling import profile
from plimsoll_profiler.request import ProfileRequest

pytestmark = pytest.mark.slow
GPT = "tests.support.workloads:a_gpt"
KILLER = "tests.support.workloads:a_killer"
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def at_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entry points of these tests are found from the root of the tree."""
    monkeypatch.chdir(ROOT)


def run(entrypoint: str = GPT, **fields: object) -> ModelProfile:
    """Profile, by default a small GPT by tracing for the emulated device."""
    defaults: dict[str, object] = {
        "arguments": json.dumps({"depth": 2}),
        "device_kind": DeviceKind.EMULATED,
        "source": Source.TRACED,
    }
    request = ProfileRequest(entrypoint=entrypoint, **(defaults | fields))  # type: ignore[arg-type]
    return profile(request, ignore)


def ignore(done: int, total: int, what: str) -> None:
    """Show no progress."""


@pytest.fixture(scope="module")
def traced() -> ModelProfile:
    """A traced profile of a GPT."""
    return run()


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
    """Two bytes for parameter and gradient, twelve of optimizer, and a copy in step."""
    arguments = json.dumps({"depth": 2, "precision": "bf16"})
    made = run(arguments=arguments)
    costs = made.costs
    assert costs.parameter_bytes[1] == costs.gradient_bytes[1] == 2 * 28_272
    assert costs.optimizer_bytes[1] == 3 * 4 * 28_272 + 4 * 12
    assert costs.optimizer_transient_bytes[1] == pytest.approx(4 * 28_272, rel=0.01)
    assert made.recipe.precision is Precision.BF16


def test_a_measured_profile_equals_a_traced_one_and_has_seconds(
    traced: ModelProfile,
) -> None:
    """On the emulated device bytes are the same to the byte, and time is real."""
    measured = run(source=Source.MEASURED).costs
    for name in ("parameter_bytes", "optimizer_bytes", "optimizer_transient_bytes"):
        assert getattr(traced.costs, name) == getattr(measured, name)
    for name in ("saved", "backward_transient"):
        for way in ("kept", "recomputed"):
            fake, real = (
                getattr(getattr(c, way), name) for c in (traced.costs, measured)
            )
            assert fake.constant_bytes == real.constant_bytes
            assert fake.slope_bytes_per_sample == real.slope_bytes_per_sample
    assert measured.is_timed
    assert measured.forward is not None
    assert measured.backward is not None
    assert measured.forward.at(1, 4).expected_s > measured.forward.at(1, 1).expected_s
    forward_s = measured.forward.at(1, 4).expected_s
    assert measured.backward.at(1, 4).expected_s > forward_s
    assert measured.recompute is not None
    assert forward_s / 3 < measured.recompute.at(1, 4).expected_s < forward_s * 3


def test_a_lost_probe_is_recorded_and_widens(traced: ModelProfile) -> None:
    """On a device that holds a block at two samples, four are lost, and it goes on."""
    small = run(source=Source.MEASURED, device_memory_bytes=700_000)
    lost = [p for p in small.probes if p.outcome is ProbeOutcome.OUT_OF_MEMORY]
    assert [(p.kind, p.micro_batch) for p in lost] == [(1, 4)]
    errors = small.costs.kept.saved.relative_error
    assert errors[1] > errors[0]
    slopes = [p.costs.kept.saved.slope_bytes_per_sample[1] for p in (small, traced)]
    assert slopes[0] == slopes[1]


def test_a_layer_that_never_fits_is_named() -> None:
    """A device too small for one block at one sample: which layer, and what to do."""
    with pytest.raises(TooFewProbesError, match=r"'block\.0' does not fit") as caught:
        run(source=Source.MEASURED, device_memory_bytes=400_000)
    assert "more memory" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_killed_prober_loses_one_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's SIGKILL in one probe: it is recorded, all others are there."""
    monkeypatch.setenv("PLIMSOLL_TEST_KILL_AT", "4")
    made = run(KILLER, arguments="{}", source=Source.MEASURED)
    outcomes = {(p.kind, p.micro_batch): p.outcome for p in made.probes}
    lost = {at for at, end in outcomes.items() if end is ProbeOutcome.OUT_OF_MEMORY}
    assert lost == {(0, 4)}
    assert set(outcomes) - lost == {
        *((0, b) for b in (1, 2, 3)),
        *((1, b) for b in (1, 2, 3, 4, 8)),
    }


def test_what_the_workload_raises_is_one_line() -> None:
    """An entry point that raises ends the profile with its own words."""
    with pytest.raises(BadWorkloadError) as caught:
        run(arguments='{"depth": "deep"}')
    assert "\n" not in str(caught.value)
