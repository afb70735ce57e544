"""Chooses a checkpoint, checks it, and reads what this rank holds.

    newest committed folder -> all files as they were written? -> trained on this data?
         |  no: the next older one, and a line that says so
         v
    names and shapes those of this model? -> read into the live tensors

Each file is checked by one rank. Tensors are read one after the other, through host
memory into the tensors that training uses, so the device holds nothing twice.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem
from torch.futures import Future

from plimsoll_trainer.boundaries import TensorSpec
from plimsoll_trainer.checkpoint.folders import Folders, step_of, steps_in
from plimsoll_trainer.checkpoint.manifest import Manifest, fault_in, read_manifest
from plimsoll_trainer.checkpoint.state import (
    LAYERS,
    OPTIMIZER,
    RankState,
    layer_specs,
    prefixes,
)
from plimsoll_trainer.control import Control
from plimsoll_trainer.errors import CheckpointError
from plimsoll_trainer.stage import StageSlice
from plimsoll_trainer.workload import Workload

Warn = Callable[[str], None]


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

    Args:
        folders: the job's own.
        resume_from: one checkpoint, or a folder of them.
        control: of all ranks.
        warn: says one line; called on rank 0.

    Raises:
        CheckpointError: there are checkpoints, but none that is whole; or none where
            one was asked for.
    """
    own = folders.root if folders else None
    candidates: list[Path] = []
    if control.rank == 0:
        candidates = candidates_of(own, resume_from)
    candidates = control.gather(candidates)[0]
    if not candidates and resume_from is not None:
        raise CheckpointError(
            f"--resume-from {resume_from}: there is no committed checkpoint (a folder "
            "step-NNNNNNNN); check the path, or leave the option out to begin anew"
        )
    faults: list[str] = []
    for folder in candidates:
        found, fault = examine(folder, control)
        if found is not None:
            report_faults(faults, folder, control, warn)
            set_aside(folders, found, control, warn)
            return found
        faults.append(fault)
    if faults:
        raise CheckpointError(
            f"{faults[0]}, and there is no older one that is whole: restore it, name "
            "another with --resume-from, or give a new --checkpoint-dir to begin anew"
        )
    return None


def candidates_of(own: Path | None, resume_from: Path | None) -> list[Path]:
    """List the checkpoints that may be taken, the best first."""
    own_steps = steps_in(own) if own else []
    if resume_from is None:
        return own_steps
    asked = [resume_from] if step_of(resume_from) >= 0 else steps_in(resume_from)
    asked = [folder for folder in asked if folder.is_dir()]
    inside = own is not None and any(
        folder.resolve().parent == own.resolve() for folder in asked
    )
    return asked if inside or not own_steps else own_steps


def examine(folder: Path, control: Control) -> tuple[Found | None, str]:
    """Check all files of a checkpoint, each on one rank; all ranks learn the result."""
    manifest: Manifest | None = None
    try:
        manifest = read_manifest(folder)
        share = manifest.files[control.rank :: control.num_ranks]
        fault = fault_in(folder, share)
        text = f"checkpoint {folder} is corrupt: {fault}" if fault else ""
    except CheckpointError as error:
        text = str(error)
    faults = [fault for fault in control.gather(text) if fault]
    if faults or manifest is None:
        return None, faults[0]
    return Found(folder=folder, manifest=manifest), ""


def report_faults(faults: list[str], used: Path, control: Control, warn: Warn) -> None:
    """Say what was passed over, and what is used instead."""
    if control.rank == 0:
        for fault in faults:
            warn(f"{fault}; resuming from {used} instead (--resume-from chooses)")


def set_aside(
    folders: Folders | None, found: Found, control: Control, warn: Warn
) -> None:
    """Take later checkpoints of the own folder out of the way."""
    own = (
        folders is not None and found.folder.resolve().parent == folders.root.resolve()
    )
    if folders is not None and own and control.rank == 0:
        for moved in folders.set_aside_after(found.manifest.step):
            warn(f"set aside as {moved}: it is later than {found.folder}")
    control.wait_for_all()


def check_layers(found: Found, workload: Workload, part: StageSlice) -> None:
    """Refuse a checkpoint of another model by this rank's layers, before it has any.

    Raises:
        CheckpointError: naming the first difference.
    """
    saved = saved_specs(HostReader(found.folder).read_metadata())
    names = [layer.name for layer in workload.layers]
    check_same_model(
        found.folder,
        {name: spec for name, spec in saved.items() if name.startswith(f"{LAYERS}.")},
        layer_specs(workload, part),
        names[part.first_layer : part.end_layer],
        names,
    )


