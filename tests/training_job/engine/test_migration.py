"""Layers that move while a model trains: the same bits, memory within the plan."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

from plimsoll_planner.records.engine import OptimizerHome, Sharding
from plimsoll_planner.records.revision import Cuts, Move
from plimsoll_planner.revising.moves import moves_between
from plimsoll_trainer.emulated.device import EmulatedDevice
from plimsoll_trainer.engine.boundaries import boundaries_of
from plimsoll_trainer.engine.migration import grown, rearrange, unmovable
from plimsoll_trainer.engine.stage import StageSlice
from plimsoll_trainer.engine.training import Trainer
from plimsoll_trainer.engine.world import DEFAULT_TIMEOUT, World, join_world
from plimsoll_trainer.optimizers import Adafactor, AdamW8bit, Lion, Muon
from plimsoll_trainer.workload import Layer, LossScaling, Workload
from tests.support.cases import at_night, named
from tests.support.drawing import draws
from tests.support.ranks import run_ranks
from tests.support.split_workloads import a_split_gpt
from tests.support.workloads import a_gpt

Trace = list[tuple[float, float]]
"""Loss and norm of each step."""
NUM_LAYERS, NUM_STEPS = 8, 10
SCALING = LossScaling(first=2.0**21, growth=2.0**6, steps_to_growth=3)
"""Overflows at first, and again once it has been raised."""
CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of training."""

    num_stages: int = 3
    replicas: int = 1
    sharding: Sharding = Sharding.NONE
    home: OptimizerHome = OptimizerHome.DEVICE
    workload: dict[str, Any] = field(default_factory=dict)
    empty: int | None = None
    """Index of a layer that holds no tensor."""
    tensor: int = 1
    splits_sequence: bool = False

    @property
    def num_ranks(self) -> int:
        """G."""
        return self.num_stages * self.replicas * self.tensor


