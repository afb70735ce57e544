"""Which code was measured, on which libraries."""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_planner.records.bounds import Digest, Label, Message, Name
from plimsoll_planner.records.record import Record


@dataclass(frozen=True, kw_only=True, slots=True)
class LibraryVersion(Record):
    """A library that the measured code ran on."""

    name: Name
    version: Name


@dataclass(frozen=True, kw_only=True, slots=True)
class Fingerprint(Record):
    """Identity of what was measured; every pod computes it, a mismatch ends the pod."""

    source_digest: Digest
    """Over the source files of the workload."""
    python_version: Name
    torch_version: Name
    libraries: tuple[LibraryVersion, ...] = ()
    image: Label = ""
    """Image id of the container; empty outside a container."""
    arguments: Message = "{}"
    """Of the entry point: a JSON object, its names in order."""

    def check_rules(self) -> None:
        """One version of each library."""
        self.require_distinct("libraries", (library.name for library in self.libraries))