def load_state(found: Found, state: RankState, layers: list[str]) -> None:
    """Read this rank's tensors.

    Args:
        found: the checkpoint.
        state: what to read into.
        layers: names of all layers of the workload.

    Raises:
        CheckpointError: it was written for another model, or cannot be read.
    """
    reader = HostReader(found.folder)
    metadata = reader.read_metadata()
    saved = saved_specs(metadata)
    if any(name.startswith(f"{OPTIMIZER}.") for name in saved):
        state.make_optimizer_state()
    tensors = state.tensors()
    here = {name: TensorSpec.of(tensor) for name, tensor in tensors.items()}
    check_same_model(found.folder, saved, here, state.layers, layers)
    planner = DefaultLoadPlanner(
        flatten_state_dict=False, flatten_sharded_tensors=False
    )
    planner.set_up_planner(dict(tensors), metadata, is_coordinator=True)
    reader.set_up_storage_reader(metadata, is_coordinator=True)
    try:
        reader.read_data(planner.create_local_plan(), planner)
    except (OSError, zipfile.BadZipFile) as error:
        raise CheckpointError(
            f"checkpoint {found.folder} cannot be read: {error}; name another one "
            "with --resume-from"
        ) from error


def saved_specs(metadata: Metadata) -> dict[str, TensorSpec]:
    """Return shape and type of every tensor in a checkpoint."""
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

    Args:
        folder: of the checkpoint.
        saved: what it holds.
        here: what this rank holds.
        own_layers: names of this rank's layers.
        layers: names of all layers of the workload.
    """
    known, mine = prefixes(layers), prefixes(own_layers)
    for name in sorted(saved):
        if not name.startswith(known) or (name.startswith(mine) and name not in here):
            raise foreign(folder, f"it holds {name}, which this workload does not have")
    for name, spec in sorted(here.items()):
        if name not in saved:
            raise foreign(folder, f"it lacks {name}, which this workload has")
        if saved[name] != spec:
            raise foreign(folder, f"{name} is {saved[name]} in it, but {spec} here")


def foreign(folder: Path, difference: str) -> CheckpointError:
    """Return the error for a checkpoint of another model."""
    return CheckpointError(
        f"checkpoint {folder} is for another model: {difference}; pass the arguments "
        "it was trained with, or give a new --checkpoint-dir to begin anew"
    )


class HostReader(FileSystemReader):
    """Reads torch's files through host memory that no device counts."""

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read the items of a plan, file by file."""
        by_file: dict[str, list[ReadItem]] = {}
        for item in plan.items:
            place = self.storage_data[item.storage_index].relative_path
            by_file.setdefault(place, []).append(item)
        for name, items in by_file.items():
            with (Path(self.path) / name).open("rb") as file:
                for item in items:
                    self._read_item(file, item, planner)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _read_item(self, file: IO[bytes], item: ReadItem, planner: LoadPlanner) -> None:
        """Read one tensor, or the part of one that is asked for."""
        target = planner.resolve_tensor(item).detach()
        place = self.storage_data[item.storage_index]
        part = io.BufferedReader(FilePart(file, place.offset, place.length))
        with stored_bytes(part) as (record, size):
            buffer = np.empty(size, dtype=np.uint8)
            read_all(record, buffer.data)
        whole = torch.from_numpy(buffer).view(target.dtype)
        whole = whole.view(self._stored_shape(planner, item))
        for dim, (start, length) in enumerate(
            zip(item.storage_offsets, item.lengths, strict=True)
        ):
            whole = whole.narrow(dim, start, length)
        target.copy_(whole)
        planner.commit_tensor(item, target)

    @staticmethod
    def _stored_shape(planner: LoadPlanner, item: ReadItem) -> torch.Size:
        """Return the shape of the stored part that an item reads from."""
        metadata: Metadata = planner.metadata  # type: ignore[attr-defined]
        entry: Any = metadata.state_dict_metadata[item.storage_index.fqn]
        offset = item.storage_index.offset
        chunks = [c for c in entry.chunks if offset is None or c.offsets == offset]
        return torch.Size(chunks[0].sizes)


class FilePart(io.RawIOBase):
    """A part of a file, as a file."""

    def __init__(self, file: IO[bytes], start: int, size: int) -> None:
        """Read `size` bytes of a file from `start` on."""
        self._file, self._start, self._size = file, start, size
        self._place = 0

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def seekable(self) -> bool:
        """Tell that it can be read in any order."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}
        self._place = max(0, base[whence] + offset)
        return self._place

    def readinto(self, buffer: Any) -> int:
        """Read what there is, up to the length of the buffer."""
        count = max(0, min(len(buffer), self._size - self._place))
        self._file.seek(self._start + self._place)
        found = self._file.read(count)
        buffer[: len(found)] = found
        self._place += len(found)
        return len(found)


@contextmanager
def stored_bytes(part: IO[bytes]) -> Iterator[tuple[IO[bytes], int]]:
    """Open the bytes of a tensor inside what `torch.save` wrote; checks their CRC."""
    with zipfile.ZipFile(part) as archive:
        entry = next(e for e in archive.infolist() if e.filename.endswith("/data/0"))
        with archive.open(entry) as record:
            yield record, entry.file_size


def read_all(record: IO[bytes], into: memoryview) -> None:
    """Fill a buffer, and read on to the end, where the checksum is compared."""
    done = 0
    while done < len(into):
        block = record.read(min(len(into) - done, 2**22))
        if not block:
            raise zipfile.BadZipFile("a tensor ends early")
        into[done : done + len(block)] = block
        done += len(block)
    record.read()
