"""Transparency: many ranks train the same model as one process.

The reference is a plain training loop in one process: no pipelining, no stages, one
optimizer over all parameters, torch's own gradient clipping.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

from plimsoll_planner.records.model_profile import Precision
from plimsoll_trainer.boundaries import boundaries_of
from plimsoll_trainer.random_keys import random_key, seed_device
from plimsoll_trainer.stage import StageSlice, build_layer
from plimsoll_trainer.training import Trainer
from plimsoll_trainer.workload import Tie, Workload
from plimsoll_trainer.world import join_world
from tests.support.ranks import run_ranks
from tests.support.workloads import a_gpt

CPU = torch.device("cpu")
NUM_STEPS = 10


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of plan."""

    cuts: tuple[int, ...]
    replicas: int = 1
    recomputed: frozenset[int] = frozenset()
    micro_batch: int = 2
    global_batch: int = 16
    workload: tuple[tuple[str, Any], ...] = ()
    tolerances: tuple[float, float] = (1e-6, 1e-6)
    """Of losses and norms, and of gradients; relative."""

    @property
    def num_stages(self) -> int:
        """P."""
        return len(self.cuts) - 1

    @property
    def num_ranks(self) -> int:
        """G."""
        return self.num_stages * self.replicas

    def slices(self) -> list[StageSlice]:
        """Return the layers of every stage."""
        return [
            StageSlice(
                first_layer=first,
                end_layer=end,
                recomputed=frozenset(i for i in self.recomputed if first <= i < end),
            )
            for first, end in zip(self.cuts, self.cuts[1:], strict=False)
        ]


def every_name(layers: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield parameters under all of their names, where several layers hold one."""
    return layers.named_parameters(remove_duplicate=False)


Trace = tuple[list[float], list[float], dict[str, Tensor]]
"""Losses, gradient norms, and the gradients of the last step by parameter."""


def train_ranks(kind: Kind) -> Trace:
    """Run as one rank of the plan."""
    workload = a_gpt(**dict(kind.workload))
    count = kind.global_batch // kind.replicas // kind.micro_batch
    world = join_world(kind.num_stages, kind.replicas, CPU)
    trainer = Trainer(
        workload,
        slices=kind.slices(),
        boundaries=boundaries_of(workload, kind.micro_batch),
        num_micro_batches=count,
        world=world,
    )
    results = [trainer.run_step(step) for step in range(NUM_STEPS)]
    trainer.run_micro_batches(NUM_STEPS)
    trainer.reduce_gradients()
    gradients = {
        name: parameter.grad.clone()
        for name, parameter in every_name(trainer.stage.layers)
        if parameter.grad is not None
    }
    norms = [float(r.gradient_norm) for r in results if r.gradient_norm is not None]
    return [float(result.loss) for result in results], norms, gradients


def share(workload: Workload, layers: nn.ModuleDict) -> None:
    """Let layers hold one parameter where they are tied."""
    for tie in workload.ties:
        (first, name), *others = tie.places
        shared = layers[str(workload.index_of(first))].get_parameter(name)
        for layer, path in others:
            owner, _, attribute = path.rpartition(".")
            module = layers[str(workload.index_of(layer))].get_submodule(owner)
            setattr(module, attribute, shared)


def train_alone(kind: Kind) -> Trace:
    """Train the same model in a plain loop."""
    workload = a_gpt(**dict(kind.workload))
    layers = nn.ModuleDict(
        {str(i): build_layer(workload, i, CPU) for i in range(len(workload.layers))}
    )
    share(workload, layers)
    parameters = list(layers.parameters())
    masters = [nn.Parameter(p.detach().float().clone()) for p in parameters]
    optimizer = workload.optimizer(masters)
    losses, norms = [], []
    for step in range(NUM_STEPS + 1):
        count = kind.global_batch // kind.micro_batch
        layers.zero_grad()
        total = 0.0
        for place in range(count):
            first = place * kind.micro_batch
            x, y = workload.batch(step, first, kind.micro_batch)
            for index in range(len(workload.layers)):
                seed_device(CPU, random_key(workload.seed, step, first, index))
                x = layers[str(index)](x)
            loss = workload.loss(x, y)
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        for parameter, master in zip(parameters, masters, strict=True):
            assert parameter.grad is not None
            parameter.grad /= count
            master.grad = parameter.grad.float()
        if step < NUM_STEPS:
            limit = workload.max_gradient_norm
            if limit is not None:
                norms.append(nn.utils.clip_grad_norm_(masters, limit).item())
            optimizer.step()
            losses.append(total / count)
            with torch.no_grad():
                for parameter, master in zip(parameters, masters, strict=True):
                    parameter.copy_(master)
    return losses, norms, {n: p.grad for n, p in every_name(layers)}  # type: ignore[misc]


EMBEDDING = Tie(places=(("embedding", "token.weight"), ("head", "token.weight")))
LAST_NORMS = Tie(places=(("block.1", "norm_1.weight"), ("head", "norm.weight")))
QKVS = Tie(places=tuple((f"block.{i}", "qkv.weight") for i in (2, 0, 1)))
OUTS = Tie(places=(("block.0", "out.weight"), ("block.1", "out.weight")))
BF16 = (1e-3, 0.03)
"""One rounding to 8 bits is up to 0.4 %, and clipping rounds a gradient once more."""
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
    "untied": Kind(cuts=(0, 2, 5), workload=(("tied", False),)),
    "unclipped": Kind(
        cuts=(0, 2, 5), replicas=2, workload=(("max_gradient_norm", None),)
    ),
    "bf16": Kind(
        cuts=(0, 2, 5), tolerances=BF16, workload=(("precision", Precision.BF16),)
    ),
    "bf16 replicas": Kind(
        cuts=(0, 3, 5),
        replicas=2,
        tolerances=BF16,
        workload=(("precision", Precision.BF16), ("ties", (EMBEDDING, QKVS))),
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
PARAMS = [
    *(pytest.param(kind, id=name) for name, kind in KINDS.items()),
    *(
        pytest.param(kind, id=name, marks=pytest.mark.slow)
        for name, kind in LARGE_KINDS.items()
    ),
]


def relative(left: Tensor, right: Tensor) -> float:
    """Return the distance over the size."""
    return float((left - right).norm() / right.norm().clamp_min(1e-12))


@pytest.mark.parametrize("kind", PARAMS)
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
