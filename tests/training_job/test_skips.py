"""Transparency of carried values: wherever a chain is cut, it trains the same bits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from plimsoll_planner.records.engine import Sharding
from plimsoll_trainer.engine.boundaries import boundaries_of
from plimsoll_trainer.engine.evaluating import evaluate
from plimsoll_trainer.engine.stage import StageSlice
from plimsoll_trainer.engine.training import Trainer
from plimsoll_trainer.engine.world import World, join_world
from plimsoll_trainer.evaluation import Evaluation
from plimsoll_trainer.workload import Workload
from tests.support.chain_runs import train_alone
from tests.support.ranks import run_ranks
from tests.support.skips import MODELS

CPU = torch.device("cpu")
MICRO_BATCH, NUM_MICRO_BATCHES, NUM_STEPS = 2, 8, 3
Cuts = tuple[int, ...]
Trace = tuple[list[float], list[float], float]
"""Losses, gradient norms and the loss of an evaluation."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A model and how it is spread over ranks."""

    model: str
    cuts: Cuts
    replicas: int = 1
    how: tuple[tuple[str, Any], ...] = ()
    """Fields of all slices."""
    fields: tuple[tuple[str, Any], ...] = ()
    """Fields of the workload."""

    @property
    def num_ranks(self) -> int:
        """Of all stages."""
        return (len(self.cuts) - 1) * self.replicas

    def workload(self) -> Workload:
        """The model, with data to be evaluated on."""
        return MODELS[self.model](**dict(self.fields))

    def slices(self) -> list[StageSlice]:
        """Layers of every stage."""
        how = dict(self.how)
        sets = {"recomputed", "offloaded"} & how.keys()
        return [
            StageSlice(
                first_layer=first,
                end_layer=end,
                **{
                    **how,
                    **{name: how[name] & frozenset(range(first, end)) for name in sets},
                },
            )
            for first, end in pairwise(self.cuts)
        ]


def train(plans: Sequence[Plan]) -> list[Trace]:
    """Run some steps of each plan as one rank; all have as many ranks and replicas."""
    world = join_world(len(plans[0].cuts) - 1, plans[0].replicas, CPU)
    return [train_one(plan, world) for plan in plans]


def train_one(plan: Plan, world: World) -> Trace:
    """Run some steps, and evaluate."""
    workload = plan.workload()
    trainer = Trainer(
        workload,
        slices=plan.slices(),
        boundaries=boundaries_of(workload, MICRO_BATCH),
        num_micro_batches=NUM_MICRO_BATCHES // plan.replicas,
        world=world,
    )
    results = [trainer.run_step(step) for step in range(NUM_STEPS)]
    assert not trainer.stage.num_in_flight
    norms = [float(r.gradient_norm) for r in results if r.gradient_norm is not None]
    evaluation = Evaluation(data=workload.batch, num_samples=5)
    loss, _ = evaluate(trainer, evaluation, NUM_STEPS)
    return [float(result.loss) for result in results], norms, float(loss)


def on_ranks(*plans: Plan) -> list[Trace]:
    """What all ranks agree on, of each plan."""
    first, *others = run_ranks(train, plans[0].num_ranks, plans)
    assert all(traces == first for traces in others)
    found: list[Trace] = first
    return found


def whole(model: str) -> Plan:
    """A model on one rank."""
    return Plan(model=model, cuts=(0, num_layers(model)))


def num_layers(model: str) -> int:
    """Layers of a model."""
    return len(MODELS[model]().layers)


@cache
def wholes() -> dict[str, Trace]:
    """What every model trains on one rank."""
    traces = on_ranks(*map(whole, MODELS))
    return dict(zip(MODELS, traces, strict=True))


def test_one_stage_trains_what_a_plain_loop_does() -> None:
    """Nothing is lost or counted twice on the way."""
    for model, (losses, _, _) in wholes().items():
        sizes = (NUM_STEPS, NUM_MICRO_BATCHES, MICRO_BATCH)
        alone = train_alone(MODELS[model](), *sizes)
        assert losses == pytest.approx(alone, rel=1e-5), model


def test_one_cut_anywhere_trains_the_same_bits() -> None:
    """Losses, norms and the loss of an evaluation."""
    plans = [
        Plan(model=model, cuts=(0, cut, num_layers(model)))
        for model in MODELS
        for cut in range(1, num_layers(model))
    ]
    for plan, trace in zip(plans, on_ranks(*plans), strict=True):
        assert trace == wholes()[plan.model], plan


def test_a_layer_a_stage_trains_the_same_bits() -> None:
    """Values pass through stages that neither give nor take them."""
    by_length: dict[int, list[Plan]] = defaultdict(list)
    for model in MODELS:
        by_length[num_layers(model)].append(
            Plan(model=model, cuts=tuple(range(num_layers(model) + 1)))
        )
    for plans in by_length.values():
        for plan, trace in zip(plans, on_ranks(*plans), strict=True):
            assert trace == wholes()[plan.model], plan


ALL = frozenset(range(8))
WAYS = {
    "recomputed": (("recomputed", ALL),),
    "some recomputed": (("recomputed", frozenset((0, 2, 3))),),
    "offloaded": (("offloaded", ALL),),
    "recomputed from the host": (("recomputed", ALL), ("offloaded", ALL)),
    "capped": (("in_flight_cap", 1),),
}


def test_every_way_to_run_trains_the_same_bits() -> None:
    """Layers that take and give compute twice, or save in the host's memory."""
    plans = [
        Plan(model=model, cuts=(0, 2, num_layers(model)), how=how)
        for model in MODELS
        for how in WAYS.values()
    ]
    for plan, trace in zip(plans, on_ranks(*plans), strict=True):
        assert trace == wholes()[plan.model], plan


@pytest.mark.parametrize("level", Sharding)
def test_replicas_may_divide_what_layers_hold(level: Sharding) -> None:
    """A layer that gives is whole before any of it runs backward."""
    plans = [
        Plan(
            model=model,
            cuts=(0, 2, num_layers(model)),
            replicas=2,
            how=(("sharding", level), ("recomputed", frozenset((1, 3)))),
        )
        for model in MODELS
    ]
    for plan, trace in zip(plans, on_ranks(*plans), strict=True):
        for found, expected in zip(trace, wholes()[plan.model], strict=True):
            assert found == pytest.approx(expected, rel=1e-5), plan
