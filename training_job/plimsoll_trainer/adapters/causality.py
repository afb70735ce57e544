"""Which tokens a language model looks at: not at later ones, and its head at one.

In: an `Anatomy`. Bidirectional encoders are language models of `transformers` too, and
as they are configured by default every token sees all others: the loss then falls to
nothing while nothing is learned. So each kind of block is asked for real, on a few
random activations: does what comes out at earlier places change with the last one?

A block's linear maps work on each place alone, whatever their weights. `Picking` stands
in for them, so a block of billions of parameters is asked as cheaply as a small one.
The head is asked likewise whether it may take a few tokens at a time (`TokenLoss`).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from plimsoll_trainer.adapters.dissection import anatomy_of
from plimsoll_trainer.adapters.model_anatomy import Anatomy
from plimsoll_trainer.adapters.model_copies import (
    build_head,
    copied_module,
    shared_configs,
    start,
    with_constants,
)
from plimsoll_trainer.adapters.model_parts import Block, nothing
from plimsoll_trainer.adapters.model_watch import named, switch_of
from plimsoll_trainer.errors import WorkloadError

LENGTH = 4
"""Tokens in the sample that is tried."""
LARGEST = 2**26
"""Parameters besides those of linear maps; blocks with more are not tried."""
SHIFT = 13
"""Places between what two maps pick; prime, and less than a head has."""
CHANGE = 1e-3
"""Relative to the largest value; rounding is a thousand times less."""


def check_causal(anatomy: Anatomy, places: Iterable[int]) -> None:
    """Refuse a model, whose anatomy is in fp32, in which a token sees later ones.

    One block of each kind is tried.

    Raises:
        WorkloadError: says what to set.
    """
    few = shortened(anatomy)
    shape = torch.Size(few.calls[0].output.shape(1))
    for place in places:
        if sees_later(few, place, shape):
            config = anatomy.model.config
            switch = switch_of(config)
            remedy = f"set {switch}=True" if switch else "take one that is causal"
            raise WorkloadError(
                f"tokens of {named(config)} see later ones, so it would learn to copy "
                f"the next token instead of to predict it: {remedy}"
            )


@torch.no_grad()
def sees_later(anatomy: Anatomy, place: int, shape: torch.Size) -> bool:
    """Whether the output of a block at earlier places depends on the last one.

    False for a block that cannot be tried, because it is too large or does not run. The
    anatomy is of `LENGTH` tokens, the shape that of the activations of one sample.
    """
    if num_kept(anatomy.blocks[place]) > LARGEST:
        return False
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            block = thin_block(anatomy, place)
            x = torch.randn(shape, dtype=torch.float32)
            other = x.clone()
            other[:, -1] = torch.randn(shape[-1], dtype=torch.float32)
            before, after = (block(each)[:, :-1] for each in (x, other))
        except Exception:  # noqa: BLE001 - their code, in a form it was not made for
            return False
    change = (before - after).abs().max()
    return bool(change > CHANGE * before.abs().max())


@torch.no_grad()
def takes_tokens_apart(anatomy: Anatomy) -> bool:
    """Whether the head of a model in fp32 gives each token's logits from it alone.

    False as well for a head that cannot be tried.
    """
    few = shortened(anatomy)
    organs = [few.organs[path] for path in few.after]
    if sum(num_kept(organ) for organ in organs) > LARGEST:
        return False
    linears = [linear for one in organs for linear in linears_in(one)]
    thin = picking(linears)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            head = build_head(few, thin)
            x = torch.randn(few.calls[-1].output.shape(1), dtype=torch.float32)
            whole = head(x)
            apart = torch.cat(
                [head(piece) for piece in torch.split(x, LENGTH - 1, 1)], 1
            )
        except Exception:  # noqa: BLE001 - their code, in a form it was not made for
            return False
    if whole.shape != apart.shape:
        return False
    return bool((whole - apart).abs().max() <= CHANGE * whole.abs().max())


def shortened(anatomy: Anatomy) -> Anatomy:
    """The anatomy for samples of `LENGTH` tokens."""
    return anatomy_of(anatomy.model, anatomy.task, anatomy.block_paths, (LENGTH,))


def linears_in(module: nn.Module) -> list[nn.Linear]:
    """Linear maps of a module, itself included."""
    return [one for one in module.modules() if isinstance(one, nn.Linear)]


def num_kept(block: nn.Module) -> int:
    """Number of a block's parameters outside of linear maps."""
    linear = {id(p) for one in linears_in(block) for p in one.parameters(recurse=False)}
    return sum(p.numel() for p in block.parameters() if id(p) not in linear)


def thin_block(anatomy: Anatomy, place: int) -> Block:
    """Build a block as the model starts it, without its linear maps."""
    original, memo = anatomy.blocks[place], shared_configs(anatomy.model, masks=True)
    memo |= picking(linears_in(original))
    copied = copied_module(original, memo)
    start(copied, anatomy.owner_of(place))
    return with_constants(copied, anatomy, place).eval()


def picking(linears: Iterable[nn.Linear]) -> dict[int, nn.Module]:
    """What stands in for linear maps, by their identity."""
    return {id(one): Picking(one, number) for number, one in enumerate(linears)}


class Picking(nn.Module):
    """Gives each output one of the inputs, in place of a weighted sum of all.

    Another one for each map, and for each part of one: if queries were keys as well,
    every token would look at itself alone.
    """

    def __init__(self, linear: nn.Linear, number: int) -> None:
        """Take the place of a linear map, which holds no bytes."""
        super().__init__()
        self._number = number
        self.in_features, self.out_features = linear.in_features, linear.out_features
        near = torch.empty(())
        self.weight = nothing(near, linear.weight.shape, linear.weight.dtype)
        self.bias = None

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""
        place = torch.arange(self.out_features)
        moved = place + SHIFT * (self._number + place // self.in_features)
        return x[..., moved % self.in_features]
