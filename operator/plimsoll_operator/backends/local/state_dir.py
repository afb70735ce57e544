"""The state directory: where everything of one machine is kept.

plimsoll.db                           the store
locks/<name>                          held by whoever runs the plan of that name
plans/<uid>/checkpoints/              unless the spec names a folder
plans/<uid>/children/train-2/         one task: its request, its logs, its end
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from plimsoll_operator.errors import AlreadyRunningError, LocalBackendError

LOOK_S, POLL_S = 0.5, 0.02
"""For how long, and how often, a command tries to be the one that runs a plan: whoever
looks whether it is run holds its lock for a moment."""


@dataclass(frozen=True)
class StateFolder:
    """One state directory."""

    root: Path

    @property
    def store(self) -> Path:
        """The database."""
        return self.root / "plimsoll.db"

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever run here, and no file is in its place."""
        return not self.store.exists() and not self.root.is_file()

    def make(self) -> None:
        """Make the folder, unless it is there.

        Raises:
            LocalBackendError: it cannot be made.
        """
        make(self.root)

    def plan(self, uid: str) -> PlanFolder:
        """The folder of one plan."""
        return PlanFolder(self.root / "plans" / uid)

    @contextmanager
    def locked(self, name: str) -> Generator[None]:
        """Be the only one who runs the plans of a name; nobody begins one meanwhile.

        Raises:
            AlreadyRunningError: another process runs it.
        """
        make(self.root / "locks")
        descriptor = os.open(self._lock(name), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if not lock(descriptor):
                who = os.pread(descriptor, 32, 0).decode().strip() or "another one"
                raise AlreadyRunningError(
                    f"plan {name} is being run by process {who}: `plimsoll describe "
                    f"{name}` shows how far it is, `plimsoll cancel {name}` stops it"
                )
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            yield
        finally:
            os.close(descriptor)  # and the lock with it, also when we are killed

    def is_run(self, name: str) -> bool:
        """Whether somebody runs the plans of a name; hinders nobody."""
        try:
            with self._lock(name).open() as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            return False
        return False

    def _lock(self, name: str) -> Path:
        """The file that whoever runs the plans of a name holds."""
        return self.root / "locks" / name


@dataclass(frozen=True)
class PlanFolder:
    """The folder of one plan."""

    root: Path

    @property
    def tasks(self) -> Path:
        """The folder with a folder for each task."""
        return self.root / "children"

    @property
    def proof(self) -> PlanFolder:
        """The folder of a proof; its tasks and logs lie apart."""
        return PlanFolder(self.root / "proof")

    @property
    def checkpoints(self) -> Path:
        """Of the plan's own training, unless its spec names a place."""
        return self.root / "checkpoints"

    def make(self) -> None:
        """Make the folder, unless it is there.

        Raises:
            LocalBackendError: it cannot be made.
        """
        make(self.tasks)


def lock(descriptor: int) -> bool:
    """Lock a file for ourselves alone; False where somebody else holds it for long."""
    end_s = time.monotonic() + LOOK_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end_s:
                return False
            time.sleep(POLL_S)
        else:
            return True


def make(folder: Path) -> None:
    """Make a folder and those above it, or say why not."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise LocalBackendError(f"{folder} is no folder; name another --home") from None
    except OSError as error:
        raise LocalBackendError(
            f"{folder}: {error.strerror}; name another --home"
        ) from None
