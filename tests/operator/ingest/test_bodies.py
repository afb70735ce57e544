"""Bodies off the wire: bounded before and after they are inflated."""

from __future__ import annotations

import asyncio
import gzip
import os
import tracemalloc

import pytest

from plimsoll_operator.errors import RefusedReportError
from plimsoll_operator.ingest.bodies import Body
from plimsoll_operator.ingest.limits import Room
from plimsoll_planner.errors import UnreadableError

MIB = 2**20


def read(sent: bytes, limit: int, *, is_gzip: bool, part: int = 65536) -> bytes:
    """Return a body that was sent in parts."""
    room = Room(most_bytes=limit, most_bytes_each=limit)

    async def work() -> bytes:
        with room.claim("team") as claim:
            body = Body(limit, claim, is_gzip=is_gzip)
            for start in range(0, len(sent), part):
                await body.add(sent[start : start + part])
            whole = body.whole()
            assert claim.held_bytes == len(whole)
            return whole

    return asyncio.run(work())


@pytest.mark.parametrize("part", [1, 7, 100_000])
def test_a_body_is_what_was_sent(part: int) -> None:
    """In whatever parts it came, compressed or not; random bytes do not shrink."""
    content = os.urandom(1000) + bytes(3000)
    assert read(content, 4000, is_gzip=False, part=part) == content
    assert read(gzip.compress(content), 4000, is_gzip=True, part=part) == content


@pytest.mark.parametrize("is_gzip", [True, False])
def test_a_byte_too_many_is_one_too_many(is_gzip: bool) -> None:
    """The bound holds for what the body is, not for what was sent."""
    sent = gzip.compress(bytes(1000)) if is_gzip else bytes(1000)
    assert len(read(sent, 1000, is_gzip=is_gzip)) == 1000
    with pytest.raises(RefusedReportError, match="larger than the 999 bytes") as no:
        read(sent, 999, is_gzip=is_gzip)
    assert no.value.status == 413


def test_zeros_never_sit_in_memory() -> None:
    """100 MB of them in 100 kB of gzip are refused at the limit."""
    bomb = gzip.compress(bytes(100 * MIB))
    tracemalloc.start()
    with pytest.raises(RefusedReportError, match="larger than"):
        read(bomb, 2 * MIB, is_gzip=True, part=len(bomb))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 8 * MIB


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"no gzip at all", "the body is no gzip"),
        (gzip.compress(b"whole")[:-1], "breaks off"),
        (b"", "breaks off"),
        (gzip.compress(b"one") + gzip.compress(b"two"), "goes on behind"),
    ],
)
def test_what_is_no_gzip_is_refused(sent: bytes, said: str) -> None:
    """Nor what breaks off, or goes on."""
    with pytest.raises(UnreadableError, match=said):
        read(sent, 1000, is_gzip=True)
