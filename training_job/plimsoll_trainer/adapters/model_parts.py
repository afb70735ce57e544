"""The layers of a model of `transformers` as modules that map a tensor to a tensor.

`model_copies` builds them. A block is called as the model calls it. What the model does
before, between and behind its blocks is the model itself, emptied of all that is not in
that passage, so that whatever its forward pass does between its modules (scaling,
capping, reshaping) is done here too:

    first     inputs -> [organs] -> first block: leaves the forward pass
    between   nothing -> [stand-ins, no bytes] -> a block: brings x in
              -> [organs] -> next block: leaves
    last      nothing -> [stand-ins, no bytes] -> last block: brings x in
              -> [organs] -> logits
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from plimsoll_trainer.adapters.model_anatomy import (
    Anatomy,
    Form,
    Hidden,
    ReachedBlockError,
    Slot,
    wrapped,
)
from plimsoll_trainer.adapters.model_tasks import run_part
from plimsoll_trainer.adapters.trees import map_leaves, tensors_of


class Gate:
    """Way into and out of an emptied model during one forward pass."""

    def __init__(self, *, enter: int = -1, stop: int = -1) -> None:
        """Take the block whose output is brought in, and the one to leave at.

        Args:
            enter: place of a block; -1: the pass begins with the inputs.
            stop: place of a block; -1: the pass ends with the output.
        """
        self.enter = enter
        self.stop = stop
        self.batch = 1
        self.given: Tensor | None = None
        self.incoming: Tensor | None = None
        self.num_met = 0
        """Blocks that the pass came to."""

    def begin(self, x: Tensor) -> None:
        """Begin a pass with the inputs, or with activations that are brought in."""
        self.batch, self.given, self.num_met = x.shape[0], x, 0
        self.incoming = x if self.enter >= 0 else None

    def end(self) -> None:
        """Keep no tensor of a pass."""
        self.given = self.incoming = None


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


class Passage(nn.Module):
    """All that the model does on its way between two blocks, or at one of its ends."""

    def __init__(self, model: PreTrainedModel, gate: Gate, anatomy: Anatomy) -> None:
        """Take a model emptied of all else."""
        super().__init__()
        self.model = model
        self._gate = gate
        self._task = anatomy.task
        self._sample = anatomy.sample
        self._call = None if gate.stop < 0 else anatomy.calls[gate.stop]

    def forward(self, x: Tensor) -> Tensor:
        """Map inputs or activations to activations, or to logits."""
        self._gate.begin(x)
        inputs = x if self._gate.incoming is None else self._inputs_beside(x)
        try:
            output = run_part(self._task, self.model, inputs)
        except ReachedBlockError as reached:
            assert self._call is not None  # noqa: S101 - a doorway has raised it
            return self._call.hidden_of(reached.args_of_block, reached.kwargs_of_block)
        finally:
            self._gate.end()
        if self._call is not None:
            raise RuntimeError("the forward pass went by the block where it ends")
        logits: Tensor = output[0]
        return logits

    def _inputs_beside(self, x: Tensor) -> Tensor:
        """Inputs that take no memory, for a pass that begins at a block.

        A head that judges tokens may be given some of them.
        """
        if self._task.judges_tokens:
            return nothing(x, x.shape[:2], torch.long)
        dtype = torch.long if self._task.takes_tokens else x.dtype
        return nothing(x, (x.shape[0], *self._sample), dtype)


class Standing(nn.Module):
    """Stands in the place of a module; what else is asked of it, that one answers.

    Some models look at weights or fields of their modules, such as their type. While
    a pass runs, tensors are where it is, and take no memory.
    """

    def __init__(self, original: nn.Module, gate: Gate | None = None) -> None:
        """Take the place of a module on the meta device."""
        super().__init__()
        self._original = (original,)  # no child of this one
        self._gate = gate or Gate()

    def __getattr__(self, name: str) -> Any:
        """An attribute that is not here."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            [original] = self.__dict__["_original"]
            found = getattr(original, name)
        given = self._gate.given
        if given is None or not isinstance(found, Tensor):
            return found
        return nothing(given, found.shape, found.dtype)


class Doorway(Standing):
    """Stands where blocks were: the forward pass leaves or enters here."""

    def __init__(self, block: nn.Module, anatomy: Anatomy, gate: Gate) -> None:
        """Take the place of a block, however often it is called."""
        super().__init__(block, gate)
        self._calls = anatomy.calls

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """End the pass with what the block is given, or go on with what came in."""
        gate = self._gate
        place, gate.num_met = gate.num_met, gate.num_met + 1
        call = self._calls[place]
        if place == gate.stop:
            raise ReachedBlockError(args, kwargs)
        if place == gate.enter and gate.incoming is not None:
            return wrapped(gate.incoming, call.tuple_length)
        x = call.hidden_of(args, kwargs)
        shape = call.output.shape(gate.batch)
        if x.shape != shape:
            x = nothing(x, shape, x.dtype)
        return wrapped(x, call.tuple_length)


class StandIn(Standing):
    """Returns tensors of the right shape that take no memory.

    They are full of NaN, so that what should not depend on them shows when it does.
    """

    def __init__(self, organ: nn.Module, output: Any, gate: Gate) -> None:
        """Take the place of an organ; some models ask its weights where they are."""
        super().__init__(organ, gate)
        self._output = output

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Ignore the arguments, but for where they are."""
        near = [*tensors_of((args, kwargs)), self._gate.given][0]
        assert near is not None  # noqa: S101 - a pass has begun

        def fill(form: Form) -> Tensor:
            return nothing(near, form.shape(self._gate.batch), form.dtype)

        return map_leaves(self._output, Form, fill)


def nothing(near: Tensor, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """A tensor of one element in memory, on the device of another."""
    value = float("nan") if dtype.is_floating_point else 0
    return near.new_full((), value, dtype=dtype).expand(*shape)


class Absent(Standing):
    """Stands where nothing should be called."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse to be called."""
        del args, kwargs
        raise RuntimeError(f"{type(self._original[0]).__name__} is in another layer")
