"""Optimizers by name, each as a `MakeOptimizer` of one layer's parameters.

    name         class       state of each number, bytes        from
    adamw        AdamW       8                                   torch
    sgd          SGD         0; 4 with momentum                  torch
    adafactor    Adafactor   a row and a column of each matrix   torch
    muon         Muon        4; vectors as AdamW, 8              torch
    lion         Lion        4                                   lion-pytorch
    adamw-8bit   AdamW8bit   2 and 1/32; small tensors 8         bitsandbytes

In: a name and arguments from YAML. Out: an object that a workload takes as its
`optimizer`, or that is called like one. Bytes are those of a step on fp32; in
`Precision.PURE_BF16` torch's and Lion's are half of them. Replicas may divide the state
of those that treat each number alone: AdamW, SGD, Lion. As everywhere, `elementwise`
finds that out by trying. Libraries are imported when an optimizer is made that needs
one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from plimsoll_planner.records.model_profile import OptimizerMode
from plimsoll_trainer.errors import WorkloadError, one_of
from plimsoll_trainer.torch_internals.operators import FakeTensor
from plimsoll_trainer.typed import checked
from plimsoll_trainer.workload import AdamW, MakeOptimizer, decayed_groups

Groups = list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class SGD:
    """Stochastic gradient descent (`torch.optim.SGD`)."""

    learning_rate: float = 1e-2
    momentum: float = 0.0
    """Above 0 a buffer is kept for each number."""
    nesterov: bool = False
    weight_decay: float = 0.0
    """Of matrices; vectors are not decayed."""
    mode: OptimizerMode = OptimizerMode.FUSED

    def __call__(self, parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
        """Build the optimizer of one layer."""
        return torch.optim.SGD(
            decayed_groups(parameters, self.weight_decay),
            lr=self.learning_rate,
            momentum=self.momentum,
            nesterov=self.nesterov,
            fused=self.mode is OptimizerMode.FUSED,
            foreach=self.mode is OptimizerMode.FOREACH,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Adafactor:
    """Second moments by row and column (`torch.optim.Adafactor`), one by one.

    Source: Shazeer and Stern, ICML 2018. Steps are scaled by the norm of a tensor, so
    replicas cannot divide its state, nor a tensor group its layers.
    """

    learning_rate: float = 1e-2
    weight_decay: float = 0.0
    """Of matrices; vectors are not decayed."""

    def __call__(self, parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
        """Build the optimizer of one layer."""
        groups = decayed_groups(parameters, self.weight_decay)
        return TraceableAdafactor(groups, lr=self.learning_rate, foreach=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Muon:
    """Momentum made orthogonal for matrices (`torch.optim.Muon`), AdamW for the rest.

    Every tensor of two dimensions counts as a matrix, embeddings as well. Source:
    Jordan et al., 2024; step sizes are matched to AdamW's, as Liu et al., 2025, do.
    """

    learning_rate: float = 3e-4
    momentum: float = 0.95
    weight_decay: float = 0.1
    """Of matrices; vectors are not decayed."""

    def __call__(self, parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
        """Build the optimizer of one layer."""
        rest = AdamW(learning_rate=self.learning_rate, weight_decay=self.weight_decay)
        matrices = [p for p in parameters if p.ndim == MATRIX]
        others = [p for p in parameters if p.ndim != MATRIX]
        parts: list[torch.optim.Optimizer] = []
        if matrices:
            muon = torch.optim.Muon(
                matrices,
                lr=self.learning_rate,
                momentum=self.momentum,
                weight_decay=self.weight_decay,
                adjust_lr_fn="match_rms_adamw",
            )
            parts.append(muon)
        if others:
            parts.append(rest(others))
        return parts[0] if len(parts) == 1 else MuonAndAdamW(parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class Lion:
    """Steps by the sign of a momentum (`lion_pytorch.Lion`).

    Source: Chen et al., NeurIPS 2023.
    """

    learning_rate: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.1
    """Of matrices; vectors are not decayed."""

    def __call__(self, parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
        """Build the optimizer of one layer.

        Raises:
            WorkloadError: lion-pytorch is not installed.
        """
        made: torch.optim.Optimizer = library("lion_pytorch", "lion").Lion(
            decayed_groups(parameters, self.weight_decay),
            lr=self.learning_rate,
            betas=tuple(self.betas),
        )
        return made


@dataclass(frozen=True, kw_only=True, slots=True)
class AdamW8bit:
    """AdamW with both moments in 8 bits (`bitsandbytes.optim.AdamW8bit`).

    Numbers are quantised in blocks of 256, and tensors of fewer than 4,096 numbers stay
    in 32 bits; so replicas cannot divide its state. Source: Dettmers et al., ICLR 2022.
    """

    learning_rate: float = 3e-4
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.1
    """Of matrices; vectors are not decayed."""

    def __call__(self, parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
        """Build the optimizer of one layer.

        Raises:
            WorkloadError: bitsandbytes is not installed.
        """
        made: torch.optim.Optimizer = countable_adamw_8bit()(
            decayed_groups(parameters, self.weight_decay),
            lr=self.learning_rate,
            betas=tuple(self.betas),
        )
        return made


MATRIX = 2
"""Dimensions."""
BY_NAME: dict[str, Any] = {
    "adamw": AdamW,
    "sgd": SGD,
    "adafactor": Adafactor,
    "muon": Muon,
    "lion": Lion,
    "adamw-8bit": AdamW8bit,
}
EXTRA = "plimsoll-train[optimizers]"


def optimizer_named(name: str, **arguments: Any) -> MakeOptimizer:
    """The optimizer of a name; `arguments` are fields of its class.

    Raises:
        WorkloadError: there is no such optimizer or argument, which the text names the
            nearest to, a value is of another type or out of its bounds, or the library
            that it needs is not installed.
    """
    kind = BY_NAME.get(name)
    if kind is None:
        raise WorkloadError(f"optimizer {name!r}: {one_of(name, sorted(BY_NAME))}")
    known = sorted(field.name for field in fields(kind))
    for argument in arguments:
        if argument not in known:
            raise WorkloadError(
                f"optimizer {name!r} takes no {argument!r}: {one_of(argument, known)}"
            )
    try:
        made: MakeOptimizer = kind(**checked(arguments, kind))
        made([nn.Parameter(torch.zeros(1))])  # so that a missing library is named now
    except (TypeError, ValueError) as error:  # a number that torch refuses
        raise WorkloadError(
            f"optimizer {name!r} with {arguments}: {error}: give another value"
        ) from error
    return made


def library(module: str, optimizer: str) -> Any:
    """A library that an optimizer needs.

    Raises:
        WorkloadError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.replace("_", "-")
        raise WorkloadError(
            f"optimizer {optimizer!r} needs {package}, which is not here ({error}): "
            f"pip install '{EXTRA}', or choose another optimizer"
        ) from error


