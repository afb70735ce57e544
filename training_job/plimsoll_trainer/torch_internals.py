"""Every private name of torch that Plimsoll uses, and what it is used for.

A private name may change with any release, so each stands here once. They are for:

    FakeTensorMode       tensors with shape and type, without data: traces and replay
    FakeTensor           one of them
    NEEDS_NUMBERS        what is raised where a number of theirs is asked for
    TorchDispatchMode    sees every operator: counts live bytes and work
    tree_iter, tree_map  walk what an operator takes and returns
    without_modes        runs an operator on real tensors in the middle of a trace
    argument_names       of an operator
    of_arguments         lets the counter of FLOPs give a formula tensors, not shapes
    BatchNorm            what all norms over a batch are made from
    storage_of           tells storages apart
    is_in_place_unseen   tells what autograd does in place, but not under a mode
    num_writes           tells whether a tensor was written to
    flash_attention ...  operators that a GPU runs, by name, on fake tensors
    run_micro_batches    a step of torch's schedule on micro-batches that are split
    takes_any_strides    lets the first stage have samples as they lie: torch 2.11
    cap_in_flight        lets a stage warm up with fewer micro-batches
    standing_buffers     what a stage keeps to receive a micro-batch into: torch < 2.15
    single_process       lets torch's pipeline runtime run as one rank of many, alone,
                         in a process group in which nothing is sent: replay
    lists_by_default     lets optimizers choose as on a GPU, on fake tensors
    set_local            lets the part of a DTensor that is here lie elsewhere
    collectives          of tensor groups; a trace takes what wait_tensor gives for new
    FlopsHere            counts what is done with the parts of DTensors that are here

`plimsoll_profiler.ranks.self_check` replays a toy against real processes and names the
torch version where the two differ.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, Self
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor, UntypedStorage
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.distributed.tensor import DTensor
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm
from torch.optim import Optimizer
from torch.utils import flop_counter
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._python_dispatch import _disable_current_modes as without_modes
from torch.utils._pytree import tree_iter, tree_map

from plimsoll_trainer.errors import IncompatibleError

# Imported for others; what is defined here needs no place in the list.
__all__ = [
    "BatchNorm",
    "FakeTensor",
    "FakeTensorMode",
    "TorchDispatchMode",
    "tree_iter",
    "tree_map",
    "without_modes",
]

NEEDS_NUMBERS = (DataDependentOutputException, DynamicOutputShapeException)
flash_attention = torch.ops.aten._scaled_dot_product_flash_attention
efficient_attention = torch.ops.aten._scaled_dot_product_efficient_attention
math_attention = torch.ops.aten._scaled_dot_product_attention_math
unsafe_view = torch.ops.aten._unsafe_view.default
collectives = torch.ops._c10d_functional
wait_tensor = collectives.wait_tensor.default


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


@contextmanager
def lists_by_default() -> Iterator[None]:
    """Let optimizers of fake CPU tensors walk them in lists, as those of a GPU do.

    What an optimizer does by default, torch decides from where its parameters lie and
    whether they are plain tensors; what its maker has asked for holds as ever.
    """
    defaults = sys.modules[Optimizer.__module__]  # torch.optim hides its own module
    with (
        mock.patch.object(
            defaults, "_get_foreach_kernels_supported_devices", return_value=["cpu"]
        ),
        mock.patch.object(defaults, "_foreach_supported_types", [FakeTensor]),
    ):
        yield


def set_local(tensor: DTensor, memory: Tensor) -> None:
    """Let the part of a tensor that is here lie in other memory; nothing is copied."""
    tensor._local_tensor = memory


class CountsHere(flop_counter._FlopCounterMode):  # type: ignore[no-untyped-call]
    """Leaves DTensors to themselves, which then compute with what is here."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Count an operator on tensors that are here."""
        if DTensor in types:
            return NotImplemented
        return super().__torch_dispatch__(func, types, args, kwargs)  # type: ignore[no-untyped-call]