KINDS = {
    "fp32": Kind(),
    "empty": Kind(empty=3),
    "bf16": Kind(workload={"precision": "bf16"}),
    "dropout": Kind(workload={"dropout": 0.1}),
    "replicas": Kind(num_stages=2, replicas=2),
    "zero-1": Kind(num_stages=2, replicas=2, sharding=Sharding.OPTIMIZER),
    "zero-2": Kind(num_stages=2, replicas=2, sharding=Sharding.GRADIENTS),
    "zero-3": Kind(num_stages=2, replicas=2, sharding=Sharding.PARAMETERS),
    "tensor": Kind(num_stages=2, tensor=2),
    "sequences": Kind(num_stages=2, tensor=2, splits_sequence=True),
    "host": Kind(home=OptimizerHome.HOST, workload={"precision": "bf16"}),
    "adafactor": Kind(workload={"optimizer": Adafactor()}),
    "muon, pure": Kind(workload={"optimizer": Muon(), "precision": "bf16-pure"}),
    "lion": Kind(
        num_stages=2,
        replicas=2,
        sharding=Sharding.PARAMETERS,
        workload={"optimizer": Lion()},
    ),
    "8 bits": Kind(workload={"optimizer": AdamW8bit(), "width": 32}),
    "8 bits, host": Kind(
        home=OptimizerHome.HOST, workload={"optimizer": AdamW8bit(), "width": 32}
    ),
    "fp16": Kind(workload={"precision": "fp16", "loss_scaling": SCALING}),
}


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Cuts, and how layers are run."""

    cuts: Cuts
    recomputed: frozenset[int] = frozenset()
    offloaded: frozenset[int] = frozenset()
    caps: tuple[int | None, ...] = ()

    def slices(self, kind: Kind) -> list[StageSlice]:
        """Layers of every stage."""
        return [
            StageSlice(
                first_layer=first,
                end_layer=end,
                recomputed=frozenset(i for i in self.recomputed if first <= i < end),
                offloaded=frozenset(i for i in self.offloaded if first <= i < end),
                sharding=kind.sharding,
                optimizer_home=kind.home,
                sequence_parallel=kind.splits_sequence,
                in_flight_cap=self.caps[stage] if self.caps else None,
            )
            for stage, (first, end) in enumerate(pairwise((*self.cuts, NUM_LAYERS)))
        ]


def a_layout(source: random.Random, num_stages: int) -> Layout:
    """Cuts and ways at random."""
    cuts = (0, *sorted(source.sample(range(1, NUM_LAYERS), num_stages - 1)))
    every = range(NUM_LAYERS)
    other = frozenset(source.sample(every, source.randint(0, 4)))
    is_away = source.random() < 0.5
    caps = tuple(num_stages - stage for stage in range(num_stages))
    if source.random() < 0.5:
        caps = tuple(min(cap, 2) for cap in caps)
    return Layout(
        cuts=cuts,
        recomputed=frozenset() if is_away else other,
        offloaded=other if is_away else frozenset(),
        caps=caps,
    )


def a_history(seed: int, kind: Kind) -> dict[int, Layout]:
    """The layout from some steps on; that of the first step comes first."""
    source = random.Random(seed)  # noqa: S311 - no secret
    steps = [0, *sorted(source.sample(range(NUM_STEPS), 4))]
    return {step: a_layout(source, kind.num_stages) for step in steps}


def train(kind: Kind, histories: list[dict[int, Layout]]) -> list[Trace]:
    """Loss and norm of each step of each history, as one rank."""
    make = a_gpt if kind.tensor == 1 else a_split_gpt
    fields = {"depth": NUM_LAYERS - 2, "width": 16, "tied": False}
    workload = make(**(fields | kind.workload))
    if kind.empty is not None:
        layers = list(workload.layers)
        layers[kind.empty] = Layer(name="scale", factory=nn.GELU, kind="scale")
        workload = replace(workload, layers=tuple(layers))
    degrees = kind.num_stages, kind.replicas
    world = join_world(*degrees, CPU, DEFAULT_TIMEOUT, kind.tensor)
    return [run_history(kind, history, workload, world) for history in histories]


def run_history(
    kind: Kind, history: dict[int, Layout], workload: Workload, world: World
) -> Trace:
    """Loss and norm of each step."""
    layout = history[0]
    trainer = trainer_of(kind, layout, workload, world)
    found = []
    for step in range(NUM_STEPS):
        if step and step in history:
            before, layout = layout, history[step]
            moves = moves_between(before.cuts, layout.cuts, NUM_LAYERS, by_length)
            rearrange(trainer, layout.slices(kind), moves)
        result = trainer.run_step(step)
        assert result.gradient_norm is not None
        norm = -1.0 if result.is_left_out else float(result.gradient_norm)
        found.append((float(result.loss), norm))
    return found


def trainer_of(kind: Kind, layout: Layout, workload: Workload, world: World) -> Trainer:
    """One rank's share of a layout."""
    return Trainer(
        workload,
        slices=layout.slices(kind),
        boundaries=boundaries_of(workload, 2),
        num_micro_batches=4,
        world=world,
    )


def by_length(stage: int, first: int, end: int) -> float:
    """Fullness by layers."""
    del stage
    return end - first


SIMILAR = ("tensor", "zero-2", "lion", "8 bits", "dropout")
"""Kinds whose moves another kind makes as well, or another test."""


@pytest.mark.slow
@pytest.mark.parametrize("name", at_night(SIMILAR, named(KINDS)))
def test_moves_change_no_bit(name: str) -> None:
    """Layers move, are run otherwise and more or fewer are in flight, at random."""
    kind = KINDS[name]
    seeds = range(draws(1))
    histories = [{0: a_history(0, kind)[0]}, *(a_history(s, kind) for s in seeds)]
    for still, *moved in run_ranks(train, kind.num_ranks, kind, histories):
        assert moved == [still] * len(moved), name


@dataclass(frozen=True, kw_only=True)
class Held:
    """Bytes that one rank held."""

    before: int
    """At most in steps before the moves."""
    moving: int
    """At most during moves."""
    after: int
    """At most in steps after them."""
    fresh: int
    """At most in steps of a trainer that began with the later layout."""


def hold(kind: Kind, before: Layout, after: Layout) -> Held:
    """Peaks of one rank whose layers move from one layout to another."""
    workload = a_gpt(depth=NUM_LAYERS - 2, tied=False)
    world = join_world(kind.num_stages, kind.replicas, CPU)
    device = EmulatedDevice()
    start = device.current_bytes
    moves = moves_between(before.cuts, after.cuts, NUM_LAYERS, by_length)

    def peak_of(work: Callable[[], object]) -> int:
        gc.collect()
        device.reset_peak()
        work()
        return device.peak_bytes - start

    def trained(trainer: Trainer) -> int:
        trainer.run_step(0)
        return peak_of(lambda: trainer.run_step(1))

    trainer = trainer_of(kind, before, workload, world)
    found = Held(
        before=trained(trainer),
        moving=peak_of(lambda: rearrange(trainer, after.slices(kind), moves)),
        after=trained(trainer),
        fresh=0,
    )
    trainer = trainer_of(kind, after, workload, world)
    return replace(found, fresh=trained(trainer))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fp32", "zero-1", "zero-3", "host"])