class Ones(TorchFunctionMode):
    """Answers 1 where a number of a tensor is asked for that has none."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Answer, or run what is asked for."""
        del types
        if func is torch.Tensor.item and isinstance(args[0], FakeTensor):
            return 1.0
        return func(*args, **kwargs or {})


def traceable(optimizer: torch.optim.Optimizer) -> AbstractContextManager[object]:
    """Within it an optimizer steps on tensors without data, as a trace has them.

    What it reads decides the size of its step, and not what memory that takes.
    """
    parameters = (p for group in optimizer.param_groups for p in group["params"])
    return Ones() if isinstance(next(parameters, None), FakeTensor) else nullcontext()


class TraceableAdafactor(torch.optim.Adafactor):
    """Reads norms of tensors, which have none in a trace."""

    def step(self, closure: Any = None) -> Any:
        """Step."""
        with traceable(self):
            return super().step(closure)  # type: ignore[no-untyped-call]


TraceableAdafactor.__name__ = "Adafactor"  # in messages and profiles


class MuonAndAdamW(torch.optim.Optimizer):
    """Both as one, each for parameters of its own."""

    def __init__(self, parts: Sequence[torch.optim.Optimizer]) -> None:
        """Take over their groups, and keep one state for all."""
        groups = [group for part in parts for group in part.param_groups]
        super().__init__([{"params": group["params"]} for group in groups], {})
        self._parts = parts
        self.param_groups[:] = groups
        for part in parts:
            part.state = self.state

    def step(self, closure: Any = None) -> Any:
        """Step all of them, on the groups as they are now."""
        del closure
        for part in self._parts:
            part.step()


@cache
def countable_adamw_8bit() -> Any:
    """The class of bitsandbytes, as a checkpoint and a trace can have it.

    Its count of steps is a tensor, and its two tables, which are the same for all, are
    no state. In a trace its kernel makes nothing, as on a GPU.
    """
    quiet = logging.getLogger("bitsandbytes")
    quiet.setLevel(logging.ERROR)  # it misses kernels that nobody has asked for
    base: Any = library("bitsandbytes", "adamw-8bit").optim.AdamW8bit

    class CountableAdamW8bit(base):  # type: ignore[misc]
        """See above."""

        def fill_qmap(self) -> None:
            """Make both tables, without numbers where no tensor has any."""
            if isinstance(torch.empty(0), FakeTensor):
                names = ("dynamic", "udynamic")
                self.name2qmap = {name: torch.empty(NUM_CODES) for name in names}
            else:
                super().fill_qmap()

        def init_state(self, group: Any, p: Tensor, gindex: int, pindex: int) -> None:
            """Make the state of a parameter, all of it tensors of its own."""
            super().init_state(group, p, gindex, pindex)
            state = self.state[p]
            state["step"] = torch.zeros((), dtype=torch.float32, device="cpu")
            for table in TABLES:
                state.pop(table, None)

        def update_step(self, group: Any, p: Tensor, gindex: int, pindex: int) -> None:
            """Step on a parameter, with the count and the tables as they want them."""
            kept = self.state[p]
            with traceable(self):
                count = int(kept["step"].item())
            is_small = "absmax1" not in kept
            tables = (
                {} if is_small else {k: self.name2qmap[v] for k, v in TABLES.items()}
            )
            self.state[p] = {**kept, **tables, "step": count}
            super().update_step(group, p, gindex, pindex)
            kept["step"] += 1
            self.state[p] = kept

    CountableAdamW8bit.__name__ = base.__name__  # in messages and profiles
    return CountableAdamW8bit


NUM_CODES = 256
TABLES = {"qmap1": "dynamic", "qmap2": "udynamic"}
