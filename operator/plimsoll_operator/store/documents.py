"""Records out of the text that a column holds.

In: the canonical JSON of a record (`canonical_text`). Out: the record. A text that is
none any more is a damaged store.
"""

from __future__ import annotations

import json
from typing import TypeVar

from plimsoll_operator.errors import StoreDamagedError
from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.records.record import Record

AnyRecord = TypeVar("AnyRecord", bound=Record)


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
