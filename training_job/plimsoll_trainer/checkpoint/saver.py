"""Saves while training goes on; a folder appears whole or not at all.

    all ranks, between two steps     copy own tensors to host memory; training waits
    each rank, in a thread           write its file, then `.rank-R.N.done`
    rank 0, in its thread            wait for all, write .metadata and manifest.json,
                                     rename, remove what is too old

What the ranks have to tell each other in the background they tell by files in the
folder that they share anyway: there is no collective to mix with those of training,
none to time out, and no tensor to count on an emulated device.
"""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path

import torch
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.planner import SavePlan
from torch.distributed.checkpoint.storage import WriteResult

from plimsoll_planner.records.document import save as save_document
from plimsoll_planner.units import at_least
from plimsoll_trainer.checkpoint.flat_range import Box
from plimsoll_trainer.checkpoint.folders import Folders
from plimsoll_trainer.checkpoint.host_copy import HostCopy
from plimsoll_trainer.checkpoint.manifest import (
    FILE,
    Identity,
    LoopState,
    Manifest,
    SavedFile,
    SavedScale,
    describe_file,
)
from plimsoll_trainer.checkpoint.planners import SaveBoxes
from plimsoll_trainer.checkpoint.room import lacks_room
from plimsoll_trainer.checkpoint.saved_state import SavedState
from plimsoll_trainer.errors import CheckpointError, NoRoomError, TakenOverError

PATIENCE_S = 1800.0
"""For the slowest rank's disk."""
FIRST_POLL_S, LAST_POLL_S = 0.005, 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """Parts that a rank has written, for rank 0."""

    plan: SavePlan
    results: list[WriteResult]
    files: list[SavedFile]


@dataclass(frozen=True, kw_only=True, slots=True)
class SaveFigures:
    """Figures of a save on this rank."""

    step: int
    stall_s: float
    """That training waited."""
    write_s: float
    """In the background; on rank 0 until the commit."""
    num_bytes: int
    set_aside: tuple[Path, ...]
    """Checkpoints of later steps that somebody else had put into the folder."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Circumstances:
    """What a step was trained under, which its manifest says."""

    plan_digest: str
    loss_scale: SavedScale | None
    loop: LoopState


@dataclass
class Saver:
    """Saves this rank's part; all ranks call `start` for the same steps."""

    state: SavedState
    """Whose tensors are saved, as they are at that time."""
    folders: Folders
    _: KW_ONLY
    rank: int
    num_ranks: int
    identity: Identity
    plan_digest: str
    """Of the plan that the training runs under."""
    keep: int
    """Checkpoints that stay."""

    def __post_init__(self) -> None:
        """Start without a save."""
        self._copy = HostCopy(self.state.device)
        self._num_saves = 0
        self.num_bytes = 0
        """Of this rank's part of the latest save."""
        self._thread: threading.Thread | None = None
        self._failure: CheckpointError | None = None
        self._unfinished: int | None = None
        """Step of the latest save that failed."""
        self._figures: SaveFigures | None = None
        self.loop = LoopState()
        """Goes into the manifests of the saves that follow."""

    @property
    def is_busy(self) -> bool:
        """Whether this rank still writes."""
        return self._thread is not None and self._thread.is_alive()

    def take_failure(self) -> CheckpointError | None:
        """Failure of the last save, once."""
        failure, self._failure = self._failure, None
        return failure

    def take_figures(self) -> SaveFigures | None:
        """Figures of the last save, once it has ended well."""
        figures, self._figures = self._figures, None
        return figures

    def discard(self) -> None:
        """Remove what a save that failed has left; called when no rank writes.

        Rank 0 removes it at once as well, but others may still write to it then.
        """
        if self.rank == 0 and self._unfinished is not None:
            self.folders.discard(self._unfinished)
        self._unfinished = None

    def start(self, step: int) -> None:
        """Copy the tensors as they are now, and write them in the background."""
        begin_s = time.monotonic()
        boxes = {box.index: box for box in self.state.own_boxes()}
        taken = self._copy.take({i: box.tensor for i, box in boxes.items()})
        copies = [replace(box, tensor=taken[i]) for i, box in boxes.items()]
        self.num_bytes = sum(copy.nbytes for copy in taken.values())
        self._num_saves += 1
        stall_s = time.monotonic() - begin_s
        self._thread = threading.Thread(
            target=self._save,
            args=(step, self._circumstances(), copies, stall_s),
            daemon=True,
            name="saver",
        )
        self._thread.start()

    def _circumstances(self) -> Circumstances:
        """What the manifest says of this step besides its files."""
        return Circumstances(
            plan_digest=self.plan_digest,
            loss_scale=self.state.loss_scale,
            loop=self.loop,
        )

    def _save(
        self, step: int, around: Circumstances, copies: Sequence[Box], stall_s: float
    ) -> None:
        """Write, in the thread; whatever goes wrong is kept for the main thread.

        Plan, scale and loop are those of the step: they may be others by now.
        """
        begin_s, num_bytes = time.monotonic(), self.num_bytes
        folder = self.folders.partial(step)
        try:
            written = write_boxes(folder, copies, self.rank)
            self._publish(folder, "done", pickle.dumps(written))
            moved = self._commit(step, around, folder) if self.rank == 0 else []
        except Exception as error:  # noqa: BLE001 - a save may fail in any way
            self._fail(step, folder, error, num_bytes)
            return
        self._figures = SaveFigures(
            step=step,
            stall_s=stall_s,
            write_s=time.monotonic() - begin_s,
            num_bytes=num_bytes,
            set_aside=tuple(moved),
        )

    def _publish(self, folder: Path, word: str, content: bytes) -> None:
        """Write this rank's message for rank 0."""
        target = self._message(folder, self.rank, word)
        part = target.with_name(f"{target.name}.part")
        part.write_bytes(content)
        part.replace(target)

    def _message(self, folder: Path, rank: int, word: str) -> Path:
        """Path of a rank's message about this save."""
        return folder / f".rank-{rank}.{self._num_saves}.{word}"

    def _wait_for(self, folder: Path, rank: int, end_s: float) -> Written:
        """Wait for one rank's message.

        Raises:
            CheckpointError: the rank failed, or says nothing.
        """
        done, failed = (self._message(folder, rank, w) for w in ("done", "failed"))
        poll_s = FIRST_POLL_S
        while not done.exists():
            if failed.exists():
                text = failed.read_text() or "its disk has no room to say what failed"
                raise CheckpointError(f"rank {rank}: {text}")
            if time.monotonic() > end_s:
                raise CheckpointError(
                    f"rank {rank} has not written its part within {PATIENCE_S:.0f} s: "
                    "check its disk, and that all ranks share the folder"
                )
            time.sleep(poll_s)
            poll_s = min(2 * poll_s, LAST_POLL_S)
        written: Written = pickle.loads(done.read_bytes())  # noqa: S301 - our own rank
        return written

    def _commit(self, step: int, around: Circumstances, folder: Path) -> list[Path]:
        """Finish what all ranks have written; return what had to be set aside."""
        end_s = time.monotonic() + PATIENCE_S
        written = [
            self._wait_for(folder, rank, end_s) for rank in range(self.num_ranks)
        ]
        write_metadata(folder, written)
        for message in folder.glob(".rank-*"):
            message.unlink()
        manifest = Manifest(
            step=step,
            attempt=self.folders.attempt,
            plan_digest=around.plan_digest,
            torch_version=str(torch.__version__),
            identity=self.identity,
            loop=around.loop,
            loss_scale=around.loss_scale,
            files=(
                describe_file(folder / ".metadata"),
                *(file for part in written for file in part.files),
            ),
        )
        save_document(folder / FILE, manifest)
        moved = self.folders.commit(step)
        self.folders.prune(self.keep, up_to=step)
        return moved

    def _fail(self, step: int, folder: Path, error: Exception, num_bytes: int) -> None:
        """Keep the failure, tell rank 0, and leave nothing half-written."""
        text, kind = reason_of(error, folder, num_bytes), CheckpointError
        if isinstance(error, TakenOverError):
            kind = TakenOverError
        elif lacks_room(error, folder, num_bytes):
            kind = NoRoomError
        self._failure = kind(
            f"checkpoint of step {step} was not saved: {text}; the one before it stays"
        )
        self._unfinished = step
        if self.rank == 0:
            self.folders.discard(step)
            return
        try:
            self._publish(folder, "failed", text.encode())
        except OSError:  # no room for words; a name takes none
            with suppress(OSError):  # then rank 0 finds out by waiting
                self._message(folder, self.rank, "failed").touch()


