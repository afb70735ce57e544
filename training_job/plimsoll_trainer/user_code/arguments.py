"""The arguments of an entry point, from the command line.

Imports no torch: a plan for other arguments is refused before it is loaded.
"""

from __future__ import annotations

import json
from typing import Any, cast

from plimsoll_trainer.errors import WorkloadError


def parse_arguments(text: str) -> dict[str, Any]:
    """The arguments of an entry point, by name, from the text of a JSON object.

    Raises:
        WorkloadError: it is something else.
    """
    try:
        found: object = json.loads(text)
    except ValueError as error:
        raise WorkloadError(
            f"arguments {text!r} are no JSON: {error}; give an object such as "
            '{"depth": 12}'
        ) from None
    if not isinstance(found, dict):
        raise WorkloadError(
            f"arguments {text!r} are {type(found).__name__}, but a JSON object is "
            'needed, such as {"depth": 12}'
        )
    return cast("dict[str, Any]", found)
