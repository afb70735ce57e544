"""One layer in its place: what it saves, and what it holds at its peaks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_profiler.counting.meters import Bench, open_bench
from plimsoll_profiler.probing.layer_probe import LayerCase, probe_activations
from plimsoll_profiler.probing.messages import Activations
from plimsoll_trainer.engine.boundaries import Boundaries, boundaries_of
from plimsoll_trainer.engine.built_layer import build_layer
from plimsoll_trainer.engine.gradients import attach_gradients
from plimsoll_trainer.engine.tensor_specs import TensorSpec
from plimsoll_trainer.workload import TokenLoss
from tests.support.ranks import run_ranks
from tests.support.workloads import SEQUENCE, VOCABULARY, a_gpt, sum_of_tokens

FLOAT = 4
B, N, M = 3, 8, 16
"""Samples, inputs and outputs of the linear layers below."""
VECTORS = TensorSpec((B, N), torch.float32)
linear = partial(nn.Linear, N, M)


def probe(
    make: Callable[[], nn.Module],
    *,
    recomputed: bool = False,
    kind: DeviceKind = DeviceKind.EMULATED,
    incoming: TensorSpec = VECTORS,
) -> Activations:
    """Probe a module between two others, on fake tensors."""
    case = LayerCase(incoming=incoming, is_untrained=False, recomputed=recomputed)
    with open_bench(kind, Source.TRACED) as bench:
        layer = make()
        attach_gradients(layer.parameters(), torch.float32)
        return probe_activations(layer, case, bench)


def test_a_linear_layer_keeps_its_input() -> None:
    """Forward adds y; backward adds dy, dx, dW and db, and x was there before.

    In floats: y = 3*16 = 48; at the peak dy 48 + dx 24 + dW 128 + db 16 = 216.
    """
    found = probe(linear)
    assert found.boundary_bytes == B * M * FLOAT
    assert found.saved_bytes == 0
    assert found.keeps_input
    assert not found.keeps_output
    assert found.forward_transient_bytes == B * M * FLOAT
    assert found.backward_transient_bytes == (B * M + B * N + M * N + M) * FLOAT


class Late(nn.Linear):
    """Needs its input early in backward, and copies the gradient at the end."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the name is torch's
        """[b, n] -> [b, 1]."""
        [part] = torch.split(input, [N], dim=1)
        return super().forward(part)


def test_an_input_that_the_engine_holds_adds_to_a_late_peak() -> None:
    """At the end dx and its copy, with x gone: not so in the first layer of a stage.

    The last stage of a U-Net was predicted 16.5 % too small.
    """
    assert probe(linear).held_input_bytes == 0
    found = probe(partial(Late, N, 1))
    assert found.keeps_input
    assert 0 < found.held_input_bytes <= B * N * FLOAT


def test_a_relu_keeps_its_output() -> None:
    """Backward needs y alone: y, dy and dx are alive at its peak."""
    found = probe(nn.ReLU)
    assert (found.keeps_input, found.keeps_output, found.saved_bytes) == (
        False,
        True,
        0,
    )
    assert found.backward_transient_bytes == 3 * B * N * FLOAT


def test_a_gelu_keeps_its_input() -> None:
    """Backward needs x alone."""
    found = probe(nn.GELU)
    assert (found.keeps_input, found.keeps_output, found.saved_bytes) == (
        True,
        False,
        0,
    )


def test_the_gradient_of_the_output_is_held_at_the_end_of_a_stage_alone() -> None:
    """Inside a stage dy is gone once the GELU has used it, at the end it stays.

    In floats, at the peak, in the linear layer: dh 48 + dx 24 + dW 128 + db 16 = 216.
    """
    found = probe(lambda: nn.Sequential(linear(), nn.GELU()))
    inside = B * M + B * N + M * N + M
    assert found.backward_transient_bytes == inside * FLOAT
    assert found.backward_transient_at_end_bytes == (inside + B * M) * FLOAT


def test_a_recomputed_layer_keeps_its_input_alone() -> None:
    """Whatever a layer saves, recomputed it saves nothing but its input."""
    for make in (nn.ReLU, nn.GELU, linear):
        found = probe(make, recomputed=True)
        assert (found.keeps_input, found.keeps_output) == (True, False)
        assert found.saved_bytes == 0


