"""Folders that are costly to make, kept outside the tree and made at most once.

In: a name that holds a digest of everything the content depends on, and a function
that fills a folder. Out: the folder, and the seconds it took if it was not there.
Called by build.py (binaries) and images.py (container images).

A folder appears by rename, so it is whole or absent; a lock per name lets two
sessions that need the same folder make it once.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.lab.errors import LabError


@dataclass(frozen=True, kw_only=True, slots=True)
class Cached:
    """A folder of the cache, and how long making it took this time."""

    folder: Path
    made_in_s: float | None
    """None when it was there already."""

    def __str__(self) -> str:
        """Origin of the files, as `prepare` and `up` print it."""
        return "cached" if self.made_in_s is None else f"made in {self.made_in_s:.0f} s"


def root() -> Path:
    """Cache folder: PLIMSOLL_CACHE, or the user's cache folder."""
    if chosen := os.environ.get("PLIMSOLL_CACHE"):
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(base).absolute() / "plimsoll"


def digest(parts: Iterable[bytes]) -> str:
    """12 hexadecimal digits that name this sequence of byte strings."""
    total = hashlib.sha256()
    for part in parts:
        total.update(b"%d:" % len(part) + part)
    return total.hexdigest()[:12]


def find(pattern: str) -> Path | None:
    """Finished folder whose name matches, if there is one."""
    found = [
        path
        for path in sorted(root().glob(pattern))
        if path.is_dir() and ".part-" not in path.name
    ]
    return found[-1] if found else None


def make_once(name: str, fill: Callable[[Path], None]) -> Cached:
    """Folder `name`, after calling `fill` on it if it is not there.

    Raises:
        LabError: the cache folder cannot be written to.
    """
    folder = root() / name
    if folder.is_dir():
        return Cached(folder=folder, made_in_s=None)
    started_s = time.monotonic()
    with locked(name):
        if folder.is_dir():
            return Cached(folder=folder, made_in_s=None)
        _fill_and_rename(folder, fill)
    return Cached(folder=folder, made_in_s=time.monotonic() - started_s)


@contextmanager
def locked(name: str) -> Generator[None]:
    """Hold the lock of a name, which one session has at a time.

    Raises:
        LabError: the cache folder cannot be written to.
    """
    try:
        root().mkdir(parents=True, exist_ok=True)
        lock = (root() / f"{name}.lock").open("w")
    except OSError as error:
        raise LabError(
            f"cannot write to the cache folder {root()} ({error.strerror}): "
            "set PLIMSOLL_CACHE to a folder that you can write to"
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fill_and_rename(folder: Path, fill: Callable[[Path], None]) -> None:
    """Fill a scratch folder and rename it; the caller holds the folder's lock."""
    for left_by_a_killed_run in folder.parent.glob(f"{folder.name}.part-*"):
        shutil.rmtree(left_by_a_killed_run)
    scratch = Path(tempfile.mkdtemp(prefix=f"{folder.name}.part-", dir=folder.parent))
    try:
        scratch.chmod(0o755)  # mkdtemp's 0700 would shut out a cache shared by users
        fill(scratch)
        scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
