"""A body off the wire, never larger than it may be.

In: a request whose body nobody has read. Out: bytes of JSON. Called by `server` once
the sender is known. Each part counts while it comes in. Pods of the release before send
large bodies as gzip; what it inflates to counts as well.
"""

from __future__ import annotations

import asyncio
import zlib
from http import HTTPStatus

from aiohttp import web

from plimsoll_operator.errors import RefusedReportError
from plimsoll_operator.ingest.limits import Claim
from plimsoll_operator.objects.bounded import GZIP
from plimsoll_planner.errors import UnreadableError, shorten

WHOLE_S, PAUSE_S = 60.0, 10.0
"""At most, for a whole body and between two parts of it."""
STEP_BYTES = 2**20
"""Inflated at once; the loop does other work between two steps."""


async def read_body(request: web.BaseRequest, limit_bytes: int, claim: Claim) -> bytes:
    """Body of a request that nobody has read; `claim` grows with what is held.

    Raises:
        RefusedReportError: too large, too slow, or there is no room now.
        UnreadableError: no gzip, or another encoding.
    """
    if (request.content_length or 0) > limit_bytes:
        raise too_large(limit_bytes)
    encoding = request.headers.get("Content-Encoding", "identity").lower()
    if encoding not in {"identity", "gzip"}:
        raise UnreadableError(
            f"Content-Encoding {shorten(encoding)}: send the document as it is"
        )
    body = bytearray()
    try:
        async with asyncio.timeout(WHOLE_S):
            while part := await asyncio.wait_for(request.content.readany(), PAUSE_S):
                if len(body) + len(part) > limit_bytes:
                    raise too_large(limit_bytes)
                claim.grow(len(part))
                body += part
    except TimeoutError:
        raise RefusedReportError(
            HTTPStatus.REQUEST_TIMEOUT,
            f"the body took too long: {WHOLE_S:g} s in all, {PAUSE_S:g} s a part",
        ) from None
    if encoding == "gzip":
        body = await inflated(bytes(body), limit_bytes, claim)
    return bytes(body)


async def inflated(compressed: bytes, limit_bytes: int, claim: Claim) -> bytearray:
    """Content of a gzip; `claim` grows with it.

    Raises:
        RefusedReportError: too large, or there is no room now.
        UnreadableError: it is no whole gzip.
    """
    inflater, body = zlib.decompressobj(GZIP), bytearray()
    while not inflater.eof:
        try:
            part = inflater.decompress(compressed, STEP_BYTES)
        except zlib.error as error:
            raise UnreadableError(f"the body is no gzip: {error}") from None
        compressed = inflater.unconsumed_tail
        if not part and not compressed:
            raise UnreadableError("the body is no whole gzip")
        if len(body) + len(part) > limit_bytes:
            raise too_large(limit_bytes)
        claim.grow(len(part))
        body += part
        await asyncio.sleep(0)
    return body


def too_large(limit_bytes: int) -> RefusedReportError:
    """Answer to a body that is larger than it may be."""
    return RefusedReportError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"larger than the {limit_bytes} bytes that it may have",
    )