@pytest.mark.parametrize(
    ("make", "num_kept"),
    [(nn.Flatten, 0), (partial(nn.ReLU, inplace=True), 1)],
    ids=["a view", "in place"],
)
def test_a_layer_that_gives_back_its_input_holds_one_tensor(
    make: Callable[[], nn.Module], num_kept: int
) -> None:
    """Input and output are one storage, which is counted as the output and only once.

    A view is not needed by backward, so nothing is kept; a ReLU needs its output. The
    layer makes nothing in forward, and dx in backward, next to dy and what it keeps.
    """
    found = probe(make, incoming=TensorSpec((B, 2, N), torch.float32))
    size = B * 2 * N * FLOAT
    assert found.boundary_bytes == size
    assert (found.keeps_input, found.keeps_output) == (False, bool(num_kept))
    assert found.saved_bytes == found.forward_transient_bytes == 0
    assert found.backward_transient_bytes == (1 + 2 * num_kept) * size


def test_bytes_are_those_that_the_allocator_takes() -> None:
    """CUDA gives out blocks of 512 bytes, and every tensor here is smaller than one.

    The GELU's input is kept and not counted as saved; its gradients are two blocks.
    """
    block = 512
    found = probe(nn.GELU, kind=DeviceKind.CUDA)
    assert block > B * N * FLOAT
    assert found == Activations(
        boundary_bytes=block,
        forward_transient_bytes=block,
        keeps_input=True,
        backward_transient_bytes=2 * block,
        backward_transient_at_end_bytes=2 * block,
    )
    kept = probe(nn.ReLU, kind=DeviceKind.CUDA)
    assert (kept.saved_bytes, kept.backward_transient_bytes) == (0, 3 * block)


def probe_all(micro_batch: int, precision: str, source: Source) -> list[Activations]:
    """Probe every case of a GPT for the emulated device."""
    shapes = boundaries_of(a_gpt(precision=precision), micro_batch)
    with open_bench(DeviceKind.EMULATED, source) as bench:
        return [probe_gpt(precision, place, shapes, bench) for place in PLACES][1:]


DEPTH = 3
PLACES = [
    (1, True),
    *((kind, again) for kind in (0, 1, DEPTH + 1) for again in (False, True)),
]
"""Layers to probe, with and without recompute; the first warms up."""


def probe_gpt(
    precision: str, place: tuple[int, bool], shapes: Boundaries, bench: Bench
) -> Activations:
    """Probe one layer of a GPT; the last one with its loss, in pieces if it can."""
    workload = a_gpt(depth=DEPTH, precision=precision, loss=TokenLoss(sum_of_tokens, 9))
    index, again = place
    is_last = index == DEPTH + 1
    layer = build_layer(workload, index, bench.device)
    attach_gradients(layer.parameters(), workload.gradient_dtype)
    case = LayerCase(
        incoming=shapes.between[index],
        is_untrained=index in shapes.untrained,
        targets=shapes.targets if is_last else None,
        loss=workload.loss if is_last else None,
        recomputed=again,
    )
    return probe_activations(layer, case, bench)


def test_pieces_take_as_much_of_one_sample_as_of_many() -> None:
    """Outputs of a piece, and besides them no more than the gradient of the input."""
    place, shapes = (DEPTH + 1, True), [boundaries_of(a_gpt(), b) for b in (1, 4)]
    with open_bench(DeviceKind.EMULATED, Source.TRACED) as bench:
        one, four = (probe_gpt("fp32", place, each, bench) for each in shapes)
    assert one.saved_bytes == four.saved_bytes == 0
    assert one.keeps_input
    assert one.forward_transient_bytes == four.forward_transient_bytes
    assert one.forward_transient_bytes < SEQUENCE * VOCABULARY * FLOAT
    more_bytes = four.backward_transient_bytes - one.backward_transient_bytes
    assert more_bytes == 3 * shapes[0].between[-2].nbytes


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("micro_batch", [1, 4])
def test_fake_tensors_hold_what_real_ones_do(micro_batch: int, precision: str) -> None:
    """A trace equals the emulated device to the byte, kernels' workspaces included."""
    how = (micro_batch, precision)
    [traced] = run_ranks(probe_all, 1, *how, Source.TRACED)
    [measured] = run_ranks(probe_all, 1, *how, Source.MEASURED)
    assert traced == measured
