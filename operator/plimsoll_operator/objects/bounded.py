"""Documents of others, read within bounds of memory, also gzipped.

In: bytes, and a bound. Out: a document or bytes, or an error. Called by `ingest.server`
for reports of pods, and by `record_maps` for ConfigMaps, which anybody with rights in a
namespace can make.
"""

from __future__ import annotations

import zlib
from typing import Final, TypeVar

from plimsoll_planner.errors import UnreadableError
from plimsoll_planner.records.document import Document, from_text

MOST_PARTS: Final = 400_000
"""Lists, mappings and their fields. In Python an empty list or a field takes 64 bytes
and more, so that 32 MiB of them were 700 MiB."""
MOST_ENTRIES: Final = 2_000_000
"""Commas: a number takes 40 bytes. A profile of 1e5 layers has 5e5 entries in a few
columns."""
GZIP: Final = 16 + zlib.MAX_WBITS
"""zlib's word for gzip."""

AnyDocument = TypeVar("AnyDocument", bound=Document)


def bounded_document(text: bytes, kind: type[AnyDocument]) -> AnyDocument:
    """The document in a text.

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


def inflated(compressed: bytes, limit_bytes: int) -> bytes:
    """The content of a gzip, never more of it than there is room for.

    Raises:
        UnreadableError: it is no gzip, or holds more than it may.
    """
    inflater = zlib.decompressobj(GZIP)
    try:
        found = inflater.decompress(compressed, limit_bytes + 1)
    except zlib.error as error:
        raise UnreadableError(f"no gzip: {error}") from None
    if not inflater.eof or len(found) > limit_bytes:
        raise UnreadableError(f"no whole gzip of at most {limit_bytes} bytes")
    return found
