"""Losses of the tasks that models are trained for; all in fp32.

logits, targets -> sum and count     where some tokens do not count
logits, labels  -> mean              where all samples do
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from plimsoll_trainer.workload import SumAndCount

IGNORED = -100
"""A target that does not count, such as padding, a prompt or a token not masked."""


def token_loss(logits: Tensor, targets: Tensor) -> SumAndCount:
    """Sum of the cross entropy, and the number of tokens that it is over.

    Args:
        logits: [batch, sequence, vocabulary].
        targets: [batch, sequence]; those of `IGNORED` do not count.
    """
    flat = logits.flatten(0, 1).float()
    total = functional.cross_entropy(
        flat, targets.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    return total, (targets != IGNORED).sum()


def label_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean of the cross entropy over samples.

    Args:
        logits: [batch, class].
        labels: [batch].
    """
    return functional.cross_entropy(logits.float(), labels)
