"""Records as the text that a column holds, and back.

In: a record. Out: its canonical JSON, the text that its digest is taken of. A text that
cannot be read any more is a damaged store.
"""

from __future__ import annotations

import json
from typing import TypeVar

from plimsoll_operator.errors import StoreDamagedError
from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.records.record import Record

AnyRecord = TypeVar("AnyRecord", bound=Record)


def text_of(record: Record) -> str:
    """Return the canonical JSON of a record."""
    return json.dumps(
        record.to_json(), allow_nan=False, sort_keys=True, separators=(",", ":")
    )


def record_of(kind: type[AnyRecord], text: str) -> AnyRecord:
    """Read a record of the given kind.

    Raises:
        StoreDamagedError: the text is no such record.
    """
    try:
        return kind.from_json(json.loads(text), f"the store: {kind.__name__}")
    except (InvalidInputError, ValueError) as error:
        raise StoreDamagedError(f"{error}: delete what it belongs to") from None
