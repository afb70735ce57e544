"""Small models with branches, and ranks that train them placed.

Each model is a `PlacedWorkload` of few samples; `trained` runs it on every rank of a
group under several placements, and says what came out and what was held.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from plimsoll_planner.graph.arrays import graph_of
from plimsoll_planner.graph.curve import Curve
from plimsoll_planner.graph.place import place
from plimsoll_planner.graph.placed import placed_of, require_exact
from plimsoll_planner.graph.transfers import Placed
from plimsoll_planner.records.graph_profile import GraphProfile
from plimsoll_planner.records.offer import Link
from plimsoll_trainer.devices.device import HostDevice
from plimsoll_trainer.emulated.device import EmulatedDevice, host_memory
from plimsoll_trainer.engine.layer_optimizer import LayerOptimizer, scale, squared_norm
from plimsoll_trainer.engine.training import NORM_OFFSET
from plimsoll_trainer.engine.world import World, join_world
from plimsoll_trainer.placed.capture import capture, capture_evaluation
from plimsoll_trainer.placed.costs import measured
from plimsoll_trainer.placed.evaluating import PlacedEvaluation, mean_loss
from plimsoll_trainer.placed.graph import CapturedGraph
from plimsoll_trainer.placed.profile import profile_of
from plimsoll_trainer.placed.training import PlacedTrainer
from plimsoll_trainer.placed.workload import PlacedWorkload, Tensors
from plimsoll_trainer.workload import AdamW
from tests.support.own_operator import Cubes

SAMPLES, CLASSES, WIDTH = 8, 4, 24
NUM_RANDOM = 3
"""Placements that `run_placed` draws."""
Made = TypeVar("Made")


class Residual(nn.Module):
    """A block of a tower."""

    def __init__(self, width: int, dropout: float = 0.0) -> None:
        """Make its matrices."""
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Add to the input."""
        inner = functional.gelu(self.up(self.norm(x)))
        found: Tensor = x + self.dropout(self.down(inner))
        return found


