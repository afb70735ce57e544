"""State of placed models in checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
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
from plimsoll_trainer.checkpoint.saved_state import SavedState, StageState
from plimsoll_trainer.checkpoint.saver import Saver
from plimsoll_trainer.engine.boundaries import boundaries_of, settled
from plimsoll_trainer.engine.stage import StageSlice
from plimsoll_trainer.engine.training import Trainer
from plimsoll_trainer.engine.world import join_world
from plimsoll_trainer.errors import UnusableCheckpointError
from plimsoll_trainer.placed.capture import capture
from plimsoll_trainer.placed.checkpoint import PlacedState, check_graph
from plimsoll_trainer.placed.training import PlacedTrainer
from plimsoll_trainer.process.placed_run import PlacedAssignment, PlacedSteps
from plimsoll_trainer.workload import Workload
from tests.support.branching import (
    SAMPLES,
    branching,
    measured_profile,
    on_one_device,
    placed_at_random,
)
from tests.support.builders import DIGEST
from tests.support.placed_plans import assigned
from tests.support.ranks import run_ranks
from tests.support.workloads import a_gpt, with_unused

NAME = "batch norm"


def saved(state: SavedState, root: Path) -> Found:
    """Save the state of all ranks before step 2; the checkpoint."""
    saver = Saver(
        state,
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
    found = saved(PlacedState(first), root)
    through = [float(first.run_step(step).loss) for step in (2, 3)]
    again = trainer(on_one_device(profile, 2))
    PlacedState(again).read(found)
    return through, [float(again.run_step(step).loss) for step in (2, 3)]


def pass_between_engines(root: Path) -> list[list[float]]:
    """Losses of four steps by one engine, and of the last two by the other, both ways.

    The head's place is the first of its tie with the embedding, which is used before,
    and which has parameters that nothing uses. Those were trained once ("with all").
    """
    found = []
    chain = with_unused(a_gpt(depth=1))
    [tie] = chain.ties
    chain = replace(chain, ties=(replace(tie, places=tie.places[::-1]),))
    work = replace(assigned(chain, 1), num_micro_batches=1)
    for one, other in (
        ("pipeline", "placed"),
        ("placed", "pipeline"),
        ("with all", "pipeline"),
    ):
        run, state = engine(one, chain, work)
        losses = [run(0), run(1)]
        checkpoint = saved(state, root / one)
        losses += [run(2), run(3)]
        again, resumed = engine(other, chain, work)
        resumed.read(checkpoint)
        found += [losses[2:], [again(2), again(3)]]
    return found


def engine(
    name: str, chain: Workload, work: PlacedAssignment
) -> tuple[Callable[[int], float], SavedState]:
    """Steps of one process by either engine, and its state."""
    world = join_world(1, 1, torch.device("cpu"))
    if name == "placed":
        steps = PlacedSteps(work, world, lambda _: None)
        return lambda step: float(steps.run_step(step).loss), PlacedState(steps.trainer)
    boundaries = boundaries_of(chain, work.micro_batch)
    if name != "with all":
        chain, boundaries = settled(chain, work.micro_batch)
    trainer = Trainer(
        chain,
        slices=[StageSlice(first_layer=0, end_layer=len(chain.layers))],
        boundaries=boundaries,
        num_micro_batches=1,
        world=world,
    )
    return lambda step: float(trainer.run_step(step).loss), StageState(trainer)


@pytest.mark.slow
def test_each_engine_finds_what_is_tied_in_the_others_checkpoint(
    tmp_path: Path,
) -> None:
    """Both name it by the first place of the tie, wherever it is used first.

    What is saved of an optimizer's state that nobody has any more is passed over.
    """
    [found] = run_ranks(pass_between_engines, 1, tmp_path)
    for losses, resumed in zip(found[::2], found[1::2], strict=True):
        assert resumed == pytest.approx(losses, rel=1e-6)
    folder = next((tmp_path / "placed").glob("step-*"))
    names = set(saved_specs(folder))
    assert {"layers.head.token.weight", "layers.embedding.unused.weight"} <= names
    assert "optimizer.embedding.unused.weight.exp_avg" not in names
    assert names == set(saved_specs(tmp_path / "pipeline" / folder.name))


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
