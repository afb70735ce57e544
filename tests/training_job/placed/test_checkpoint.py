"""Checkpoints of placed models."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from plimsoll_planner.graph.transfers import Placed
from plimsoll_trainer.checkpoint.folders import Folders
from plimsoll_trainer.checkpoint.loader import saved_specs
from plimsoll_trainer.engine.world import join_world
from plimsoll_trainer.errors import UnusableCheckpointError
from plimsoll_trainer.placed.checkpoint import load, save
from plimsoll_trainer.placed.training import PlacedStep, PlacedTrainer
from plimsoll_trainer.placed.workload import PlacedWorkload
from tests.support.branching import (
    SAMPLES,
    branching,
    measured_profile,
    on_one_device,
    placed_at_random,
)
from tests.support.ranks import run_ranks


def save_and_load(root: Path) -> tuple[list[PlacedStep], list[PlacedStep], str]:
    """Two steps, a save, two steps; then those two again from the checkpoint."""
    workload = branching("batch norm")
    graph, profile = measured_profile(workload)
    world = join_world(2, 1, torch.device("cpu"))

    def trainer(placed: Placed, given: PlacedWorkload = workload) -> PlacedTrainer:
        return PlacedTrainer(
            given,
            graph,
            profile=profile,
            placed=placed,
            world=world,
            micro_batch=SAMPLES,
        )

    first = trainer(placed_at_random(profile, 2, 0))
    for step in range(2):
        first.run_step(step)
    folder = save(first, Folders(root, attempt=1), 2)
    through = [first.run_step(step) for step in (2, 3)]
    again = trainer(on_one_device(profile, 2))
    assert load(again, folder) == 2
    resumed = [again.run_step(step) for step in (2, 3)]
    with pytest.raises(UnusableCheckpointError) as raised:
        load(
            trainer(placed_at_random(profile, 2, 1), branching("batch norm", seed=1)),
            folder,
        )
    return through, resumed, str(raised.value)


@pytest.mark.slow
def test_another_placement_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    """It has the bits that training without a break has, statistics of norms included.

    Tensors have the model's own names; a checkpoint of another seed is refused.
    """
    for through, resumed, refusal in run_ranks(save_and_load, 2, tmp_path):
        assert resumed == through
        assert "was trained with seed 0, but here it is 1" in refusal
    names = set(saved_specs(next(tmp_path.iterdir())))
    model: nn.Module = branching("batch norm").built()
    assert {f"layers.{name}" for name in model.state_dict()} <= names
    assert "optimizer.convs.0.weight.exp_avg" in names