class Towers(nn.Module):
    """Two towers of different width, and a skip from the first to the head."""

    def __init__(self, dropout: float = 0.0) -> None:
        """Make both."""
        super().__init__()
        self.enter = nn.ModuleList([nn.Linear(8, WIDTH), nn.Linear(8, 16)])
        self.left = nn.ModuleList(Residual(WIDTH, dropout) for _ in range(2))
        self.right = nn.ModuleList(Residual(16, dropout) for _ in range(3))
        self.head = nn.Linear(2 * WIDTH + 16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Classify vectors of 16 numbers."""
        left, right = (f(h) for f, h in zip(self.enter, x.chunk(2, -1), strict=True))
        skip = left
        for block in self.left:
            left = block(left)
        for block in self.right:
            right = block(right)
        found: Tensor = self.head(torch.cat([left, right, skip], -1))
        return found


class UNet(nn.Module):
    """Maps that are halved, doubled, and joined across."""

    def __init__(self) -> None:
        """Make its convolutions."""
        super().__init__()
        self.down = nn.Conv2d(1, 6, 3, padding=1)
        self.middle = nn.Conv2d(6, 12, 3, padding=1)
        self.up = nn.Conv2d(18, 6, 3, padding=1)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Classify maps of 4 x 4."""
        wide = functional.relu(self.down(x.view(-1, 1, 4, 4)))
        deep = functional.relu(self.middle(functional.max_pool2d(wide, 2)))
        up = functional.interpolate(deep, scale_factor=2.0)
        joined = functional.relu(self.up(torch.cat([wide, up], 1)))
        found: Tensor = self.head(joined.mean((2, 3)))
        return found


class Pair(nn.Module):
    """An encoder, and a decoder that looks at it; both share an embedding."""

    def __init__(self) -> None:
        """Make both."""
        super().__init__()
        self.words, self.out = nn.Embedding(16, WIDTH), nn.Linear(WIDTH, 16)
        self.out.weight = self.words.weight
        options: dict[str, Any] = {"dropout": 0.0, "batch_first": True}
        self.encoder = nn.TransformerEncoderLayer(WIDTH, 2, 32, **options)
        self.decoder = nn.TransformerDecoderLayer(WIDTH, 2, 32, **options)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of the classes behind 16 tokens."""
        tokens = (x.abs() * 4).long().clamp(max=15)
        memory = self.encoder(self.words(tokens[:, :8]))
        found: Tensor = self.out(self.decoder(self.words(tokens[:, 8:]), memory))
        return found.mean(1)[:, :CLASSES]


class Mixture(nn.Module):
    """Experts that each take the samples of a fixed share."""

    def __init__(self) -> None:
        """Make the experts; one of them is frozen, and follows another slowly."""
        super().__init__()
        self.enter = nn.Linear(16, WIDTH)
        self.experts = nn.ModuleList(Residual(WIDTH) for _ in range(4))
        self.experts[3].requires_grad_(requires_grad=False)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Classify vectors of 16 numbers."""
        with torch.no_grad():
            pairs = zip(*(one.parameters() for one in self.experts[2:]), strict=True)
            for fast, slow in pairs:
                slow.lerp_(fast, 0.5)
        parts = self.enter(x).split(x.shape[0] // len(self.experts))
        done = [expert(part) for expert, part in zip(self.experts, parts, strict=True)]
        found: Tensor = self.head(torch.cat(done))
        return found


class ResidualMaps(nn.Module):
    """A small residual network with norms over the batch, written in place."""

    def __init__(self) -> None:
        """Make its convolutions."""
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(3))
        self.convs = nn.ModuleList(
            nn.Conv2d(8, 8, 3, padding=1, bias=False) for _ in range(2)
        )
        self.relu, self.head = nn.ReLU(inplace=True), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Classify maps of 4 x 4."""
        h = self.relu(self.norms[0](self.stem(x.view(-1, 1, 4, 4))))
        for conv, norm in zip(self.convs, self.norms[1:], strict=True):
            h = self.relu(h + norm(conv(h)))
        found: Tensor = self.head(h.flatten(2).mean(2))
        return found


class Gaps(nn.Module):
    """Tensors whose storages have fewer or more numbers than they have."""

    def __init__(self) -> None:
        """Expand a buffer, and take a row for a parameter."""
        super().__init__()
        self.register_buffer("scale", torch.full((1,), 0.5).expand(16))
        self.row = nn.Parameter(torch.rand(2, 16)[0])
        self.enter, self.head = nn.Linear(16, 16), nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Classify vectors of 16 numbers."""
        found: Tensor = self.head(self.enter(x) * self.scale * self.row)
        return found


class Turned(nn.Module):
    """Parts of a tensor with columns first, which operators keep, and a copy of one."""

    def __init__(self) -> None:
        """Make its matrices."""
        super().__init__()
        self.enter, self.head = nn.Linear(16, WIDTH), nn.Linear(WIDTH // 2, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Classify vectors of 16 numbers."""
        left, right = (part.t() for part in self.enter(x).chunk(2, -1))
        right = functional.relu(right.clone())  # a copy has rows first again
        found: Tensor = self.head((left.tanh() * right).t())
        return found


class OneChannel(nn.Module):
    """Maps of one channel, channels last: kernels give it strides as they like."""

    def __init__(self) -> None:
        """Make its layers."""
        super().__init__()
        self.enter, self.norm = nn.Linear(16, 32), nn.LayerNorm(4)
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 12).view(3, 4))
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Classify vectors of 16 numbers."""
        maps = self.norm(self.enter(x).view(-1, 8, 4, 1).permute(0, 3, 1, 2))
        wide = maps.unsqueeze(3).expand(-1, 1, 8, 3, 4) * self.scale
        mixed = wide.tanh() * torch.arange(1.0, 25.0).view(8, 3, 1)
        found: Tensor = self.head(mixed.sum((1, 2, 3)))
        return found


class Products(nn.Module):
    """A product of two parts of one tensor, which its operator copies first."""

    def __init__(self) -> None:
        """Make its matrices."""
        super().__init__()
        self.enter, self.head = nn.Linear(16, 128), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Classify vectors of 16 numbers."""
        parts = self.enter(x).view(-1, 8, 16)
        left, right = parts[:, :, ::2], parts[:, :, 1::2]
        found: Tensor = self.head(torch.bmm(left, right).tanh().mean(1))
        return found


