"""Transparency: many ranks train the same model as one process.

The reference is a plain training loop in one process: no pipelining, no stages, one
optimizer over all parameters, torch's own gradient clipping.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from plimsoll_planner.records.engine import Sharding
from plimsoll_planner.records.model_profile import Precision
from plimsoll_trainer.engine.boundaries import boundaries_of
from plimsoll_trainer.engine.built_layer import build_layer
from plimsoll_trainer.engine.flat_buffers import take_memory
from plimsoll_trainer.engine.gradients import gradient_of
from plimsoll_trainer.engine.layer_runs import loss_alone
from plimsoll_trainer.engine.split_tensors import here
from plimsoll_trainer.engine.stage import StageSlice
from plimsoll_trainer.engine.training import Trainer
from plimsoll_trainer.engine.world import join_world
from plimsoll_trainer.random_keys import random_key, seed_device
from plimsoll_trainer.workload import LossScaling, Tie, TokenLoss, Workload
from tests.support.cases import all_but
from tests.support.ranks import run_ranks
from tests.support.workloads import (
    a_gpt,
    a_trained_gpt,
    a_turning,
    some_tokens,
    sum_of_tokens,
)

CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of plan."""

    cuts: tuple[int, ...]
    replicas: int = 1
    parts: int = 1
    """Ranks that share each layer."""
    sequence: bool = False
    """Whether they split sequences as well."""
    recomputed: frozenset[int] = frozenset()
    offloaded: frozenset[int] = frozenset()
    divided: frozenset[int] = frozenset()
    """Stages whose replicas divide state."""
    level: Sharding = Sharding.OPTIMIZER
    """Up to which level they divide it."""
    caps: tuple[int | None, ...] = ()
    """Micro-batches in flight on every stage."""
    micro_batch: int = 2
    global_batch: int = 16
    num_steps: int = 4
    make: Callable[..., Workload] = a_gpt
    workload: tuple[tuple[str, Any], ...] = ()
    """Its fields."""
    tolerances: tuple[float, float] = (1e-6, 1e-6)
    """Of losses and norms, and of gradients; relative."""

    @property
    def num_stages(self) -> int:
        """P."""
        return len(self.cuts) - 1

    @property
    def num_ranks(self) -> int:
        """G."""
        return self.num_stages * self.replicas * self.parts

    def slices(self) -> list[StageSlice]:
        """Layers of every stage."""
        return [
            StageSlice(
                first_layer=first,
                end_layer=end,
                recomputed=frozenset(i for i in self.recomputed if first <= i < end),
                offloaded=frozenset(i for i in self.offloaded if first <= i < end),
                sharding=self.level if s in self.divided else Sharding.NONE,
                sequence_parallel=self.sequence,
                in_flight_cap=self.caps[s] if self.caps else None,
            )
            for s, (first, end) in enumerate(pairwise(self.cuts))
        ]


