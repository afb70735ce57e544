"""Records out of the text that a column holds.

In: the canonical JSON of a record (`canonical_text`). Out: the record. A text that is
none any more is a damaged store. What may be large (profiles, problems, answers) goes
through a thread: reading the answer of a search over eight layers took 0.1 s, and a
loop has thousands of plans and their pods to answer meanwhile.
"""

from __future__ import annotations

import asyncio
import json
from typing import TypeVar

from plimsoll_operator.errors import StoreDamagedError
from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.records.document import canonical_text, digest_of
from plimsoll_planner.records.record import Record

AnyRecord = TypeVar("AnyRecord", bound=Record)


async def large_record_of(kind: type[AnyRecord], text: str) -> AnyRecord:
    """Read a record that may be large, beside the loop.

    Raises:
        StoreDamagedError: the text is no such record.
    """
    return await asyncio.to_thread(record_of, kind, text)


async def large_text_of(record: Record) -> str:
    """The canonical JSON of a record that may be large."""
    return await asyncio.to_thread(canonical_text, record)


async def large_digest_of(record: Record) -> str:
    """The digest of a record that may be large."""
    return await asyncio.to_thread(digest_of, record)


def record_of(kind: type[AnyRecord], text: str) -> AnyRecord:
    """Read a record of the given kind.

    Raises:
        StoreDamagedError: the text is no such record.
    """
    try:
        return kind.from_json(json.loads(text), kind.__name__)
    except (InvalidInputError, ValueError, RecursionError) as error:
        raise StoreDamagedError(
            f"the store holds what this version cannot read: {error}: restore it, or "
            "begin with an empty one"
        ) from None
