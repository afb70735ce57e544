"""State of placed models in checkpoints."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist
from torch import nn

from plimsoll_planner.graph.transfers import Placed
from plimsoll_trainer.checkpoint.folders import Folders
from plimsoll_trainer.checkpoint.loader import Found, saved_specs
from plimsoll_trainer.checkpoint.manifest import Identity, read_manifest
from plimsoll_trainer.checkpoint.saver import Saver
from plimsoll_trainer.engine.world import join_world
from plimsoll_trainer.errors import UnusableCheckpointError
from plimsoll_trainer.placed.capture import capture
from plimsoll_trainer.placed.checkpoint import PlacedState, check_graph
from plimsoll_trainer.placed.training import PlacedTrainer
from tests.support.branching import (
    SAMPLES,
    branching,
    measured_profile,
    on_one_device,
    placed_at_random,
)
from tests.support.builders import DIGEST
from tests.support.ranks import run_ranks

NAME = "batch norm"


def saved(trainer: PlacedTrainer, root: Path) -> Found:
    """Save the state of all ranks before step 2; the checkpoint."""
    saver = Saver(
        PlacedState(trainer),
        folders := Folders(root, attempt=1),
        rank=dist.get_rank(),
        num_ranks=dist.get_world_size(),
        identity=Identity(seed="0", global_batch_size=SAMPLES, data_digest=DIGEST),
        plan_digest=DIGEST,
        keep=1,
    )
    folders.open()
    dist.barrier()
    saver.start(2)
    while saver.is_busy:
        time.sleep(0.001)
    dist.barrier()
    folder = folders.committed(2)
    return Found(folder=folder, manifest=read_manifest(folder))


def save_and_read(root: Path) -> tuple[list[float], list[float]]:
    """Two steps, a save, two steps; then those two again from the checkpoint."""
    workload = branching(NAME)
    graph, profile = measured_profile(workload)
    world = join_world(2, 1, torch.device("cpu"))

    def trainer(placed: Placed) -> PlacedTrainer:
        return PlacedTrainer(
            workload,
            graph,
            profile=profile,
            placed=placed,
            world=world,
            micro_batch=SAMPLES,
        )

    first = trainer(placed_at_random(profile, 2, 0))
    for step in range(2):
        first.run_step(step)
    found = saved(first, root)
    through = [float(first.run_step(step).loss) for step in (2, 3)]
    again = trainer(on_one_device(profile, 2))
    PlacedState(again).read(found)
    return through, [float(again.run_step(step).loss) for step in (2, 3)]


@pytest.mark.slow
def test_another_placement_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    """It has the bits that training without a break has, statistics of norms included.

    Tensors have the model's own names; another model is refused by its graph.
    """
    for through, resumed in run_ranks(save_and_read, 2, tmp_path):
        assert resumed == through
    folder = next(tmp_path.glob("step-*"))
    names = set(saved_specs(folder))
    model: nn.Module = branching(NAME).built()
    assert {f"layers.{name}" for name in model.state_dict()} <= names
    assert "optimizer.convs.0.weight.exp_avg" in names
    found = Found(folder=folder, manifest=read_manifest(folder))
    check_graph(capture(branching(NAME), SAMPLES), found)
    with pytest.raises(UnusableCheckpointError, match="it holds layers"):
        check_graph(capture(branching("towers"), SAMPLES), found)
