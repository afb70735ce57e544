"""Whether an optimizer treats each number on its own, and the bytes it keeps of each.

In: the function that makes a workload's optimizer. Both are found by trying, on one
matrix. Replicas may divide the state of an optimizer only if a step on pieces of a
parameter gives what a step on the whole gives, to the bit: so it is for SGD, Adam and
their like, and not where the norm of a tensor, its rows or blocks of its numbers count
(Adafactor, LAMB, Muon, AdamW in 8 bits). Called by `assignment`, and by the profiler,
which notes both for the planner.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from plimsoll_trainer.emulated.device import host_memory
from plimsoll_trainer.engine.sharded_optimizer import PieceOf, over_pieces
from plimsoll_trainer.workload import MakeOptimizer

SHAPE = (96, 96)
"""More than the 4,096 numbers from which bitsandbytes keeps 8 bits, in each piece."""
CUT = 4112
"""Numbers in the first of two pieces: whole vectors of every kernel, and no whole
blocks of 256."""
NUM_STEPS = 6


def is_elementwise(make: MakeOptimizer, device: torch.device | str = "cpu") -> bool:
    """Whether steps on two pieces of a matrix equal steps on the whole, to the bit.

    One that cannot step on a flat piece, whatever it raises, does not.
    """
    try:
        with host_memory():  # a trial is nothing that a device has to have room for
            whole, pieces = stepped_both_ways(make, device)
    except Exception:  # noqa: BLE001 - their code
        return False
    return torch.equal(whole, pieces)


def stepped_both_ways(
    make: MakeOptimizer, device: torch.device | str
) -> tuple[Tensor, Tensor]:
    """All values of a matrix after a few steps, whole and in pieces."""
    generator = torch.Generator("cpu").manual_seed(1)

    def drawn() -> Tensor:
        values = torch.randn(SHAPE, generator=generator, device="cpu")
        return values.to(device, torch.float32)

    values = drawn()
    whole = nn.Parameter(values.clone())
    pieces = [
        nn.Parameter(part.clone())
        for part in (values.view(-1)[:CUT], values.view(-1)[CUT:])
    ]
    places = [
        PieceOf(whole=whole, first=0, end=CUT),
        PieceOf(whole=whole, first=CUT, end=whole.numel()),
    ]
    optimizers = make([whole]), over_pieces(make, [whole], places)(pieces)
    for step in range(NUM_STEPS):
        # Pieces of other sizes of gradients, so that a norm over all of them shows.
        gradient = drawn()
        gradient.view(-1)[CUT:].mul_(10.0 ** (step % 3))
        whole.grad = gradient
        for piece, place in zip(pieces, places, strict=True):
            piece.grad = gradient.view(-1)[place.first : place.end].clone()
        for optimizer in optimizers:
            optimizer.step()
    return whole.detach().view(-1), torch.cat([piece.detach() for piece in pieces])


def bytes_per_number(
    make: MakeOptimizer,
    dtype: torch.dtype,
    device: torch.device,
    least: torch.dtype = torch.float32,
) -> int:
    """Bytes of optimizer state that every number of a parameter has.

    Masters count, of the smallest type that a step is taken on, where `dtype` is
    smaller. Apart from that is what each parameter has once, such as a count of steps.
    """
    has_master = dtype.itemsize < least.itemsize
    stepped = least if has_master else dtype
    with host_memory():
        whole = nn.Parameter(torch.zeros(SHAPE, dtype=stepped, device=device))
        optimizer = make([whole])
        whole.grad = torch.zeros_like(whole)
        optimizer.step()
    kept = sum(
        value.element_size()
        for value in optimizer.state[whole].values()
        if isinstance(value, Tensor) and value.shape == whole.shape
    )
    return kept + has_master * least.itemsize
