"""What a gzip holds, never more of it than there is room for.

In: compressed bytes and a bound. Out: bytes. Called by `objects.record_maps`, for what
a ConfigMap holds.
"""

from __future__ import annotations

import zlib
from typing import Final

from plimsoll_planner.errors import UnreadableError

GZIP: Final = 16 + zlib.MAX_WBITS
"""zlib's word for gzip."""


def inflated(compressed: bytes, limit_bytes: int) -> bytes:
    """Return what a gzip holds.

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
