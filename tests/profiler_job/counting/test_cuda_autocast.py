"""Autocast in a trace for a GPU: types that a GPU would give, kept as it would."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("torch")

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor, nn

from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_profiler.counting.meters import open_bench
from plimsoll_profiler.probing.layer_probe import LayerCase, probe_activations
from plimsoll_trainer.engine.built_layer import build_layer
from plimsoll_trainer.engine.tensor_specs import TensorSpec
from plimsoll_trainer.workload import Layer, Workload
from tests.support.workloads import mean_square, points

BF16, FP32 = torch.bfloat16, torch.float32
CUDA, EMULATED = DeviceKind.CUDA, DeviceKind.EMULATED
LIKE_A_GPU: list[tuple[Callable[[Tensor], Tensor], torch.dtype]] = [
    (lambda x: F.linear(x, torch.ones(8, 8)), BF16),
    (lambda x: x @ x.transpose(-1, -2), BF16),
    (lambda x: F.layer_norm(x, (8,)), FP32),
    (lambda x: x.softmax(-1), FP32),
    (lambda x: F.softmax(x, -1), FP32),
    (lambda x: torch.log_softmax(x, -1), FP32),
    (lambda x: x.pow(2), FP32),
    (lambda x: x**2, FP32),
    (lambda x: x.rsqrt(), FP32),
    (lambda x: x.sum(), FP32),
    (lambda x: x.mean(), BF16),
    (F.gelu, BF16),
    (lambda x: x.sum(dtype=torch.float64), torch.float64),
]


@pytest.mark.parametrize(("function", "dtype"), LIKE_A_GPU)
def test_functions_give_what_autocast_of_a_gpu_gives(
    function: Callable[[Tensor], Tensor], dtype: torch.dtype
) -> None:
    """In a trace for a GPU, while autocast is on; nothing is changed elsewhere."""
    with open_bench(CUDA, Source.TRACED):
        x = torch.ones(2, 8, 8, dtype=BF16)
        with torch.autocast("cpu", BF16):
            assert function(x).dtype == dtype
        assert x.softmax(-1).dtype == BF16
    assert torch.ones(2, dtype=BF16).softmax(-1).dtype == BF16
    with torch.autocast("cpu", BF16):
        assert torch.ones(2, dtype=BF16).softmax(-1).dtype == BF16


def a_layer() -> nn.Module:
    """Build two matrices with a norm between them."""
    return nn.Sequential(
        nn.Linear(128, 256, bias=False),
        nn.LayerNorm(256),
        nn.Linear(256, 128, bias=False),
    )


@pytest.mark.parametrize(("kind", "wide"), [(CUDA, True), (EMULATED, False)])
def test_a_norm_between_products_keeps_fp32_on_a_gpu(
    kind: DeviceKind, *, wide: bool
) -> None:
    """Both weights are kept in bf16, and what enters products; the norm's input too.

    On a GPU that is in fp32, on the CPU in bf16, and so are mean and deviation of each
    row.
    """
    workload = Workload(
        layers=(Layer(name="all", factory=a_layer, kind="all"),),
        loss=mean_square,
        batch=points,
        optimizer=torch.optim.SGD,
        precision="bf16-autocast",  # type: ignore[arg-type]
    )
    rows = 128
    with open_bench(kind, Source.TRACED) as bench:
        layer = build_layer(workload, 0, bench.device)
        case = LayerCase(incoming=TensorSpec((rows, 128), FP32), is_untrained=False)
        found = probe_activations(layer, case, bench)
    weights = 2 * 2 * 128 * 256
    kept = 2 * rows * 128 + 2 * rows * 256
    norm = (4 if wide else 2) * (rows * 256 + 2 * rows)
    assert found.saved_bytes == weights + kept + norm
    assert found.boundary_bytes == 4 * rows * 128
