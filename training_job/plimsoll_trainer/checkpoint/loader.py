"""Chooses a checkpoint, checks it, and reads what this rank holds.

    newest committed folder -> all files as they were written? -> trained on this data?
         |  no: the next older one, and a line that says so
         v
    names and shapes those of this model? -> read into the live tensors

To choose a checkpoint, each file is checked by one rank. Before it is read, each rank
checks the files that it reads again, because torch's reader compares no checksum.
Tensors are read one after the other, through host memory into the tensors that training
uses, so the device holds nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from plimsoll_trainer.checkpoint.flat_range import Box
from plimsoll_trainer.checkpoint.folders import Folders, step_of, steps_in
from plimsoll_trainer.checkpoint.manifest import Manifest, fault_in, read_manifest
from plimsoll_trainer.checkpoint.planners import LoadBoxes
from plimsoll_trainer.checkpoint.state import (
    LAYERS,
    OPTIMIZER,
    RankState,
    layer_specs,
    prefixes,
)
from plimsoll_trainer.emulated.device import host_memory
from plimsoll_trainer.engine.control import Control
from plimsoll_trainer.engine.stage import StageSlice
from plimsoll_trainer.engine.tensor_specs import TensorSpec
from plimsoll_trainer.errors import CheckpointError, UnusableCheckpointError
from plimsoll_trainer.workload import Workload

Warn = Callable[[str], None]
HINT = "(--resume-from chooses)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """The checkpoint to resume from."""

    folder: Path
    manifest: Manifest


def choose(
    folders: Folders | None, resume_from: Path | None, control: Control, warn: Warn
) -> Found | None:
    """Agree on the newest checkpoint that is whole; every rank calls this.

    A checkpoint inside the job's own folder that is asked for is taken, and later ones
    are set aside. One from elsewhere is where the job begins: once its own folder holds
    checkpoints, those are taken.

    Raises:
        UnusableCheckpointError: there are checkpoints, but none that is whole; or none
            where one was asked for.
        CheckpointError: the newest cannot be read just now, and no older one is whole.
    """
    own = folders.root if folders else None
    candidates: list[Path] = []
    if control.rank == 0:
        candidates = candidates_of(own, resume_from)
    candidates = control.gather(candidates)[0]
    if not candidates and resume_from is not None:
        raise UnusableCheckpointError(
            f"--resume-from {resume_from}: there is no committed checkpoint (a folder "
            "step-NNNNNNNN); check the path, or leave the option out to begin anew"
        )
    faults: list[CheckpointError] = []
    for folder in candidates:
        found = examine(folder, control)
        if isinstance(found, Found):
            if control.rank == 0:
                for fault in faults:
                    warn(f"{fault}; resuming from {folder} instead {HINT}")
            set_aside(folders, found, control, warn)
            return found
        faults.append(found)
    if faults:
        raise type(faults[0])(
            f"{faults[0]}, and there is no older one that is whole: restore it, name "
            "another with --resume-from, or give a new --checkpoint-dir to begin anew"
        )
    return None


def candidates_of(own: Path | None, resume_from: Path | None) -> list[Path]:
    """Checkpoints that may be taken, the best first."""
    own_steps = steps_in(own) if own else []
    if resume_from is None:
        return own_steps
    asked = [resume_from] if step_of(resume_from) >= 0 else steps_in(resume_from)
    asked = [folder for folder in asked if folder.is_dir()]
    inside = own is not None and any(is_in(own, folder) for folder in asked)
    return asked if inside or not own_steps else own_steps


def is_in(root: Path, folder: Path) -> bool:
    """Whether a folder lies in another one, by whatever path."""
    return folder.resolve().parent == root.resolve()


def examine(folder: Path, control: Control) -> Found | CheckpointError:
    """Check all files of a checkpoint, each on one rank; all ranks learn the result."""
    manifest: Manifest | None = None
    fault: CheckpointError | None = None
    try:
        manifest = read_manifest(folder)
        share = manifest.files[control.rank :: control.num_ranks]
        if difference := fault_in(folder, share):
            text = f"checkpoint {folder} is corrupt: {difference}"
            fault = UnusableCheckpointError(text)
    except CheckpointError as error:
        fault = error
    faults = [one for one in control.gather(fault) if one is not None]
    if faults or manifest is None:
        return faults[0]
    return Found(folder=folder, manifest=manifest)


def set_aside(
    folders: Folders | None, found: Found, control: Control, warn: Warn
) -> None:
    """Take later checkpoints of the own folder out of the way."""
    if folders and control.rank == 0 and is_in(folders.root, found.folder):
        for moved in folders.set_aside_after(found.manifest.step):
            warn(f"set aside as {moved}: it is later than {found.folder}")
    control.wait_for_all()


def check_layers(workload: Workload, part: StageSlice, found: Found) -> None:
    """Refuse a checkpoint of another model by this rank's layers, before it has any.

    Raises:
        UnusableCheckpointError: naming the first difference.
    """
    saved = saved_specs(found.folder)
    names = [layer.name for layer in workload.layers]
    check_same_model(
        found.folder,
        {name: spec for name, spec in saved.items() if name.startswith(f"{LAYERS}.")},
        layer_specs(workload, part),
        names[part.first_layer : part.end_layer],
        names,
    )


def load_state(found: Found, state: RankState, layers: list[str]) -> None:
    """Read this rank's tensors; `layers` are the names of all layers of the workload.

    Raises:
        UnusableCheckpointError: it was written for another model, or is broken.
        CheckpointError: it cannot be read.
    """
    saved = saved_specs(found.folder)
    if any(name.startswith(f"{OPTIMIZER}.") for name in saved):
        state.make_optimizer_state()
    ranges = state.ranges()
    here = {
        name: TensorSpec(held.whole, held.tensor.dtype) for name, held in ranges.items()
    }
    elsewhere = tuple(state.elsewhere())
    known = {n: s for n, s in saved.items() if not f"{n}.".startswith(elsewhere)}
    check_same_model(found.folder, known, here, state.layers, layers)
    boxes = [box for name, held in ranges.items() for box in held.boxes(name)]
    read_boxes(found, boxes)
    state.take_over_read()


def read_boxes(found: Found, boxes: Sequence[Box]) -> None:
    """Read parts of tensors by name, in place.

    Raises:
        UnusableCheckpointError: a file is not as it was written.
        CheckpointError: a file cannot be read.
    """
    reader = FileSystemReader(found.folder)
    metadata = reader.read_metadata()
    planner = LoadBoxes(boxes, metadata)
    reader.set_up_storage_reader(metadata, is_coordinator=True)
    plan = planner.create_local_plan()
    names = {reader.storage_data[i.storage_index].relative_path for i in plan.items}
    files = [file for file in found.manifest.files if file.name in names]
    if difference := fault_in(found.folder, files):
        raise UnusableCheckpointError(
            f"checkpoint {found.folder} is corrupt: {difference}; name another one "
            "with --resume-from"
        )
    try:
        with host_memory():
            reader.read_data(plan, planner)
    except OSError as error:
        raise CheckpointError(
            f"checkpoint {found.folder} cannot be read: {error}; name another one "
            "with --resume-from"
        ) from error


def saved_specs(folder: Path) -> dict[str, TensorSpec]:
    """Shape and type of every tensor in a checkpoint."""
    metadata = FileSystemReader(folder).read_metadata()
    return {
        name: TensorSpec(tuple(entry.size), entry.properties.dtype)
        for name, entry in metadata.state_dict_metadata.items()
        if isinstance(entry, TensorStorageMetadata)
    }


def check_same_model(
    folder: Path,
    saved: Mapping[str, TensorSpec],
    here: Mapping[str, TensorSpec],
    own_layers: Sequence[str],
    layers: Sequence[str],
) -> None:
    """Refuse a checkpoint of another model, by the first name that differs.

    Raises:
        UnusableCheckpointError: naming the first difference.
    """
    known, mine = prefixes(layers), prefixes(own_layers)
    for name in sorted(saved):
        if not name.startswith(known) or (name.startswith(mine) and name not in here):
            raise other_model(
                folder, f"it holds {name}, which this workload does not have"
            )
    for name, spec in sorted(here.items()):
        if name not in saved:
            raise other_model(folder, f"it lacks {name}, which this workload has")
        if saved[name] != spec:
            raise other_model(folder, f"{name} is {saved[name]} in it, but {spec} here")


def other_model(folder: Path, difference: str) -> UnusableCheckpointError:
    """Error for a checkpoint of another model."""
    return UnusableCheckpointError(
        f"checkpoint {folder} is for another model: {difference}; pass the arguments "
        "it was trained with, or give a new --checkpoint-dir to begin anew"
    )
