"""A body off the wire, never larger than it may be, and inflated with the same bound.

In: a request whose body aiohttp leaves as it was sent. Out: bytes of JSON. Called by
`server` once it is known who tells. What was sent counts while it comes in, and so
does what it inflates to: 100 MB of zeros fit into 100 kB of gzip.
"""

from __future__ import annotations

import asyncio
import zlib
from http import HTTPStatus

from aiohttp import web

from plimsoll_operator.errors import RefusedReportError
from plimsoll_operator.gzips import GZIP
from plimsoll_operator.ingest.limits import Claim
from plimsoll_planner.errors import UnreadableError, shorten

WHOLE_S, PAUSE_S = 60.0, 10.0
"""At most, for a whole body and between two parts of it."""
STEP_BYTES = 2**20
"""That are inflated at once; the loop does other work between two steps."""


async def read_body(request: web.BaseRequest, limit_bytes: int, claim: Claim) -> bytes:
    """Return the body of a request, inflated.

    Args:
        request: whose body nobody has read.
        limit_bytes: that the body may have, before and after it is inflated.
        claim: grows with what is held.

    Raises:
        RefusedReportError: too large, too slow, or there is no room now.
        UnreadableError: no gzip, or another encoding.
    """
    if (request.content_length or 0) > limit_bytes:
        raise too_large(limit_bytes)
    encoding = request.headers.get("Content-Encoding", "identity").lower()
    if encoding not in ("identity", "gzip"):
        raise UnreadableError(
            f"Content-Encoding {shorten(encoding)}: send gzip or leave it out"
        )
    body = Body(limit_bytes, claim, is_gzip=encoding == "gzip")
    try:
        async with asyncio.timeout(WHOLE_S):
            await receive(request, body)
    except TimeoutError:
        raise RefusedReportError(
            HTTPStatus.REQUEST_TIMEOUT,
            f"the body took too long: {WHOLE_S:g} s in all, {PAUSE_S:g} s a part",
        ) from None
    return body.whole()


async def receive(request: web.BaseRequest, body: Body) -> None:
    """Take a body in, part by part.

    Raises:
        TimeoutError: no part came for long.
    """
    while True:
        async with asyncio.timeout(PAUSE_S):
            part = await request.content.readany()
        if not part:
            return
        await body.add(part)


class Body:
    """A body as it grows."""

    def __init__(self, limit_bytes: int, claim: Claim, *, is_gzip: bool) -> None:
        """Begin empty; see `read_body`."""
        self._limit_bytes = limit_bytes
        self._claim = claim
        self._inflater = zlib.decompressobj(GZIP) if is_gzip else None
        self._bytes = bytearray()

    async def add(self, part: bytes) -> None:
        """Take a part of what was sent.

        Raises:
            RefusedReportError: it is too large by now, or there is no room.
            UnreadableError: it is no gzip.
        """
        if self._inflater is None:
            self._append(part)
            return
        while part:
            try:
                self._append(self._inflater.decompress(part, STEP_BYTES))
            except zlib.error as error:
                raise UnreadableError(f"the body is no gzip: {error}") from None
            if self._inflater.unused_data:
                raise UnreadableError("the body goes on behind the end of its gzip")
            part = self._inflater.unconsumed_tail
            await asyncio.sleep(0)

    def _append(self, part: bytes) -> None:
        """Keep a part.

        Raises:
            RefusedReportError: it is too large by now, or there is no room.
        """
        if len(self._bytes) + len(part) > self._limit_bytes:
            raise too_large(self._limit_bytes)
        self._claim.grow(len(part))
        self._bytes += part

    def whole(self) -> bytes:
        """Return all of it.

        Raises:
            UnreadableError: its gzip breaks off.
        """
        if self._inflater is not None and not self._inflater.eof:
            raise UnreadableError("the body breaks off within its gzip")
        return bytes(self._bytes)


def too_large(limit_bytes: int) -> RefusedReportError:
    """Return the answer to a body that is larger than it may be."""
    return RefusedReportError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"larger than the {limit_bytes} bytes that it may have",
    )
