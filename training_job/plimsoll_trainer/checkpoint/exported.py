"""Trained weights out of a checkpoint, in the model's own format, without a trainer.

    step-00000020/ -> layer by layer into the host's memory -> `Workload.export`

A folder appears whole or not at all. Called by rank 0 at the end of a run, and by
`python -m plimsoll_trainer.export`.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from plimsoll_planner.errors import PlimsollError
from plimsoll_trainer.checkpoint.flat_range import Box
from plimsoll_trainer.checkpoint.folders import step_of, steps_in
from plimsoll_trainer.checkpoint.loader import Found, read_boxes, saved_specs
from plimsoll_trainer.checkpoint.manifest import read_manifest
from plimsoll_trainer.checkpoint.state import LAYERS, MASTERS, layer_specs
from plimsoll_trainer.emulated.device import host_memory
from plimsoll_trainer.engine.shared_tensors import first_places
from plimsoll_trainer.engine.stage import StageSlice
from plimsoll_trainer.engine.tensor_specs import TensorSpec
from plimsoll_trainer.errors import (
    CheckpointError,
    UnusableCheckpointError,
    WorkloadError,
    located,
)
from plimsoll_trainer.workload import Workload


@dataclass(frozen=True, eq=False, slots=True)
class SavedLayers:
    """Layers in a checkpoint, each read when it is asked for."""

    found: Found
    workload: Workload
    specs: Mapping[str, TensorSpec]
    """Of all tensors in it."""

    def __call__(self, layer: str) -> dict[str, Tensor]:
        """Trained tensors of a layer by their names inside it.

        Raises:
            UnusableCheckpointError: a file is not as it was written.
            CheckpointError: it cannot be read.
        """
        name_of = self._names(layer)
        tensors = {
            name: torch.empty(self.specs[name].shape, dtype=self.specs[name].dtype)
            for name in set(name_of.values())
        }
        read_boxes(
            self.found,
            [
                Box(name=name, whole=tuple(t.shape), offsets=(0,) * t.ndim, tensor=t)
                for name, t in tensors.items()
            ],
        )
        return {own: tensors[name] for own, name in name_of.items()}

    def _names(self, layer: str) -> dict[str, str]:
        """Names in the checkpoint by those inside of a layer; masters are preferred."""
        begin = f"{LAYERS}.{layer}."
        base_of = {
            name.removeprefix(begin): name.partition(".")[2]
            for name in self.specs
            if name.startswith(begin)
        }
        for (owner, own), first in first_places(self.workload).items():
            if owner == layer and f"{LAYERS}.{'.'.join(first)}" in self.specs:
                base_of[own] = ".".join(first)
        return {
            own: f"{MASTERS}.{base}"
            if f"{MASTERS}.{base}" in self.specs
            else f"{LAYERS}.{base}"
            for own, base in base_of.items()
        }


def checkpoint_at(path: Path) -> Path:
    """Folder of a checkpoint: as it is given, or the newest below a folder of them.

    Raises:
        UnusableCheckpointError: there is none.
    """
    if step_of(path) >= 0:
        if path.is_dir():
            return path
        kept = ", ".join(str(step_of(one)) for one in steps_in(path.parent)) or "none"
        raise UnusableCheckpointError(
            f"there is no checkpoint {path}: there are those of steps {kept}"
        )
    if steps := steps_in(path):
        return steps[0]
    raise UnusableCheckpointError(
        f"{path} holds no committed checkpoint (a folder step-NNNNNNNN): name the "
        "folder of a job's checkpoints, or one of them"
    )


def check_exports(workload: Workload) -> None:
    """Refuse a workload that has no format of its own.

    Raises:
        WorkloadError: see above.
    """
    if workload.export is None:
        raise WorkloadError(
            "the workload has no export: give Workload(export=...), or read the "
            "checkpoint with the tools of torch.distributed.checkpoint"
        )


def export_weights(
    workload: Workload, checkpoint: Path, target: Path, *, replaces: bool = False
) -> None:
    """Write the weights of a checkpoint to a folder.

    Args:
        workload: that was trained.
        checkpoint: folder of it.
        target: folder that is made, as a whole or not at all.
        replaces: whether one that is there may go.

    Raises:
        WorkloadError: the workload has no format of its own.
        UnusableCheckpointError: it is of another model, or broken.
        CheckpointError: the workload's export failed, a file cannot be read or written,
            or the folder is there.
    """
    check_exports(workload)
    assert workload.export is not None  # noqa: S101 - see above
    found = Found(folder=checkpoint, manifest=read_manifest(checkpoint))
    specs = saved_specs(checkpoint)
    check_same_layers(checkpoint, workload, specs)
    if not target.name:
        raise CheckpointError(f"{target} is no folder that can be made: name a new one")
    partial = target.with_name(f".{target.name}.partial")
    try:
        if not replaces:
            check_free(target)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        with host_memory():
            workload.export(SavedLayers(found, workload, specs), partial)
        if replaces and target.exists():
            shutil.rmtree(target)
        partial.rename(target)
    except PlimsollError:
        raise
    except Exception as error:  # a full disk has other errors in each library
        raise CheckpointError(
            f"weights cannot be written to {target}: {failure_of(error)}; what is "
            f"trained stays in {checkpoint}"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def failure_of(error: Exception) -> str:
    """What an export has failed of, with the file or the line of code."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.strerror} ({error.filename})"
    return located(error)


def check_free(target: Path) -> None:
    """Refuse a target that is there and no empty folder.

    Raises:
        CheckpointError: see above.
    """
    if target.exists() and (target.is_file() or any(target.iterdir())):
        raise CheckpointError(f"{target} is there already: name a new folder")


def check_same_layers(
    checkpoint: Path, workload: Workload, saved: Mapping[str, TensorSpec]
) -> None:
    """Refuse a checkpoint of another model.

    Raises:
        UnusableCheckpointError: naming the first difference.
    """
    every = StageSlice(first_layer=0, end_layer=len(workload.layers))
    for name, spec in sorted(layer_specs(workload, every).items()):
        if saved.get(name) != spec:
            here = f"{name} is {spec}"
            there = str(saved[name]) if name in saved else "missing"
            raise UnusableCheckpointError(
                f"checkpoint {checkpoint} is for another model: {here} in the "
                f"workload, and {there} in it; give the arguments it was trained with"
            )