class FlopsHere(flop_counter.FlopCounterMode):
    """Counts what this rank does of operators on DTensors, not what all of them do."""

    def __enter__(self) -> Self:
        """Begin at zero."""
        with mock.patch.object(flop_counter, "_FlopCounterMode", CountsHere):
            super().__enter__()  # type: ignore[no-untyped-call]
        return self


def argument_names(packet: Any) -> list[str]:
    """Names of an operator's arguments, in order."""
    return [argument.name for argument in packet.default._schema.arguments]


def of_arguments(formula: Callable[..., int]) -> Callable[..., int]:
    """Let torch's counter of FLOPs call a formula with tensors in place of shapes."""

    def counted(*args: Any, **kwargs: Any) -> int:
        return formula(*args, **kwargs)

    counted._get_raw = True  # type: ignore[attr-defined] # as register_flop_formula
    return counted


def storage_of(tensor: Tensor) -> tuple[int, UntypedStorage]:
    """A tensor's storage and a key that is its own while it lives."""
    storage = tensor.untyped_storage()
    return storage._cdata, storage


def num_writes(tensor: Tensor) -> int:
    """Number of writes to a tensor since it was made."""
    return tensor._version


@dataclass(frozen=True, slots=True)
class Holders:
    """References to the first tensor that a mode was called with."""

    tensor: int
    storage: int
    python: int

    @classmethod
    def of(cls, args: tuple[Any, ...]) -> Holders:
        """Count them; nobody but `args` may hold the tensor on the way here."""
        return cls(
            args[0]._use_count(),
            torch._C._storage_Use_Count(args[0].untyped_storage()._cdata),
            sys.getrefcount(args[0]),
        )


SCATTERS = (
    torch.ops.aten.index_add.default,
    torch.ops.aten.index_put.default,
    torch.ops.aten.scatter.src,
    torch.ops.aten.scatter_add.default,
)
"""Operators that write gradients of indexing, into zeros that nobody else has."""


def is_in_place_unseen(
    operator: Any, args: tuple[Any, ...], of_gradient: Holders
) -> bool:
    """Whether autograd writes to an operator's first argument where no mode looks on.

    Under a dispatch mode autograd lets every operator make a new tensor. Else the
    gradients that meet at a tensor are added into the first of them, if nothing but
    autograd holds it (`can_accumulate_inplace` in torch's source), and gradients of
    indexing are scattered in place (`areAnyTensorSubclassLike`). `of_gradient` is what
    `holders_of_a_gradient` gives.
    """
    is_sum = operator is torch.ops.aten.add.Tensor
    if not (is_sum or operator in SCATTERS) or torch.is_grad_enabled():
        return False
    if not in_backward() or not isinstance(args[0], Tensor):
        return False
    holders = Holders.of(args)
    if not is_sum:
        return holders.python == of_gradient.python
    is_whole = args[0].untyped_storage().nbytes() == args[0].nbytes
    return is_whole and holders == of_gradient


def in_backward() -> bool:
    """Whether autograd runs a backward pass here, other than one that sums itself."""
    node: Any = torch._C._current_autograd_node()  # None outside, unlike its stub
    return node is not None and node.name() not in SUM_THEMSELVES


SUM_THEMSELVES = ("StdMeanBackward0", "VarMeanBackward0")
"""Their sum is one of the formula's own, which takes memory with and without a mode."""


@cache
def holders_of_a_gradient() -> Holders:
    """References to a gradient that autograd alone holds, as a mode sees it.

    Found by looking, as they change with the release of Python and torch. Not to be
    called from within a mode's work, where autograd is off.
    """
    seen: list[Holders] = []

    class Look(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func is torch.ops.aten.add.Tensor:
                seen.append(Holders.of(args))
            return func(*args, **(kwargs or {}))

    with without_modes(), torch.enable_grad():
        x = torch.ones(2, requires_grad=True)
        total = (x.sin() + x.cos()).sum()
        with Look():  # type: ignore[no-untyped-call]
            torch.autograd.grad(total, x)
    return seen[0]
