"""One layer in its place: what it saves, and what it holds at its peaks."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from plimsoll_profiler.layer_probe import (
    Activations,
    LayerCase,
    probe_activations,
)
from plimsoll_profiler.live_bytes import LiveBytes
from plimsoll_trainer.boundaries import TensorSpec, boundaries_of
from plimsoll_trainer.emulated.device import EmulatedDevice
from plimsoll_trainer.stage import build_layer
from plimsoll_trainer.torch_internals import FakeTensorMode
from tests.support.ranks import run_ranks
from tests.support.workloads import a_gpt

CPU = torch.device("cpu")
FLOAT = 4
B, N, M = 3, 8, 16
"""Samples, inputs and outputs of the linear layers below."""


def probe(module: nn.Module, *, recomputed: bool = False) -> Activations:
    """Probe a module between two others, on fake tensors."""
    case = LayerCase(
        incoming=TensorSpec((B, N), torch.float32),
        is_first=False,
        recomputed=recomputed,
    )
    with FakeTensorMode(), LiveBytes() as live:
        layer = type(module)(*ARGUMENTS.get(type(module), ()))
        for parameter in layer.parameters():
            parameter.grad = torch.zeros_like(parameter)
        return probe_activations(layer, case, CPU, live)


ARGUMENTS: dict[type[nn.Module], tuple[int, ...]] = {nn.Linear: (N, M)}


def test_a_linear_layer_keeps_its_input() -> None:
    """Forward adds y; backward adds dy, dx, dW and db, and x was there before.

    In floats: y = 3*16 = 48; at the peak dy 48 + dx 24 + dW 128 + db 16 = 216.
    """
    found = probe(nn.Linear(N, M))
    assert found.boundary == B * M * FLOAT
    assert found.saved == 0
    assert found.keeps_input
    assert not found.keeps_output
    assert found.forward_transient == B * M * FLOAT
    assert found.backward_transient == (B * M + B * N + M * N + M) * FLOAT


def test_a_relu_keeps_its_output() -> None:
    """Backward needs y alone: y, dy and dx are alive at its peak."""
    found = probe(nn.ReLU())
    assert (found.keeps_input, found.keeps_output, found.saved) == (False, True, 0)
    assert found.backward_transient == 3 * B * N * FLOAT


def test_a_gelu_keeps_its_input() -> None:
    """Backward needs x alone."""
    found = probe(nn.GELU())
    assert (found.keeps_input, found.keeps_output, found.saved) == (True, False, 0)


def test_a_recomputed_layer_keeps_its_input_alone() -> None:
    """Whatever a layer saves, recomputed it saves nothing but its input."""
    for module in (nn.ReLU(), nn.GELU(), nn.Linear(N, M)):
        found = probe(module, recomputed=True)
        assert (found.keeps_input, found.keeps_output) == (True, False)
        assert found.saved == 0


def probe_for_real(depth: int, micro_batch: int) -> list[Activations]:
    """Probe every case of a GPT on the emulated device."""
    device = EmulatedDevice()

    class Meter:
        """The device's counters."""

        current = property(lambda _: device.current_bytes)
        peak = property(lambda _: device.peak_bytes)

        def reset_peak(self) -> None:
            """Start again."""
            device.reset_peak()

    return [probe_gpt(depth, micro_batch, place, Meter()) for place in cases(depth)][1:]


def cases(depth: int) -> list[tuple[int, bool]]:
    """List layers to probe, with and without recompute; the first warms up."""
    kinds = (0, 1, depth + 1)
    return [(1, True), *((kind, again) for kind in kinds for again in (False, True))]


def probe_gpt(
    depth: int, micro_batch: int, place: tuple[int, bool], meter: object
) -> Activations:
    """Probe one layer of a GPT."""
    workload = a_gpt(depth=depth)
    shapes = SHAPES.get(micro_batch) or boundaries_of(workload, micro_batch)
    index, again = place
    is_last = index == depth + 1
    layer = build_layer(workload, index, CPU)
    for parameter in layer.parameters():
        parameter.grad = torch.zeros_like(parameter)
    case = LayerCase(
        incoming=shapes.between[index],
        is_first=index == 0,
        targets=shapes.targets if is_last else None,
        loss=workload.loss if is_last else None,
        recomputed=again,
    )
    return probe_activations(layer, case, CPU, meter)  # type: ignore[arg-type]


WORKSPACE_BYTES = 16 * 1024
"""Attention on the CPU allocates so much inside its kernel, which no trace sees."""

SHAPES = {b: boundaries_of(a_gpt(depth=2), b) for b in (1, 4)}
"""Found while tensors still have data."""


@pytest.mark.parametrize("micro_batch", [1, 4])
def test_fake_tensors_hold_what_real_ones_do(micro_batch: int) -> None:
    """A trace equals the emulated device to the byte, but for kernels' workspaces."""
    with FakeTensorMode(), LiveBytes() as live:
        traced = [probe_gpt(2, micro_batch, place, live) for place in cases(2)][1:]
    [measured] = run_ranks(probe_for_real, 1, 2, micro_batch)
    for fake, real in zip(traced, measured, strict=True):
        inside = real.forward_transient - fake.forward_transient
        assert 0 <= inside <= WORKSPACE_BYTES
        assert replace(fake, forward_transient=0) == replace(real, forward_transient=0)
