"""The pipeline runtime: split micro-batches, caps, and one rank of many alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor

from plimsoll_trainer.errors import IncompatibleError
from plimsoll_trainer.torch_internals.operators import FakeTensor


class HeldTensor:
    """Stands for a send or receive: holds the tensor as the real one would."""

    def __init__(self, tensor: Tensor) -> None:
        """Hold a tensor until the object is dropped."""
        self._tensor = tensor

    def wait(self) -> None:
        """End at once: nothing is under way."""


Fill = Callable[[Tensor], None]
"""Puts numbers into a tensor in the place of those that would be received."""


def leave_empty(tensor: Tensor) -> None:
    """Put in nothing: tensors without data have no numbers."""


def pretend_p2p(
    operations: Sequence[dist.P2POp],
    desc: str | None = None,
    *,
    fill: Fill = leave_empty,
) -> list[HeldTensor]:
    """Send and receive nothing, but hold and refuse what the real operations do.

    `fill` is called with each tensor that would be received into.

    Raises:
        ValueError: a tensor is not contiguous. Gloo raises as well; NCCL would send the
            numbers in another order.
    """
    del desc
    for operation in operations:
        if not operation.tensor.is_contiguous():
            raise ValueError(
                f"a tensor of shape {list(operation.tensor.shape)} and strides "
                f"{list(operation.tensor.stride())} cannot be sent or received: "
                "Tensors must be contiguous"
            )
        if operation.op is dist.irecv:
            fill(operation.tensor)
    return [HeldTensor(operation.tensor) for operation in operations]


def run_micro_batches(
    schedule: Any,
    inputs: list[tuple[Tensor, ...]],
    targets: list[dict[str, Tensor]],
    losses: list[Tensor],
) -> None:
    """Run one step of a schedule of one stage, without results but the losses.

    Torch 2.11 to 2.13 split a whole batch themselves, which would have to lie in one
    piece; what `step` does besides that is done here. 2.14 takes micro-batches. Inputs
    are those of the first stage, targets and losses those of the last.
    """
    no_targets = [None] * len(inputs)  # the last stage has them, and gives the loss
    if "arg_mbs" in inspect.signature(schedule.step).parameters:
        schedule.step(
            arg_mbs=inputs,
            kwarg_mbs=targets,
            target_mbs=no_targets,
            losses=losses,
            return_outputs=False,
        )
        return
    schedule._stage.has_backward = True
    schedule._stage.clear_runtime_states()
    schedule._step_microbatches(
        inputs, targets, no_targets, losses, return_outputs=False
    )


def takes_any_strides(stage: Any) -> None:
    """Let a stage not compare what passes it with what it was shown.

    Torch 2.11 does so for every micro-batch, strides included, which say nothing where
    a dimension is 1; later ones do so where torch.distributed is debugged.
    """
    for name in ("_validate_fwd_input", "_validate_fwd_outputs"):
        if hasattr(stage, name):
            setattr(stage, name, lambda *_: None)


def cap_in_flight(schedule: Any, stage: int, cap: int) -> None:
    """Let a stage of 1F1B hold the activations of `cap` micro-batches at most.

    It warms up with as many as there are stages left, itself included; it is given
    another number of stages, which torch uses for nothing else once it is made.

    Raises:
        IncompatibleError: this torch knows no such number.
    """
    if not hasattr(schedule, "_num_stages"):
        raise IncompatibleError(
            f"torch {torch.__version__} has no {type(schedule).__name__}._num_stages, "
            "so micro-batches in flight cannot be capped: use a release that Plimsoll "
            "is tested with, or plan without caps"
        )
    schedule._num_stages = stage + cap


def standing_buffers(schedule: Any) -> list[Tensor]:
    """Buffers to receive one micro-batch that a stage holds between two steps.

    Torch 2.11 to 2.14 make them for every micro-batch, once; later ones make each
    before it is used, and none is left after a step.
    """
    stage = schedule._stage
    received = (stage.args_recv_info, stage.grad_recv_info)
    buffers = (
        getattr(info, "buffer", None) for infos in received for info in infos.get(0, ())
    )
    return [buffer for buffer in buffers if buffer is not None]


def standing_inputs(schedule: Any) -> list[Tensor]:
    """Buffers that a stage keeps to receive one micro-batch into, if it has any.

    They may be written to: what they hold is of no use between two steps.
    """
    infos = schedule._stage.args_recv_info.get(0, ())
    buffers = [getattr(info, "buffer", None) for info in infos]
    return [one.detach() for one in buffers if one is not None]


def send(tensor: Tensor, rank: int, group: dist.ProcessGroup) -> None:
    """Send to another rank of a group, by the communicator that schedules use.

    A plain `dist.send` would make another one for each pair of ranks over NCCL.
    """
    exchange(dist.P2POp(dist.isend, tensor.contiguous(), rank, group))


def receive(tensor: Tensor, rank: int, group: dist.ProcessGroup) -> Tensor:
    """Receive into a tensor likewise; the same tensor."""
    exchange(dist.P2POp(dist.irecv, tensor, rank, group))
    return tensor


def exchange(operation: dist.P2POp) -> None:
    """Do one operation, and wait for it."""
    for work in dist.batch_isend_irecv([operation]):
        work.wait()


@contextmanager
def single_process(
    rank: int, num_ranks: int, fill: Fill = leave_empty
) -> Iterator[None]:
    """Be one rank of a process group that has no other members.

    `fill` puts numbers into what would be received.
    """
    # Half of what torch takes to import, and only a replay comes here.
    from torch.distributed.pipelining import PipelineStage, schedules  # noqa: PLC0415
    from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: PLC0415

    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=num_ranks)
    try:
        with ExitStack() as patches:
            exchange = partial(pretend_p2p, fill=fill)
            patches.enter_context(mock.patch.object(schedules, "_batch_p2p", exchange))
            for name, pretended in pretended_methods(PipelineStage):
                patches.enter_context(mock.patch.object(PipelineStage, name, pretended))
            yield
    finally:
        dist.destroy_process_group()


SHAPES_ARE_KNOWN = SimpleNamespace(item=lambda: 1)
"""Agreed by ranks before the first step: the shapes of all stages were given."""


def pretended_methods(base: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield what a stage does otherwise while it is replayed, by its torch."""
    if hasattr(base, "_output_slot_is_releasable"):  # since torch 2.15
        real = base._output_slot_is_releasable

        def slot_is_releasable(self: Any, output: Any) -> tuple[bool, str]:
            """Treat a fake output as what it stands for, a plain tensor."""
            if type(output) is FakeTensor and not self.is_last:
                return True, ""
            found: tuple[bool, str] = real(self, output)
            return found

        yield "_output_slot_is_releasable", slot_is_releasable
    if hasattr(base, "_warmup_forward_vote"):  # torch 2.12 to 2.14; 2.11 asks nobody
        yield "_warmup_forward_vote", lambda *_, **__: SHAPES_ARE_KNOWN
        yield "_warmup_backward_result", lambda *_, **__: SHAPES_ARE_KNOWN
