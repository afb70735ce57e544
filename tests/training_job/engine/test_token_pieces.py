"""The loss of pieces is that of the whole, in the loss's own type."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from plimsoll_trainer.engine.token_pieces import loss_in_pieces
from plimsoll_trainer.workload import SumAndCount, TokenLoss

SAMPLES, TOKENS = 2, 1024


def sum_and_weight(output: Tensor, targets: Tensor) -> SumAndCount:
    """Both in the type of the output."""
    return output.sum(), torch.ones_like(targets).sum()


def test_sums_of_a_coarse_type_are_added_up_in_a_finer_one() -> None:
    """Of 2,048 ones in bf16, 256 is the last that one more can be added to."""
    x = torch.ones(SAMPLES, TOKENS, 1, dtype=torch.bfloat16, requires_grad=True)
    targets = torch.ones(SAMPLES, TOKENS, dtype=torch.bfloat16)
    loss = TokenLoss(sum_and_weight, 1)
    total, count = loss_in_pieces(lambda piece: piece * 1, loss, x, targets)
    assert isinstance(count, Tensor)
    assert (total.dtype, count.dtype) == (torch.bfloat16, torch.bfloat16)
    assert total.item() == count.item() == SAMPLES * TOKENS
    torch.autograd.backward(total / count)
    assert x.grad is not None
    assert torch.equal(x.grad, torch.full_like(x, 1 / (SAMPLES * TOKENS)))