def test_moves_take_no_more_than_the_later_plan(name: str) -> None:
    """Nor than the earlier one, which holds them at first; nothing of them stays."""
    kind = KINDS[name]
    before, after = Layout(cuts=(0, 2, 6)), Layout(cuts=(0, 4, 5))
    if kind.num_stages < len(before.cuts):
        before, after = Layout(cuts=(0, 2)), Layout(cuts=(0, 5))
    for held in run_ranks(hold, kind.num_ranks, kind, before, after):
        assert held.moving <= max(held.before, held.after)
        assert held.after == pytest.approx(held.fresh, abs=1024)


def test_tied_layers_stay() -> None:
    """Their groups would be others; constants that layers share are no reason."""
    slices = Layout(cuts=(0, 4)).slices(Kind(num_stages=2))
    moves = [Move(layer=7, source=1, destination=0)]
    refusal = unmovable(a_gpt(depth=NUM_LAYERS - 2), slices, moves)
    assert refusal == (
        "layer 'head' shares 'token.weight' with other layers, so it stays on its stage"
    )
    assert unmovable(a_gpt(depth=NUM_LAYERS - 2, tied=False), slices, moves) is None


def test_stages_that_hold_state_otherwise_exchange_nothing() -> None:
    """One whose replicas divide it has other tensors."""
    kind = Kind(num_stages=2, sharding=Sharding.OPTIMIZER)
    first, last = Layout(cuts=(0, 4)).slices(kind)
    slices = [replace(first, sharding=Sharding.NONE), last]
    moves = [Move(layer=4, source=1, destination=0)]
    refusal = unmovable(a_gpt(depth=NUM_LAYERS - 2, tied=False), slices, moves)
    assert refusal is not None
    assert "from stage 1 to stage 0, which divides its state otherwise" in refusal


class Growing(nn.Module):
    """Makes a buffer at its first micro-batch."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Leave them as they are."""
        if not hasattr(self, "count"):
            self.register_buffer("count", inputs.new_ones(1))
        return inputs


def refuse() -> tuple[str | None, ...]:
    """Refusals before and after a layer has made a buffer, of it and of another."""
    workload, kind = a_gpt(depth=NUM_LAYERS - 2, tied=False), Kind(num_stages=1)
    growing = Layer(name="growing", factory=Growing, kind="growing")
    layers = (*workload.layers[:3], growing, *workload.layers[4:])
    workload = replace(workload, layers=layers)
    trainer = trainer_of(kind, Layout(cuts=(0,)), workload, join_world(1, 1, CPU))
    its, other = (Move(layer=layer, source=0, destination=1) for layer in (3, 4))
    before = grown(trainer, [its, other])
    trainer.run_step(0)
    return before, grown(trainer, [other]), grown(trainer, [its])


@pytest.mark.slow
def test_a_layer_that_has_made_a_buffer_stays() -> None:
    """Built anew it would not have it."""
    [(before, other, after)] = run_ranks(refuse, 1)
    assert before is None
    assert other is None
    assert after is not None
    assert "layer 'growing' holds other parameters or buffers" in after


def move_another() -> str:
    """Move a layer that the later slices do not have there."""
    kind, workload = Kind(num_stages=2), a_gpt(depth=NUM_LAYERS - 2, tied=False)
    trainer = trainer_of(kind, Layout(cuts=(0, 4)), workload, join_world(2, 1, CPU))
    try:
        moves = [Move(layer=4, source=1, destination=0)]
        rearrange(trainer, Layout(cuts=(0, 3)).slices(kind), moves)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.slow
def test_a_stage_is_one_run_of_layers() -> None:
    """Another order would train another model, without an error."""
    first, last = run_ranks(move_another, 2)
    assert "are not ['0', '1', '2'], or not in order" in first
    assert "are not ['3', '4', '5', '6', '7'], or not in order" in last
