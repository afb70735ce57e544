"""Checkpoints of a placed model, which any other placement of it reads.

Tensors have the names of `checkpoint.state`, with the model's own in the place of layer
and tensor. So a model that is made from a chain of layers (`workload.of_chain`) has the
same names under both engines. Training waits while it is saved; replica 0 saves.

In: a `PlacedTrainer` between two steps, a folder. All ranks call these together.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from plimsoll_planner.records.document import save as save_document
from plimsoll_trainer.checkpoint.flat_range import Box, FlatRange
from plimsoll_trainer.checkpoint.folders import Folders
from plimsoll_trainer.checkpoint.loader import (
    Found,
    other_model,
    read_boxes,
    saved_specs,
)
from plimsoll_trainer.checkpoint.manifest import (
    FILE,
    Identity,
    Manifest,
    check_identity,
    describe_file,
    digest_of_tensors,
    read_manifest,
)
from plimsoll_trainer.checkpoint.saver import Written, write_boxes, write_metadata
from plimsoll_trainer.checkpoint.state import LAYERS, MASTERS, OPTIMIZER, state_of
from plimsoll_trainer.emulated.device import host_memory
from plimsoll_trainer.engine.tensor_specs import TensorSpec
from plimsoll_trainer.placed.states import OwnedState
from plimsoll_trainer.placed.training import PlacedTrainer


def save(trainer: PlacedTrainer, folders: Folders, step: int) -> Path:
    """Save the state before a step; return the folder, which appears whole."""
    partial = folders.partial(step)
    saves = trainer.world.replica == 0
    boxes = list(own_boxes(trainer)) if saves else []
    with host_memory():
        written = write_boxes(partial, boxes, dist.get_rank())
        parts: list[Written] = [written] * dist.get_world_size()
        dist.all_gather_object(parts, written)
        if dist.get_rank() == 0:
            commit(trainer, folders, step, parts)
        dist.barrier()
    return folders.committed(step)


def commit(
    trainer: PlacedTrainer, folders: Folders, step: int, parts: list[Written]
) -> None:
    """Finish what all ranks have written; on rank 0."""
    partial = folders.partial(step)
    write_metadata(partial, parts)
    files = [describe_file(partial / ".metadata")]
    files += [file for part in parts for file in part.files]
    manifest = Manifest(
        step=step,
        attempt=folders.attempt,
        plan_digest=trainer.profile.graph_digest,
        torch_version=str(torch.__version__),
        identity=identity_of(trainer),
        files=tuple(files),
    )
    save_document(partial / FILE, manifest)
    folders.commit(step)


def load(trainer: PlacedTrainer, folder: Path) -> int:
    """Read this rank's tensors in place; the step to go on with.

    Raises:
        UnusableCheckpointError: it is broken, or of another model or other data.
        CheckpointError: it cannot be read.
    """
    found = Found(folder=folder, manifest=read_manifest(folder))
    with host_memory():
        here = identity_of(trainer)
    check_identity(found.manifest.identity, here, folder)
    saved = saved_specs(folder)
    if any(name.startswith(f"{OPTIMIZER}.") for name in saved):
        make_optimizer_states(trainer)
    boxes = list(own_boxes(trainer))
    for box in boxes:
        spec = TensorSpec(box.whole, box.tensor.dtype)
        if saved.get(box.name) != spec:
            there = saved.get(box.name, "missing")
            raise other_model(folder, f"{box.name} is {there} in it, but {spec} here")
    read_boxes(found, boxes)
    return found.manifest.step


def make_optimizer_states(trainer: PlacedTrainer) -> None:
    """Let optimizers make their state: a step at rate 0 on gradients that are 0."""
    for state in trainer.states:
        if state.optimizer is not None:
            state.optimizer.step(0.0)


def identity_of(trainer: PlacedTrainer) -> Identity:
    """What the numbers of a training depend on besides the model."""
    num_samples = trainer.micro_batch * trainer.num_micro_batches
    return Identity(
        seed=str(trainer.workload.seed),
        global_batch_size=num_samples * trainer.world.num_replicas,
        data_digest=digest_of_tensors(trainer.workload.batch(0, 0, 1)),
    )


def own_boxes(trainer: PlacedTrainer) -> Iterator[Box]:
    """Yield the tensors of this rank by name; they are the live ones."""
    for state in trainer.states:
        for name, tensor in named_tensors(state):
            yield from FlatRange(tensor=tensor, like=tensor).boxes(name)


def named_tensors(state: OwnedState) -> Iterator[tuple[str, Tensor]]:
    """Yield a state, its master and what its optimizer keeps, by name."""
    if state.is_saved:
        yield f"{LAYERS}.{state.name}", state.tensor.detach()
    if state.optimizer is None:
        return
    [master], [parameter] = state.optimizer.masters, state.optimizer.parameters
    if master is not parameter:
        yield f"{MASTERS}.{state.name}", master.detach()
    for key, value in state_of(state.optimizer.optimizer, master):
        yield f"{OPTIMIZER}.{state.name}.{key}", value