def write_boxes(folder: Path, boxes: Sequence[Box], rank: int) -> Written:
    """Write one rank's file."""
    writer = FileSystemWriter(folder, per_thread_copy_ahead=0)
    planner = SaveBoxes(boxes, is_coordinator=rank == 0)
    writer.set_up_storage_writer(rank == 0)
    plan = writer.prepare_local_plan(planner.create_local_plan())
    before = [SavePlan([])] * rank  # the writer numbers files by place
    plan = writer.prepare_global_plan([*before, plan])[-1]
    if not plan.items:
        return Written(plan=plan, results=[], files=[])
    results = writer.write_data(planner.finish_plan(plan), planner).wait()
    names = sorted({result.storage_data.relative_path for result in results})
    files = [describe_file(folder / name) for name in names]
    return Written(plan=plan, results=results, files=files)


def write_metadata(folder: Path, written: Sequence[Written]) -> None:
    """Write torch's index of which tensor lies where."""
    planner = SaveBoxes(is_coordinator=True)
    _, metadata = planner.create_global_plan([part.plan for part in written])
    writer = FileSystemWriter(folder)
    writer.set_up_storage_writer(True)
    writer.finish(metadata, [part.results for part in written])


def reason_of(error: Exception, folder: Path, num_bytes: int) -> str:
    """Reason why this rank's part of a checkpoint could not be written."""
    if isinstance(error, CheckpointError):
        return str(error)
    if isinstance(error, OSError) and error.errno is not None:
        return f"{os.strerror(error.errno)} ({error.filename or 'while writing'})"
    if lacks_room(error, folder, num_bytes):
        return f"no room in {folder.parent} for {at_least(num_bytes)}: make room"
    return f"{type(error).__name__}: {error}"
