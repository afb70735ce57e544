"""The folder of results: gpu.json with all numbers, gpu.md for readers.

In: results. Out: both files, each whole or not at all, and what is in them when the
next run begins. What cannot be used any more is set aside, never overwritten.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.gpu.device import MeasuredDevice
from benchmarks.gpu.page import page
from benchmarks.gpu.results import Results, results_from
from plimsoll_planner.errors import PlimsollError
from plimsoll_planner.records.document import write_whole
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_trainer.errors import described

ROOT = Path(__file__).resolve().parents[2]
BROKEN = (
    *(PlimsollError, ValueError, TypeError, LookupError, AttributeError),
    *(ArithmeticError, RecursionError),
)
"""Errors of reading or showing a file that was damaged, or is of another release."""


class UnusableFolderError(PlimsollError):
    """Results cannot be read or written there; found before anything is measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Folder:
    """Folder of results."""

    place: Path
    say: Callable[[str], None]

    @property
    def data(self) -> Path:
        """All numbers."""
        return self.place / "gpu.json"

    @property
    def page(self) -> Path:
        """Tables for readers."""
        return self.place / "gpu.md"

    def begin(self, device: MeasuredDevice, *, anew: bool) -> Results:
        """Results of before on the same device and torch, or none yet.

        Raises:
            UnusableFolderError: results could not be written later on.
        """
        with naming(self.place):
            self.place.mkdir(parents=True, exist_ok=True)
        with naming(self.data):
            results = None if anew else self.read(device)
        results = results or nothing_of(device)
        for path, text in self.texts(results):
            with naming(path):
                require_writable(path, text)
        return results

    def read(self, device: MeasuredDevice) -> Results | None:
        """Results in the folder; a file of no use is set aside."""
        if not self.data.exists():
            return None
        content = self.data.read_bytes()
        try:
            found = results_from(json.loads(content))
            list(self.texts(found))  # what cannot be shown is damaged as well
        except BROKEN as error:
            why = f"cannot be read any more ({described(error)})"
        else:
            if found.device == device.name:
                return found
            why = f"is of {found.device}, not of {device.name}"
        self.say(f"{self.data} {why}: it is kept as {set_aside(self.data)}")
        return None

    def write(self, results: Results) -> None:
        """Write JSON and page.

        Raises:
            UnusableFolderError: they cannot be written any more.
        """
        for path, text in self.texts(results):
            with naming(path):
                write_whole(path, text)

    def texts(self, results: Results) -> Iterator[tuple[Path, str]]:
        """Path and text of each file."""
        yield self.data, json.dumps(results.to_json(), indent=1) + "\n"
        path = self.data.resolve()
        shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        yield self.page, page(results, str(shown))


def nothing_of(device: MeasuredDevice) -> Results:
    """Results of a device that nothing was measured on yet."""
    return Results(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        device=device.name,
        kind=device.kind,
        capacity_bytes=device.capacity_bytes,
        is_tiny=device.kind is DeviceKind.EMULATED,
    )


def set_aside(path: Path) -> Path:
    """Rename a file to a name that none has yet."""
    names = (f"{path.name}.before" + f"-{n}" * (n > 1) for n in itertools.count(1))
    free = next(new for name in names if not (new := path.with_name(name)).exists())
    return path.rename(free)


def require_writable(path: Path, text: str) -> None:
    """Write a text beside a file, as it is written later on, and remove it."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    probe = path.with_name(f".{path.name}.probe")
    try:
        write_whole(probe, text)
    finally:
        probe.unlink(missing_ok=True)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turn what the system refuses into one line.

    Raises:
        UnusableFolderError: with path and reason.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise UnusableFolderError(f"{path}: {reason}") from None
