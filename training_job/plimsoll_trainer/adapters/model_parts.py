"""The layers of a causal language model as modules that map a tensor to a tensor.

`model_copies` builds them. A block is called as the model calls it. The two ends of the
chain are the model itself, emptied of all that is not theirs, so that whatever its
forward pass does between its modules (scaling, capping, reshaping) is done here too:

    Embedding   ids -> [organs before] -> first block: leaves the forward pass
    Head        nothing -> [stand-ins, no bytes] -> first block: brings x in
                -> [organs after] -> logits
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from plimsoll_trainer.adapters.model_anatomy import (
    Anatomy,
    BlockCall,
    Form,
    Hidden,
    ReachedBlockError,
    Slot,
    wrapped,
)
from plimsoll_trainer.adapters.trees import map_leaves, tensors_of


class Gate:
    """Way into and out of an emptied model during one forward pass."""

    def __init__(self) -> None:
        """Start without anything."""
        self.batch = 1
        self.incoming: Tensor | None = None
        """Taken in at the blocks; None: the pass ends at the block `stop`."""
        self.stop = 0


class Block(nn.Module):
    """One block with the constants that the model gives it in every call."""

    def __init__(self, block: nn.Module, args: Any, kwargs: Any) -> None:
        """Take a block; its constants are registered as buffers afterwards."""
        super().__init__()
        self.block = block
        self._args = args
        self._kwargs = kwargs

    def forward(self, x: Tensor) -> Tensor:
        """Map activations to activations."""
        args = self._filled(self._args, x)
        kwargs = self._filled(self._kwargs, x)
        output: Any = self.block(*args, **kwargs)
        y: Tensor = output if isinstance(output, Tensor) else output[0]
        return y

    def _filled(self, tree: Any, x: Tensor) -> Any:
        """Put activations and constants where the model puts them."""
        tree = map_leaves(tree, Hidden, lambda _: x)
        return map_leaves(tree, Slot, lambda slot: self._constant(slot, x.shape[0]))

    def _constant(self, slot: Slot, batch: int) -> Tensor:
        """Result for one sample, repeated for as many as there are."""
        constant = self.get_buffer(buffer_of(slot))
        if not slot.grows:
            return constant
        rest = constant.shape[1:]
        if constant.shape[0] == 1:
            return constant.expand(batch, *rest)
        return constant.repeat(batch, *[1] * len(rest))


def buffer_of(slot: Slot) -> str:
    """Name of the buffer that holds a constant."""
    return f"constant_{slot.number}"


class Embedding(nn.Module):
    """All that the model does on the way to its first block."""

    def __init__(self, model: nn.Module, gate: Gate, call: BlockCall) -> None:
        """Take a model emptied of all else, and how it calls its first block."""
        super().__init__()
        self.model = model
        self._gate = gate
        self._call = call

    def forward(self, ids: Tensor) -> Tensor:
        """Map token ids of shape [batch, sequence] to activations."""
        self._gate.batch = ids.shape[0]
        try:
            self.model(input_ids=ids, use_cache=False)
        except ReachedBlockError as reached:
            x = self._call.hidden_of(reached.args_of_block, reached.kwargs_of_block)
        else:
            raise RuntimeError("the forward pass went by the first block")
        return x


class Head(nn.Module):
    """All that the model does behind its last block."""

    def __init__(self, model: nn.Module, gate: Gate) -> None:
        """Take a model emptied of all else."""
        super().__init__()
        self.model = model
        self._gate = gate

    def forward(self, x: Tensor) -> Tensor:
        """Map activations to logits of shape [batch, sequence, vocabulary]."""
        self._gate.batch = x.shape[0]
        self._gate.incoming = x
        ids = x.new_zeros((), dtype=torch.long).expand(x.shape[:2])
        try:
            output = self.model(input_ids=ids, use_cache=False)
        finally:
            self._gate.incoming = None
        logits: Tensor = output[0]
        return logits


class Doorway(nn.Module):
    """Stands where a block was: the forward pass leaves or enters here."""

    def __init__(self, anatomy: Anatomy, gate: Gate, place: int) -> None:
        """Take the place of a block."""
        super().__init__()
        self._tuple_length = anatomy.tuple_length
        self._call = anatomy.calls[place]
        self._gate = gate
        self._place = place

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """End the pass with what the block is given, or go on with what came in."""
        x = self._gate.incoming
        if x is None and self._gate.stop == self._place:
            raise ReachedBlockError(args, kwargs)
        if x is None:
            x = self._call.hidden_of(args, kwargs)
        return wrapped(x, self._tuple_length)


class StandIn(nn.Module):
    """Returns tensors of the right shape that take no memory.

    They are full of NaN, so that what should not depend on them shows when it does.
    """

    def __init__(self, organ: nn.Module, output: Any, gate: Gate) -> None:
        """Take the place of an organ; some models ask its weights where they are."""
        super().__init__()
        self._output = output
        self._gate = gate
        for name, weight in organ.named_parameters(recurse=False):
            setattr(self, name, nothing(torch.empty(()), weight.shape, weight.dtype))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Ignore the arguments, but for where they are."""
        near = tensors_of((args, kwargs))[0]

        def fill(form: Form) -> Tensor:
            return nothing(near, form.shape(self._gate.batch), form.dtype)

        return map_leaves(self._output, Form, fill)


def nothing(near: Tensor, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """A tensor of one element in memory, on the device of another."""
    value = float("nan") if dtype.is_floating_point else 0
    return near.new_full((), value, dtype=dtype).expand(*shape)


class Absent(nn.Module):
    """Stands where nothing should be called: it has no forward, and so raises."""