class Masks(nn.Module):
    """Operators that take the more memory the more numbers are chosen."""

    def __init__(self) -> None:
        """Make a table and two matrices."""
        super().__init__()
        self.table = nn.EmbeddingBag(16, 16, mode="max")
        self.enter, self.head = nn.Linear(16, 16), nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Classify vectors of 16 numbers, of which some are the first one's."""
        h = self.enter(x) + self.table((x.abs() * 4).long().clamp(max=15))
        h[x[:, 0] > 0] = x[0]
        found: Tensor = self.head(h)
        return found


MODELS: dict[str, Callable[[], nn.Module]] = {
    "towers": Towers,
    "u-net": UNet,
    "pair": Pair,
    "mixture": Mixture,
    "batch norm": ResidualMaps,
    "dropout": partial(Towers, 0.2),
    "gaps": Gaps,
    "turned": Turned,
    "one channel": OneChannel,
    "products": Products,
    "own operator": partial(Cubes, 16, CLASSES),
    "masks": Masks,
}


def samples(step: int, first: int, count: int) -> Tensors:
    """Vectors of 16 numbers, and their classes."""
    found = []
    for index in range(first, first + count):
        generator = torch.Generator().manual_seed(1000 * step + index)
        found.append(torch.randn(16, generator=generator))
    x = torch.stack(found)
    return x, (x[:, 0] > 0).long() + 2 * (x[:, 1] > 0).long()


def slices(step: int, first: int, count: int) -> Tensors:
    """The same without the first of them, and targets that are one number expanded."""
    x, _ = samples(step, first, count + 1)
    return x[1:], x[1:, :1].sigmoid().expand(-1, CLASSES)


def others(step: int, first: int, count: int) -> Tensors:
    """Samples that no step trains on."""
    return samples(step + 100, first, count)


def loss_of(model: nn.Module, tensors: Tensors) -> Tensor:
    """Mean loss of a micro-batch."""
    return functional.cross_entropy(model(tensors[0]), tensors[1])


def branching(name: str = "towers", **fields: Any) -> PlacedWorkload:
    """A workload of one of the models."""
    defaults: dict[str, Any] = {
        "model": MODELS[name],
        "loss": loss_of,
        "batch": slices if name == "gaps" else samples,
        "optimizer": AdamW(learning_rate=1e-2),
    }
    return PlacedWorkload(**(defaults | fields))


def placed_at_random(profile: GraphProfile, num_devices: int, seed: int) -> Placed:
    """A placement that nobody would choose: random devices, order and window."""
    rng = random.Random(seed)  # noqa: S311 - the same placement every time
    graph = graph_of(profile)
    groups = np.array([rng.randrange(num_devices) for _ in range(graph.num_groups)])
    missing = np.diff(graph.before.first).tolist()
    after = graph.after.lists()
    ready = [node for node, count in enumerate(missing) if not count]
    place = np.zeros(graph.num_nodes, dtype=np.int64)
    for position in range(graph.num_nodes):
        node = ready.pop(rng.randrange(len(ready)))
        place[node] = position
        for target in after[node]:
            missing[target] -= 1
            if not missing[target]:
                ready.append(target)
    return Placed(
        graph=graph,
        device=groups[graph.group],
        place=place,
        num_devices=num_devices,
        window=rng.choice([1, 3, 20]),
    )


def placed_by_planner(profile: GraphProfile, num_devices: int) -> Placed:
    """As the planner places it, on devices that are smaller than what it needs."""
    mean = int(Curve(on_one_device(profile, 1)).peak[0]) // num_devices
    link = Link(bandwidth_bytes_per_s=1e9)
    plan = place(profile, num_devices, capacity_bytes=mean, link=link)
    require_exact(plan, profile)
    return placed_of(plan, profile)