def every_name(layers: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield parameters under all of their names, where several layers hold one."""
    return layers.named_parameters(remove_duplicate=False)


Trace = tuple[list[float], list[float], dict[str, Tensor]]
"""Losses, gradient norms, and the gradients of the last step by parameter."""


def train_ranks(kind: Kind) -> Trace:
    """Run as one rank of the plan."""
    workload = kind.make(**dict(kind.workload))
    count = kind.global_batch // kind.replicas // kind.micro_batch
    world = join_world(kind.num_stages, kind.replicas, CPU, num_parts=kind.parts)
    trainer = Trainer(
        workload,
        slices=kind.slices(),
        boundaries=boundaries_of(workload, kind.micro_batch),
        num_micro_batches=count,
        world=world,
    )
    results = [trainer.run_step(step) for step in range(kind.num_steps)]
    trainer.reduce_gradients(trainer.run_micro_batches(kind.num_steps))
    make_whole(trainer)
    gradients = {
        name: whole_gradient(parameter, gradient)
        for name, parameter in every_name(trainer.stage.layers)
        if (gradient := gradient_of(here(parameter))) is not None
    }
    norms = [float(r.gradient_norm) for r in results if r.gradient_norm is not None]
    losses = [float(result.loss) for result in results]
    return losses, list(map(finite, norms)), gradients


def finite(norm: float) -> float:
    """A norm; what overflows is one or the other, by the order of sums."""
    return norm if math.isfinite(norm) else math.inf


def whole_gradient(parameter: Tensor, gradient: Tensor) -> Tensor:
    """A gradient as the whole model has it; all ranks of a tensor group call this."""
    if not isinstance(parameter, DTensor):
        return gradient.clone()
    placed = parameter.device_mesh, parameter.placements
    whole = DTensor.from_local(
        gradient, *placed, shape=parameter.shape, stride=parameter.stride()
    )
    return whole.full_tensor()


def make_whole(trainer: Trainer) -> None:
    """Bring the gradients that each replica owns together on all of them."""
    for layer in trainer.trained.values():
        for buffer in layer.buffers:
            if layer.is_divided:
                own = torch.zeros_like(buffer.gradients)
                own[buffer.own] = buffer.own_gradients
                dist.all_reduce(own, group=trainer.world.data_group)
                take_memory(buffer.gradients)
                buffer.gradients.copy_(own)


def share(workload: Workload, layers: nn.ModuleDict) -> None:
    """Let layers hold one parameter where they are tied."""
    for tie in workload.ties:
        (first, name), *others = tie.places
        shared = layers[str(workload.index_of(first))].get_parameter(name)
        for layer, path in others:
            owner, _, attribute = path.rpartition(".")
            module = layers[str(workload.index_of(layer))].get_submodule(owner)
            setattr(module, attribute, shared)


class Alone:
    """Masters and optimizer of the plain loop, with torch's own scaler and clipping."""

    def __init__(self, workload: Workload, trained: list[nn.Parameter]) -> None:
        """Make them."""
        self.trained = self.masters = trained
        if workload.precision.has_masters:
            self.masters = [nn.Parameter(p.detach().float().clone()) for p in trained]
        self.optimizer = workload.optimizer(self.masters)
        self.limit = workload.max_gradient_norm
        if workload.precision.is_scaled and self.limit is None:
            self.limit = math.inf  # the norm is taken all the same
        rules = workload.loss_scaling
        self.scaler = torch.amp.GradScaler(
            "cpu",
            init_scale=rules.first,
            growth_factor=rules.growth,
            backoff_factor=rules.backoff,
            growth_interval=rules.steps_to_growth,
            enabled=workload.precision.is_scaled,
        )

    def set_gradients(self, gradients: list[Tensor]) -> None:
        """Let masters have gradients, in their type."""
        for master, gradient in zip(self.masters, gradients, strict=True):
            master.grad = gradient.to(master.dtype)

    def step(self, sums: list[Tensor]) -> float | None:
        """Step on means that are unscaled already; return their norm."""
        norm = None
        gradients = [summed.float() for summed in sums]
        if self.limit is not None:
            holders = [nn.Parameter(torch.empty_like(g)) for g in gradients]
            for holder, gradient in zip(holders, gradients, strict=True):
                holder.grad = gradient
            norm = finite(nn.utils.clip_grad_norm_(holders, self.limit).item())
        self.set_gradients(gradients)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        with torch.no_grad():
            for parameter, master in zip(self.trained, self.masters, strict=True):
                parameter.copy_(master)
        for master in self.masters:
            master.grad = None
        return norm


def train_alone(kind: Kind) -> Trace:
    """Train the same model in a plain loop."""
    workload = kind.make(**dict(kind.workload))
    layers = nn.ModuleDict(
        {str(i): build_layer(workload, i, CPU) for i in range(len(workload.layers))}
    )
    share(workload, layers)
    trained = [p for p in layers.parameters() if p.requires_grad]
    alone = Alone(workload, trained)
    losses, norms, sums = [], [], list[Tensor]()
    for step in range(kind.num_steps + 1):
        count = kind.global_batch // kind.micro_batch
        sums = [torch.zeros_like(p, dtype=workload.gradient_dtype) for p in trained]
        total = counted = 0.0
        for place in range(count):
            first = place * kind.micro_batch
            x, y = workload.batch(step, first, kind.micro_batch)
            for index in range(len(workload.layers)):
                seed_device(CPU, random_key(workload.seed, step, first, index))
                x = layers[str(index)](x)
            loss, part = loss_alone(workload.loss, x, y)
            counted += float(part)
            alone.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            total += loss.item()
            add_up(trained, sums)
        sums = [summed.div_(counted) for summed in sums]
        alone.set_gradients(sums)
        alone.scaler.unscale_(alone.optimizer)
        if step < kind.num_steps:
            norm = alone.step(sums)
            norms += [] if norm is None else [norm]
            losses.append(total / counted)
    by_parameter = {id(p): summed for p, summed in zip(trained, sums, strict=True)}
    found = ((name, by_parameter.get(id(p))) for name, p in every_name(layers))
    return losses, norms, {name: summed for name, summed in found if summed is not None}


def add_up(parameters: list[nn.Parameter], sums: list[Tensor]) -> None:
    """Add gradients of a micro-batch to their sums."""
    for parameter, summed in zip(parameters, sums, strict=True):
        assert parameter.grad is not None
        summed.add_(parameter.grad)
        parameter.grad = None


EMBEDDING = Tie(places=(("embedding", "token.weight"), ("head", "token.weight")))
LAST_NORMS = Tie(places=(("block.1", "norm_1.weight"), ("head", "norm.weight")))
QKVS = Tie(places=tuple((f"block.{i}", "qkv.weight") for i in (2, 0, 1)))
OUTS = Tie(places=(("block.0", "out.weight"), ("block.1", "out.weight")))
BF16 = (1e-3, 0.03)
"""One rounding to 8 bits is up to 0.4 %, and clipping rounds a gradient once more."""
FP16_TOLERANCES = (1e-4, 4e-3)
"""One rounding to 11 bits is up to 0.05 %."""
KINDS = {
    "one rank": Kind(cuts=(0, 5)),
    "two stages": Kind(cuts=(0, 2, 5)),
    "uneven stages": Kind(cuts=(0, 1, 4, 5)),
    "a layer a stage": Kind(cuts=(0, 1, 2, 3, 4, 5)),
    "two replicas": Kind(cuts=(0, 5), replicas=2),
    "two stages of two": Kind(cuts=(0, 3, 5), replicas=2),
    "four stages of two": Kind(cuts=(0, 1, 2, 4, 5), replicas=2, global_batch=16),
    "recomputed": Kind(cuts=(0, 2, 5), recomputed=frozenset((1, 2, 3))),
    "recomputed replicas": Kind(
        cuts=(0, 2, 5), replicas=2, recomputed=frozenset((0, 1, 4))
    ),
    "dropout": Kind(
        cuts=(0, 2, 4, 5),
        recomputed=frozenset((1, 3)),
        workload=(("dropout", 0.2),),
    ),
    "as many micro-batches as stages": Kind(
        cuts=(0, 1, 2, 4, 5), micro_batch=4, global_batch=16
    ),
    "a tensor in two layers, one of which shares another over ranks": Kind(
        cuts=(0, 2, 5), workload=(("ties", (EMBEDDING, LAST_NORMS)),)
    ),
    "a tie over three stages, beside two others": Kind(
        cuts=(0, 2, 3, 5), workload=(("ties", (EMBEDDING, QKVS, OUTS)),)
    ),
    "activations and gradients across their memory": Kind(
        cuts=(0, 1, 2, 3, 4, 5), make=a_turning
    ),
    "untied": Kind(cuts=(0, 2, 5), workload=(("tied", False),)),
    "unclipped": Kind(
        cuts=(0, 2, 5), replicas=2, workload=(("max_gradient_norm", None),)
    ),
    "bf16": Kind(
        cuts=(0, 2, 5), tolerances=BF16, workload=(("precision", Precision.BF16),)
    ),
    "bf16, sums too": Kind(
        cuts=(0, 2, 5),
        tolerances=BF16,
        workload=(
            ("precision", Precision.BF16),
            ("gradient_precision", Precision.BF16),
        ),
    ),
    "bf16 replicas": Kind(
        cuts=(0, 3, 5),
        replicas=2,
        tolerances=BF16,
        workload=(("precision", Precision.BF16), ("ties", (EMBEDDING, QKVS))),
    ),
}
SOME_COUNT = (("loss", sum_of_tokens), ("batch", some_tokens))
IN_PIECES = (("loss", TokenLoss(sum_of_tokens, 5)), ("batch", some_tokens))
KINDS |= {
    "last layer and loss in pieces": Kind(
        cuts=(0, 2, 5),
        replicas=2,
        recomputed=frozenset((1, 3, 4)),
        workload=(*IN_PIECES, ("ties", (EMBEDDING, LAST_NORMS))),
    ),
    "in pieces, in bf16": Kind(
        cuts=(0, 5),
        recomputed=frozenset((4,)),
        tolerances=BF16,
        workload=(*IN_PIECES, ("precision", Precision.BF16)),
    ),
}
DIVIDED_KINDS = {
    "divided replicas": Kind(cuts=(0, 5), replicas=2, divided=frozenset((0,))),
    "four divided replicas": Kind(
        cuts=(0, 5), replicas=4, divided=frozenset((0,)), workload=(("dropout", 0.1),)
    ),
    "one divided stage of two, all shared": Kind(
        cuts=(0, 2, 5),
        replicas=2,
        divided=frozenset((1,)),
        caps=(1, 1),
        workload=(("ties", (EMBEDDING, QKVS, LAST_NORMS)),),
    ),
    "divided in bf16": Kind(
        cuts=(0, 3, 5),
        replicas=2,
        divided=frozenset((0, 1)),
        tolerances=BF16,
        workload=(("precision", Precision.BF16), ("ties", (EMBEDDING, QKVS))),
    ),
}
UNTIED = ("tied", False)
GATHERED_KINDS = {
    "divided parameters": Kind(
        cuts=(0, 5),
        replicas=2,
        divided=frozenset((0,)),
        level=Sharding.PARAMETERS,
        recomputed=frozenset((1, 4)),
        workload=(UNTIED, ("dropout", 0.1)),
    ),
    "divided parameters on two stages": Kind(
        cuts=(0, 2, 5),
        replicas=2,
        divided=frozenset((0, 1)),
        level=Sharding.PARAMETERS,
        recomputed=frozenset((0, 2)),
        workload=(("ties", (EMBEDDING,)),),
    ),
    "divided gradients in bf16": Kind(
        cuts=(0, 3, 5),
        replicas=2,
        divided=frozenset((0, 1)),
        level=Sharding.GRADIENTS,
        tolerances=BF16,
        workload=(UNTIED, ("precision", Precision.BF16)),
    ),
    "divided parameters in bf16, four replicas": Kind(
        cuts=(0, 5),
        replicas=4,
        divided=frozenset((0,)),
        level=Sharding.PARAMETERS,
        tolerances=BF16,
        workload=(UNTIED, ("precision", Precision.BF16)),
    ),
}
PURE, AUTOCAST = ("precision", "bf16-pure"), ("precision", "bf16-autocast")
FP16, FP16_AUTOCAST = ("precision", "fp16"), ("precision", "fp16-autocast")
SCALED = (
    "loss_scaling",
    LossScaling(first=2.0**24, backoff=2.0**-3, growth=2.0**6, steps_to_growth=3),
)
"""Overflows at first, is then raised until it does so again."""
IN_FP16: dict[str, Any] = {"tolerances": FP16_TOLERANCES, "num_steps": 10}
"""Enough steps for that, and a last one whose gradients are finite."""
RECIPE_KINDS = {
    "pure bf16": Kind(cuts=(0, 2, 5), tolerances=BF16, workload=(PURE,)),
    "pure bf16, replicas divide sums in bf16": Kind(
        cuts=(0, 5),
        replicas=2,
        divided=frozenset((0,)),
        level=Sharding.PARAMETERS,
        tolerances=BF16,
        workload=(PURE, UNTIED, ("gradient_precision", Precision.BF16)),
    ),
    "autocast": Kind(
        cuts=(0, 2, 5),
        recomputed=frozenset((1, 3)),
        tolerances=BF16,
        workload=(AUTOCAST,),
    ),
    "autocast, divided parameters": Kind(
        cuts=(0, 3, 5),
        replicas=2,
        divided=frozenset((0, 1)),
        level=Sharding.PARAMETERS,
        recomputed=frozenset((2,)),
        tolerances=BF16,
        workload=(AUTOCAST, UNTIED, ("dropout", 0.1)),
    ),
    "fp16": Kind(
        cuts=(0, 2, 5),
        replicas=2,
        recomputed=frozenset((1,)),
        **IN_FP16,
        workload=(FP16, SCALED),
    ),
    "fp16, divided": Kind(
        cuts=(0, 5),
        replicas=2,
        divided=frozenset((0,)),
        level=Sharding.GRADIENTS,
        tolerances=FP16_TOLERANCES,
        num_steps=9,
        workload=(FP16, SCALED, UNTIED, ("max_gradient_norm", None)),
    ),
    "fp16 in autocast": Kind(
        cuts=(0, 3, 5),
        replicas=2,
        **IN_FP16,
        workload=(FP16_AUTOCAST, SCALED),
    ),
    "frozen first layers, three stages": Kind(
        cuts=(0, 1, 2, 5), make=a_trained_gpt, workload=(("stilled", (0, 1)),)
    ),
    "frozen layers among others": Kind(
        cuts=(0, 2, 5),
        replicas=2,
        recomputed=frozenset((0, 2)),
        make=a_trained_gpt,
        workload=(("stilled", (0, 3)), ("frozen", (1,))),
    ),
    "fp16 in pieces": Kind(
        cuts=(0, 5),
        recomputed=frozenset((4,)),
        **IN_FP16,
        workload=(FP16, SCALED, *IN_PIECES),
    ),
}
LARGE_KINDS = {
    "eight stages": Kind(
        cuts=tuple(range(9)),
        recomputed=frozenset((2, 5)),
        workload=(("depth", 6), ("ties", (EMBEDDING, QKVS, LAST_NORMS))),
    ),
    "four stages of two, all shared": Kind(
        cuts=(0, 1, 3, 4, 5),
        replicas=2,
        workload=(("dropout", 0.1), ("ties", (EMBEDDING, QKVS, LAST_NORMS))),
    ),
    "two stages of four": Kind(cuts=(0, 3, 5), replicas=4),
    "eight replicas": Kind(cuts=(0, 5), replicas=8),
    "eight ranks in bf16": Kind(
        cuts=(0, 1, 2, 4, 5),
        replicas=2,
        tolerances=BF16,
        workload=(("precision", Precision.BF16), ("max_gradient_norm", None)),
    ),
}
QUICK_KINDS = ("two stages", "two replicas", "bf16")
"""In the inner loop; each starts its ranks, and all of them take 80 s of CPU."""
EVERY_KIND = KINDS | DIVIDED_KINDS | GATHERED_KINDS | RECIPE_KINDS | LARGE_KINDS


def relative(left: Tensor, right: Tensor) -> float:
    """Distance over the size."""
    return float((left - right).norm() / right.norm().clamp_min(1e-12))


SPREADS = [
    *(Kind(cuts=(0, 5), micro_batch=b, workload=SOME_COUNT) for b in (8, 4, 2, 1)),
    Kind(cuts=(0, 5), replicas=2, micro_batch=4, workload=SOME_COUNT),
    Kind(cuts=(0, 3, 5), replicas=2, micro_batch=1, workload=SOME_COUNT),
]


@cache
def train_at_once() -> Trace:
    """Train where some tokens count, on all samples of a step in one batch."""
    return train_alone(Kind(cuts=(0, 5), micro_batch=16, workload=SOME_COUNT))


@pytest.mark.parametrize("kind", SPREADS, ids=range(len(SPREADS)))
def test_every_token_counts_alike(kind: Kind) -> None:
    """Whichever samples share a micro-batch or a replica, though some have no token.

    Losses, norms and gradients equal those of one batch of all samples.
    """
    losses, norms, gradients = train_at_once()
    for their_losses, their_norms, theirs in run_ranks(
        train_ranks, kind.num_ranks, kind
    ):
        assert their_losses == pytest.approx(losses, rel=1e-5)
        assert their_norms == pytest.approx(norms, rel=1e-5)
        for name, gradient in theirs.items():
            assert relative(gradient, gradients[name]) <= 1e-4, name


@pytest.mark.parametrize("kind", all_but(QUICK_KINDS, EVERY_KIND, pytest.mark.slow))
def test_a_plan_trains_the_same_model(kind: Kind) -> None:
    """Losses, norms and every gradient equal one process.

    To 1e-6 in fp32, and in bf16 to the little that its roundings differ by.
    """
    losses, norms, gradients = train_alone(kind)
    ranks = run_ranks(train_ranks, kind.num_ranks, kind)
    tolerance, gradient_tolerance = kind.tolerances
    seen: set[str] = set()
    for their_losses, their_norms, their_gradients in ranks:
        assert their_losses == pytest.approx(losses, rel=tolerance)
        assert their_norms == pytest.approx(norms, rel=tolerance)
        for name, gradient in their_gradients.items():
            assert relative(gradient, gradients[name]) <= gradient_tolerance, name
        seen.update(their_gradients)
    assert set(gradients) == seen


SHORT = (("dropout", 0.1), ("tied", False), ("width", 16))
CUT_ONLY = [
    [
        Kind(cuts=(0, 5), workload=SHORT),
        Kind(cuts=(0, 1, 3, 5), caps=(2, 1, 1), workload=SHORT),
        Kind(cuts=(0, 2, 3, 5), caps=(1, 1, 1), workload=SHORT),
        Kind(
            cuts=(0, 2, 5),
            offloaded=frozenset((0, 1, 3, 4)),
            recomputed=frozenset((1, 2, 4)),
            workload=SHORT,
        ),
    ],
    [
        Kind(cuts=(0, 5), replicas=2, divided=frozenset((0,)), workload=SHORT),
        Kind(cuts=(0, 2, 5), replicas=2, divided=frozenset((0, 1)), workload=SHORT),
    ],
]


ORDERS = [
    (1, 1, 1, 1),
    *((2, *pair, 1) for pair in ((1, 1), (2, 1), (2, 2))),
    *((3, *pair, 1) for pair in ((2, 1), (2, 2), (3, 2))),
    (4, 3, 2, 1),
]
"""All numbers in flight that four stages may have."""


def train_orders() -> list[Trace]:
    """Run as one rank, with all orders in turn."""
    cuts = (0, 1, 2, 3, 5)
    kinds = [Kind(cuts=cuts, caps=caps, workload=SHORT) for caps in ORDERS]
    return [train_ranks(kind) for kind in kinds]


@pytest.mark.slow
def test_all_numbers_in_flight_run_and_change_no_bit() -> None:
    """None waits for ever, as it does where numbers fall by three: 4, 1, 1, 1."""
    found = [trace[:2] for trace in run_ranks(train_orders, 4)[-1]]
    [whole] = run_ranks(train_ranks, 1, CUT_ONLY[0][0])
    assert found == [whole[:2]] * len(ORDERS)


@pytest.mark.slow
@pytest.mark.parametrize("kinds", CUT_ONLY, ids=["whole", "divided"])
def test_cuts_caps_and_offloading_change_no_bit(kinds: list[Kind]) -> None:
    """Losses and norms alike, clipped, where no tensor has copies to be added up."""
    found = [run_ranks(train_ranks, kind.num_ranks, kind)[-1][:2] for kind in kinds]
    assert found[1:] == found[:1] * (len(kinds) - 1)
