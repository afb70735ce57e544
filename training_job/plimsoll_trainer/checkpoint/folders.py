"""The folders of checkpoints: what may be read, what is in the way, what is too old.

Rank 0 alone calls what changes anything. A folder becomes readable by one rename, so a
crash leaves it either whole or unreadable.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from pathlib import Path

from plimsoll_trainer.errors import CheckpointError, TakenOverError

COMMITTED = re.compile(r"step-(\d{8,})")
LEFT_OVER = re.compile(r"step-\d{8,}\.(?:partial|old)-(\d+)x*")
ATTEMPT = re.compile(r"\.attempt-(\d+)")


class Folders:
    """The folder that holds all checkpoints of a job, as one attempt uses it."""

    def __init__(self, root: Path, attempt: int) -> None:
        """Work below a folder that all ranks share, as an attempt of the job."""
        self.root = root
        self.attempt = attempt

    def committed(self, step: int) -> Path:
        """Folder of a finished checkpoint."""
        return self.root / f"step-{step:08d}"

    def partial(self, step: int) -> Path:
        """Folder that this attempt writes one into."""
        return self.root / f"step-{step:08d}.partial-{self.attempt}"

    def open(self) -> None:
        """Take over from earlier attempts, and remove what they left unfinished.

        Raises:
            CheckpointError: the folder cannot be written to.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            (self.root / f".attempt-{self.attempt}").touch()
            for entry in list(self.root.iterdir()):
                left = LEFT_OVER.fullmatch(entry.name)
                if left and int(left[1]) <= self.attempt:
                    self._remove(entry)
        except OSError as error:
            raise CheckpointError(
                f"checkpoint folder {self.root} cannot be used: {error.strerror} "
                f"({error.filename}); give a folder that can be written to"
            ) from None

    def commit(self, step: int) -> list[Path]:
        """Make a checkpoint readable, and the latest.

        Returns:
            Checkpoints of later steps, set aside: somebody else put them here since
            this attempt began.

        Raises:
            TakenOverError: a later attempt has begun.
            CheckpointError: somebody else uses the folder.
        """
        target = self.committed(step)
        known = [ATTEMPT.fullmatch(entry.name) for entry in self.root.iterdir()]
        later = [int(n[1]) for n in known if n and int(n[1]) > self.attempt]
        if later:
            raise TakenOverError(
                f"attempt {max(later)} has taken over {self.root}; attempt "
                f"{self.attempt} saves no more, and ends"
            )
        if target.exists():
            raise CheckpointError(
                f"{target} exists already: another job uses this folder; give each "
                "job its own --checkpoint-dir"
            )
        sync_folder(self.partial(step))
        moved = self.set_aside_after(step)
        self.partial(step).rename(target)
        sync_folder(self.root)
        return moved

    def discard(self, step: int) -> None:
        """Remove what could not be finished."""
        shutil.rmtree(self.partial(step), ignore_errors=True)

    def prune(self, keep: int, *, up_to: int) -> None:
        """Remove all but the latest checkpoints up to a step."""
        own = [folder for folder in steps_in(self.root) if step_of(folder) <= up_to]
        for folder in own[keep:]:
            self._remove(folder)

    def _remove(self, folder: Path) -> None:
        """Remove a folder at once, then its files as far as that works.

        An earlier attempt may still write into it, on a node that nobody can reach: it
        finds its folder no more. What stays is tried again by the next attempt.
        """
        name = folder.name.partition(".")[0]
        old = free(folder.with_name(f"{name}.old-{self.attempt}"))
        with contextlib.suppress(FileNotFoundError):  # the other one was quicker
            shutil.rmtree(folder.rename(old), ignore_errors=True)

    def set_aside_after(self, step: int) -> list[Path]:
        """Take checkpoints of later steps out of the way, and say where they are.

        They are corrupt, or belong to a course that was left; a later resume must not
        jump to them.
        """
        moved = []
        for folder in steps_in(self.root):
            if step_of(folder) > step:
                target = folder.with_name(f"{folder.name}.aside-{self.attempt}")
                moved.append(folder.rename(free(target)))
        return moved


def free(path: Path) -> Path:
    """A path, or one like it that is not taken."""
    while path.exists():
        path = path.with_name(f"{path.name}x")
    return path


def step_of(folder: Path) -> int:
    """Step in the name of a committed checkpoint."""
    found = COMMITTED.fullmatch(folder.name)
    return int(found[1]) if found else -1


def steps_in(root: Path) -> list[Path]:
    """Committed checkpoints below a folder, the latest first."""
    if not root.is_dir():
        return []
    found = [entry for entry in root.iterdir() if step_of(entry) >= 0]
    return sorted(found, key=step_of, reverse=True)


def sync_folder(folder: Path) -> None:
    """Bring a folder's entries to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
