"""Documents that others wrote, read within bounds of memory.

In: JSON as bytes. Out: a document, or an error. Called by `ingest.server` for what pods
tell, and by `objects.record_maps` for what a ConfigMap holds: whoever may write such in
a namespace can make one.
"""

from __future__ import annotations

from typing import Final, TypeVar

from plimsoll_planner.errors import UnreadableError
from plimsoll_planner.records.document import Document, from_text

MOST_PARTS: Final = 400_000
"""Lists, mappings and their fields. In Python an empty list or a field takes 64 bytes
and more, so that 32 MiB of them were 700 MiB."""
MOST_ENTRIES: Final = 2_000_000
"""Commas: a number takes 40 bytes. A profile of 1e5 layers has 5e5 entries in a few
columns."""

AnyDocument = TypeVar("AnyDocument", bound=Document)


def bounded_document(text: bytes, kind: type[AnyDocument]) -> AnyDocument:
    """Return what a text tells.

    Raises:
        InvalidInputError: it is no such document, or would take too much memory.
    """
    num_parts = sum(map(text.count, (b"[", b"{", b":")))
    if num_parts > MOST_PARTS or text.count(b",") > MOST_ENTRIES:
        raise UnreadableError(
            f"{kind.__name__}: more than {MOST_PARTS} lists, mappings and fields, or "
            f"more than {MOST_ENTRIES} entries"
        )
    return from_text(text, kind)
