"""Manifest of a checkpoint, and whether its files are still as written."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from torch import Tensor

from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.records.bounds import (
    Bytes,
    Count,
    Digest,
    Index,
    Label,
    Name,
    Range,
    Rate,
    Text,
)
from plimsoll_planner.records.document import Document, load
from plimsoll_planner.records.record import Record
from plimsoll_trainer.engine.batches import make_batch
from plimsoll_trainer.engine.training import Trainer
from plimsoll_trainer.errors import CheckpointError, UnusableCheckpointError
from plimsoll_trainer.workload import Workload

FILE = "manifest.json"
BLOCK_BYTES = 2**22


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity(Record):
    """Inputs that decide which numbers a step computes, besides the model."""

    seed: Label
    """Of weights and dropout."""
    global_batch_size: Count
    data_digest: Digest
    """Of the first sample of step 0; another corpus almost surely has another one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedFile(Record):
    """One file beside the manifest."""

    name: Name
    size_bytes: Bytes
    crc32: Index


LONGEST_STATE = 2**20
"""Characters."""
DataState = Annotated[str, Text(longest=LONGEST_STATE)]
Loss = Annotated[float, Range(minimum=-1e300, maximum=1e300)]


@dataclass(frozen=True, kw_only=True, slots=True)
class LoopState(Record):
    """Position of what goes on around the steps."""

    evaluated_step: Index = 0
    """Steps finished before the latest evaluation; 0: there was none."""
    best_step: Index = 0
    """Those before the best one; 0: none was."""
    best_loss: Loss = 0.0
    num_worse: Index = 0
    """Evaluations since, in a row without an improvement."""
    data: DataState = ""
    """Position of data that has one, as JSON."""


BEGINNING = LoopState()
"""Nothing was evaluated or read; so it is in checkpoints of earlier releases."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedScale(Record):
    """Scale of the loss, where gradients are computed in fp16."""

    value: Rate
    """Of the next step."""
    num_good: Index
    """Steps since it was last changed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest(Document):
    """One committed checkpoint."""

    step: Index
    """Steps finished; training goes on with the step of this index."""
    attempt: Count
    plan_digest: Digest
    """Of the plan that wrote it; any plan may read it."""
    torch_version: Name
    identity: Identity
    loop: LoopState = BEGINNING
    files: tuple[SavedFile, ...]
    loss_scale: SavedScale | None = None
    """None where the loss is not scaled."""


def identity_of(workload: Workload, global_batch_size: int) -> Identity:
    """Identity of a training, which its numbers depend on."""
    inputs, targets = make_batch(workload, 0, 0, 1)
    return Identity(
        seed=str(workload.seed),
        global_batch_size=global_batch_size,
        data_digest=digest_of_tensors((*inputs, targets)),
    )


def digest_of_tensors(tensors: Iterable[Tensor]) -> str:
    """`sha256:...` of tensors and their types and shapes."""
    digest = hashlib.sha256()
    for part in tensors:
        digest.update(f"{part.dtype}{list(part.shape)}".encode())
        digest.update(part.cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return f"sha256:{digest.hexdigest()}"


def saved_scale(trainer: Trainer) -> SavedScale | None:
    """Scale of the loss as it is now."""
    scale = trainer.loss_scale
    if scale is None:
        return None
    return SavedScale(value=scale.value, num_good=scale.num_good)


def take_over_scale(trainer: Trainer, saved: SavedScale | None) -> None:
    """Go on with a scale, where the loss is scaled and one was saved."""
    scale = trainer.loss_scale
    if scale is not None and saved is not None:
        scale.value, scale.num_good = saved.value, saved.num_good


def check_identity(saved: Identity, here: Identity, folder: Path) -> None:
    """Refuse to go on with other numbers than the checkpoint began with.

    Raises:
        UnusableCheckpointError: naming the first difference.
    """
    for field in Identity.__slots__:
        before, now = getattr(saved, field), getattr(here, field)
        if before != now:
            raise UnusableCheckpointError(
                f"checkpoint {folder} was trained with {field} {before}, but here it "
                f"is {now}: restore that, or go on with --accept-other-data"
            )


def describe_file(path: Path) -> SavedFile:
    """Read a file once for its size and checksum."""
    size, checksum = 0, 0
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            size += len(block)
            checksum = zlib.crc32(block, checksum)
    return SavedFile(name=path.name, size_bytes=size, crc32=checksum)


def read_manifest(folder: Path) -> Manifest:
    """Read and check a manifest.

    Raises:
        UnusableCheckpointError: it is missing or broken.
    """
    try:
        return load(folder / FILE, Manifest)
    except InvalidInputError as error:
        text = f"checkpoint {folder} is corrupt: {error}"
        raise UnusableCheckpointError(text) from None


def fault_in(folder: Path, files: Sequence[SavedFile]) -> str | None:
    """Fault of the first file that is not as it was written.

    Raises:
        CheckpointError: one cannot be read.
    """
    for saved in files:
        try:
            found = describe_file(folder / saved.name)
        except FileNotFoundError as error:
            return f"{saved.name}: {error.strerror}"
        except OSError as error:
            raise CheckpointError(
                f"checkpoint {folder} cannot be read: {saved.name}: {error.strerror}"
            ) from error
        if found.size_bytes != saved.size_bytes:
            return (
                f"{saved.name} has {found.size_bytes} bytes, not the "
                f"{saved.size_bytes} written"
            )
        if found.crc32 != saved.crc32:
            return f"{saved.name} has another checksum than when it was written"
    return None