def on_one_device(profile: GraphProfile, num_devices: int) -> Placed:
    """All nodes on the first device, in the order in which they were captured."""
    graph = graph_of(profile)
    return Placed(
        graph=graph,
        device=np.zeros(graph.num_nodes, dtype=np.int64),
        place=np.arange(graph.num_nodes),
        num_devices=num_devices,
        window=1,
    )


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a rank found under one placement."""

    losses: list[float]
    norms: list[float]
    peaks: list[int]
    """Of each step."""
    predicted: int
    evaluated: float | None
    """Loss on other samples, after the last step; None if nobody asks."""


def measured_profile(
    workload: PlacedWorkload,
) -> tuple[CapturedGraph, GraphProfile]:
    """Graph and profile of a workload, which rank 0 makes for all."""
    graph = from_first(partial(capture, workload, SAMPLES))

    def profile() -> GraphProfile:
        return profile_of(graph, measured(graph, workload, HostDevice()))

    return graph, from_first(profile)


def from_first(make: Callable[[], Made]) -> Made:
    """What rank 0 makes, on all ranks."""
    found: list[Any] = [make() if dist.get_rank() == 0 else None]
    with host_memory():
        dist.broadcast_object_list(found)
    made: Made = found[0]
    return made


def run_placed(
    workload: PlacedWorkload, num_steps: int, *, evaluates: bool = False
) -> list[Run]:
    """Steps on one device, as the planner places, and at random; on every rank."""
    world = join_world(dist.get_world_size(), 1, torch.device("cpu"))
    graph, profile = measured_profile(workload)
    num = world.num_stages
    placements = [
        on_one_device(profile, num),
        placed_by_planner(profile, num),
        *(placed_at_random(profile, num, seed) for seed in range(NUM_RANDOM)),
    ]
    evaluation: CapturedGraph | None = None
    if evaluates:
        evaluation = from_first(partial(capture_evaluation, workload, SAMPLES))
    return [
        steps_of(workload, graph, profile, placed, world, num_steps, evaluation)
        for placed in placements
    ]


def steps_of(
    workload: PlacedWorkload,
    graph: CapturedGraph,
    profile: GraphProfile,
    placed: Placed,
    world: World,
    num_steps: int,
    evaluation: CapturedGraph | None = None,
) -> Run:
    """Steps of this rank under a placement, and then the loss on other samples."""
    gc.collect()
    device = EmulatedDevice()
    device.leave_out()
    trainer = PlacedTrainer(
        workload,
        graph,
        profile=profile,
        placed=placed,
        world=world,
        micro_batch=SAMPLES,
    )
    results, peaks = [], []
    for step in range(num_steps):
        device.reset_peak()
        results.append(trainer.run_step(step))
        peaks.append(device.peak_bytes)
    evaluated: float | None = None
    if evaluation is not None:
        evaluated = loss_of_others(trainer, evaluation, SAMPLES)
    return Run(
        losses=[float(one.loss) for one in results],
        norms=[float(one.gradient_norm) for one in results],
        peaks=peaks,
        predicted=int(Curve(placed).peak[world.stage]),
        evaluated=evaluated,
    )


def loss_of_others(
    trainer: PlacedTrainer, evaluation: CapturedGraph, num_samples: int
) -> float:
    """Loss on other samples, which whole micro-batches take."""
    passes = {trainer.micro_batch: PlacedEvaluation(trainer, evaluation, SAMPLES)}
    return mean_loss(trainer, passes, others, num_samples)


def run_eagerly(workload: PlacedWorkload, num_steps: int) -> Run:
    """The same in one process, by torch's autograd alone."""
    model = workload.built().train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizers = [LayerOptimizer([p], workload.optimizer) for p in trained]
    losses, norms = [], []
    for step in range(num_steps):
        loss = loss_of(model, workload.batch(step, 0, SAMPLES))
        loss.backward()  # type: ignore[no-untyped-call]
        gradients = [p.grad for p in trained if p.grad is not None]
        squares = [squared_norm([one], torch.device("cpu")) for one in gradients]
        norm = float(torch.stack(squares).double().sum().sqrt())
        if workload.max_gradient_norm is not None and norm > workload.max_gradient_norm:
            scale(gradients, workload.max_gradient_norm / (norm + NORM_OFFSET))
        for optimizer in optimizers:
            optimizer.step(1.0)
        losses.append(loss.item())
        norms.append(norm)
    with torch.no_grad():
        evaluated = loss_of(model.eval(), others(0, 0, SAMPLES)).item()
    return Run(losses=losses, norms=norms, peaks=[], predicted=0, evaluated=evaluated)
