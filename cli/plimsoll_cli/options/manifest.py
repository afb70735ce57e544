"""Reads the manifest that a person names, or pipes in.

In: a path, `-` for stdin. Out: a `Manifest`. Called by `run`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from plimsoll_operator.api.manifest import Manifest, parse_manifest
from plimsoll_planner.errors import UnreadableError
from plimsoll_planner.records.document import read_whole, require_end

LARGEST_MANIFEST_BYTES = 64 * 2**20
"""With a whole table of machines in it."""
MANIFEST_ADVICE = "name a file with one TrainingPlan"


def read_manifest(path: Path) -> Manifest:
    """Read a manifest.

    Raises:
        InvalidInputError: no such file, or not a TrainingPlan.
    """
    if path == Path("-"):
        return parse_manifest(read_stdin(), "stdin")
    try:
        content = read_whole(path, LARGEST_MANIFEST_BYTES)
    except UnreadableError as error:
        raise UnreadableError(f"{error}; {MANIFEST_ADVICE}") from None
    return parse_manifest(content, str(path))


def read_stdin() -> bytes:
    """Read a manifest that is piped in."""
    if sys.stdin is None:
        raise UnreadableError(f"stdin is closed; {MANIFEST_ADVICE}")
    try:
        content = sys.stdin.buffer.read(LARGEST_MANIFEST_BYTES + 1)
    except OSError as error:
        raise UnreadableError(f"stdin: {error.strerror}; {MANIFEST_ADVICE}") from None
    require_end(content, "stdin", LARGEST_MANIFEST_BYTES)
    return content
