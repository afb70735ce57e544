"""FLOPs that torch's own table leaves out or overstates, against numbers by hand."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_profiler.counting.flop_formulas import formulas
from plimsoll_profiler.counting.work_counter import Work, count_work
from plimsoll_trainer.torch_internals.operators import FakeTensorMode
from tests.support.profiles import a_request, profile_here

ROWS, WIDE_IN, WIDE_OUT, GROUPS = 32, 16, 24, 4
PRODUCT_FLOP = 2 * ROWS * WIDE_IN * WIDE_OUT


def backward_work(y: Tensor) -> Work:
    """Count a backward pass."""
    return count_work(lambda: torch.autograd.backward(y, torch.ones_like(y)))


def test_grouped_products_count_each_row_once() -> None:
    """32 rows of 16 by the matrix of their group, 16 x 24, whatever the groups.

    Backward has two such products: of the rows and of the matrices.
    """
    with FakeTensorMode():
        rows = torch.empty(ROWS, WIDE_IN, dtype=torch.bfloat16, requires_grad=True)
        matrices = torch.empty(
            *(GROUPS, WIDE_IN, WIDE_OUT), dtype=torch.bfloat16, requires_grad=True
        )
        ends = torch.empty(GROUPS, dtype=torch.int32)
        made: list[Tensor] = []
        forward = count_work(
            lambda: made.append(F.grouped_mm(rows, matrices, offs=ends))
        )
        backward = backward_work(made[0])
    assert (forward.flop, forward.uncounted) == (PRODUCT_FLOP, frozenset())
    assert (backward.flop, backward.uncounted) == (2 * PRODUCT_FLOP, frozenset())


@pytest.mark.parametrize(
    ("is_causal", "pairs"), [(False, 64 * 64), (True, 64 * 65 / 2)]
)
def test_causal_attention_counts_the_pairs_it_looks_at(
    is_causal: bool, pairs: float
) -> None:
    """Two products of 2 * width for each head and pair; backward has five."""
    with FakeTensorMode():
        x = torch.empty(1, 2, 64, 8, requires_grad=True)
        made: list[Tensor] = []
        forward = count_work(
            lambda: made.append(
                F.scaled_dot_product_attention(x, x, x, is_causal=is_causal)
            )
        )
        backward = backward_work(made[0])
    assert forward.flop == 2 * (2 * 8 * 2) * pairs
    assert backward.flop == 5 * (2 * 8 * 2) * pairs


def test_a_mixtral_block_counts_its_experts() -> None:
    """A block of width 64 on 32 tokens, each through 2 of 4 experts of width 96.

    q and o 64 x 64, k and v 64 x 32, router 64 x 4; both products of attention on
    32 * 33 / 2 pairs; 64 rows by 64 x 192 and by 96 x 64. Without the last two, three
    quarters of the work were missing.
    """
    made = profile_here(
        a_request(
            "tests.support.workloads:a_mixtral",
            device_kind=DeviceKind.CUDA,
            micro_batches=(1, 2),
        )
    )
    projections = 2 * 32 * (2 * 64 * 64 + 2 * 64 * 32 + 64 * 4)
    attention = 2 * 2 * 64 * (32 * 33 // 2)
    experts = 2 * 64 * (64 * 192 + 96 * 64)
    block = 1  # between embedding and head
    found = made.costs.forward_work.flop_per_sample[block]
    assert found == pytest.approx(projections + attention + experts, rel=1e-9)
    backward = made.costs.backward_work.flop_per_sample[block]
    assert backward == pytest.approx(
        2 * projections + 2.5 * attention + 2 * experts, rel=1e-9
    )
    assert made.uncounted == ()


STEPS, SAMPLES, INPUT, HIDDEN = 10, 4, 16, 32
Factory = Callable[[], nn.Module]


@pytest.mark.parametrize(
    ("factory", "matrices"),
    [
        # gates times hidden, times what enters and the state, for both layers
        (lambda: nn.LSTM(INPUT, HIDDEN, 2), 4 * HIDDEN * (INPUT + 3 * HIDDEN)),
        (
            lambda: nn.LSTM(INPUT, HIDDEN, bidirectional=True),
            2 * 4 * HIDDEN * (INPUT + HIDDEN),
        ),
        (lambda: nn.GRU(INPUT, HIDDEN), 3 * HIDDEN * (INPUT + HIDDEN)),
        (lambda: nn.RNN(INPUT, HIDDEN), HIDDEN * (INPUT + HIDDEN)),
    ],
    ids=["LSTM of two layers", "LSTM in both directions", "GRU", "RNN"],
)
@pytest.mark.parametrize("mode", [FakeTensorMode, nullcontext])
def test_recurrent_layers_multiply_each_matrix_at_each_step(
    factory: Factory, matrices: int, mode: Callable[[], AbstractContextManager[object]]
) -> None:
    """Backward has two such products; written out, the first step needs one less.

    An LSTM was given 46 % of its work, as one operator without a formula.
    """
    with mode():
        layer, x = factory(), torch.ones(STEPS, SAMPLES, INPUT, requires_grad=True)
        made: list[Tensor] = []
        forward = count_work(lambda: made.append(layer(x)[0]))
        backward = backward_work(made[0])
    assert forward.uncounted | backward.uncounted == frozenset()
    assert forward.flop == 2 * STEPS * SAMPLES * matrices
    least = 2 * forward.flop - 2 * SAMPLES * matrices
    assert least <= backward.flop <= 2 * forward.flop


def test_recurrent_kernels_of_a_gpu_count_the_same() -> None:
    """One operator for all layers, with all matrices and biases in a list."""
    x, state = torch.ones(STEPS, SAMPLES, INPUT), torch.zeros(1, SAMPLES, HIDDEN)
    matrices = [torch.ones(4 * HIDDEN, INPUT), torch.ones(4 * HIDDEN, HIDDEN)]
    given = (x, [*matrices, torch.ones(4 * HIDDEN)], 4, None, state, state)
    flop = 2 * STEPS * SAMPLES * 4 * HIDDEN * (INPUT + HIDDEN)
    table, aten = formulas(), torch.ops.aten
    assert table[aten._cudnn_rnn](*given, out_val=None) == flop
    assert table[aten._cudnn_rnn_backward](*given, out_val=None) == 2 * flop


def test_bilinear_forms_are_two_products() -> None:
    """Of x by the weight, [32, 16] by [16, 8 x 24], and of each row by its y.

    Each gradient, of x, y and the weight, is two such products in another order.
    """
    layer = nn.Bilinear(16, 24, 8)
    x = torch.ones(ROWS, 16, requires_grad=True)
    y = torch.ones(ROWS, 24, requires_grad=True)
    made: list[Tensor] = []
    forward = count_work(lambda: made.append(layer(x, y)))
    backward = backward_work(made[0])
    whole = 2 * ROWS * 16 * 24 * 8
    assert forward.flop == whole + 2 * ROWS * 8 * 24
    rest = 2 * ROWS * (8 * 24 + 8 * 16 + 24 * 16)
    assert 3 * whole < backward.flop <= 3 * whole + rest
    assert forward.uncounted | backward.uncounted == frozenset()


A, B, V = (8, 16), (16, 4), (16,)


@pytest.mark.parametrize(
    ("product", "shapes", "flop"),
    [
        (torch.mv, (A, V), 2 * 8 * 16),
        (torch.addmv, ((8,), A, V), 2 * 8 * 16),
        (torch.dot, (V, V), 2 * 16),
        (torch.vdot, (V, V), 2 * 16),
        (torch.addr, (B, V, (4,)), 2 * 16 * 4),
        (torch.addbmm, ((8, 4), (3, *A), (3, *B)), 2 * 3 * 8 * 16 * 4),
        (torch.ones(8, 4).addmm_, (A, B), 2 * 8 * 16 * 4),
        (torch.ones(3, 8, 4).baddbmm_, ((3, *A), (3, *B)), 2 * 3 * 8 * 16 * 4),
    ],
)
def test_products_with_vectors_and_sums_in_place_are_counted(
    product: Callable[..., Tensor], shapes: tuple[tuple[int, ...], ...], flop: int
) -> None:
    """Two FLOPs for each pair of numbers that meet."""
    tensors = [torch.ones(*shape) for shape in shapes]
    work = count_work(lambda: product(*tensors))
    assert (work.flop, work.uncounted) == (flop, frozenset())


def test_products_of_complex_numbers_are_four_of_real_ones() -> None:
    """[8, 16] by [16, 4], forward and in both gradients."""
    left, right = (
        torch.ones(*shape, dtype=torch.complex64, requires_grad=True)
        for shape in (A, B)
    )
    made: list[Tensor] = []
    forward = count_work(lambda: made.append(left @ right))
    assert forward.flop == 4 * 2 * 8 * 16 * 4
    assert backward_work(made[0]).flop == 2 * forward.flop


@pytest.mark.parametrize(
    ("transform", "flop"),
    [
        (torch.fft.rfft, 2.5 * 128 * 4),
        (torch.fft.fft, 2.5 * 128 * 4),
        (lambda x: torch.fft.ifft(x + 0j), 5 * 128 * 4),
        (lambda x: torch.fft.fft2(x + 0j), 5 * 128 * 7),
        (torch.fft.rfft2, 2.5 * 128 * 7),
        (lambda x: torch.fft.irfft(torch.fft.rfft(x)), 2 * 2.5 * 128 * 4),
    ],
)
def test_fourier_transforms_take_5_n_log2_n(
    transform: Callable[[Tensor], Tensor], flop: float
) -> None:
    """Of 8 rows with 16 numbers, or of all 128; half of it where one side is real."""
    work = count_work(lambda: transform(torch.ones(8, 16)))
    assert (work.flop, work.uncounted) == (flop, frozenset())
