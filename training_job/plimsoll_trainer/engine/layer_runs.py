"""One layer in a pass: run once or twice, alone or with the loss behind it.

In: a built layer, what enters it. Out: what it returns; of the last layer the loss and
what that counts. Called by `stage`, and by the profiler for a layer alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from plimsoll_trainer.engine.token_pieces import Places, all_places, loss_in_pieces
from plimsoll_trainer.random_keys import seed_device
from plimsoll_trainer.workload import Loss, SumAndCount, TokenLoss


def run_once(
    run: Callable[..., Any], x: Tensor, *taken: Tensor, recomputed: bool
) -> Any:
    """Output of a layer, which keeps what its backward pass needs, or is run again.

    Without gradients it does neither. The output is a tuple if the layer gives values.
    """
    if not recomputed or not torch.is_grad_enabled():
        return run(x, *taken)
    return checkpoint(run, x, *taken, use_reentrant=False, preserve_rng_state=False)


def run_last(
    run: Callable[..., Tensor],
    loss: Loss,
    x: Tensor,
    targets: Tensor,
    *taken: Tensor,
    recomputed: bool,
    places: Places = all_places,
) -> SumAndCount:
    """Loss behind the last layer and what it counts; in pieces if it may be.

    Only where the layer recomputes: each piece is computed twice. Not where it takes
    carried values, of which nobody knows which part belongs to a piece.
    """
    if recomputed and isinstance(loss, TokenLoss) and not taken:
        return loss_in_pieces(run, loss, x, targets, places)
    output: Tensor = run_once(run, x, *taken, recomputed=recomputed)
    return loss_alone(loss, output, targets)


def loss_alone(loss: Loss, output: Tensor, targets: Tensor) -> SumAndCount:
    """Loss in memory of its own, and what it counts: 1 where it is a mean.

    `mse_loss` and `smooth_l1_loss` give back a scalar in the memory of all differences
    that it is the mean of. A step holds its losses till it ends.
    """
    made = loss(output, targets)
    total, count = made if isinstance(made, tuple) else (made, 1.0)
    return total.clone(), count


def summed_over_samples(loss: Loss, output: Tensor, targets: Tensor) -> SumAndCount:
    """A mean as sum and count of its samples; sum and count as they are.

    So micro-batches of unlike sizes add up to the mean over all samples.
    """
    made = loss(output, targets)
    if isinstance(made, tuple):
        return made
    return made.double() * len(targets), float(len(targets))


def run_layer(
    layer: nn.Module, device: torch.device, key: int, x: Tensor, *taken: Tensor
) -> Any:
    """Run one layer with the random numbers of `key`, however often it is run."""
    seed_device(device, key)
    return layer(x, *taken)


def known_count(count: Tensor | float) -> Tensor | float:
    """Count of a loss, or NaN if it is below 0, without a wait for the device.

    So is the count of the whole step then, which `session` refuses.
    """
    if isinstance(count, Tensor):
        return torch.where(count >= 0, count.double(), math.nan)
    return count if count >= 0 else math.nan
