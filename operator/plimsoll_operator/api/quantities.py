"""Amounts as Kubernetes writes them: `16Gi` of memory, `500m` of a core.

In: text. Out: bytes or cores. Called where a spec or a node is read, and where pods are
written. A spec may say less than an API server does: nobody needs millibytes.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Annotated, Final

from plimsoll_planner.records.bounds import Text

MEMORY: Final = re.compile(
    r"\+?(?P<number>[0-9]{1,20}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})"
    r"(?:(?P<unit>[numkMGTPE]?|[KMGTPE]i)|[eE](?P<power>[+-]?[0-9]{1,2}))"
)
"""As Kubernetes takes amounts of memory, the negative ones aside."""
MEMORY_UNITS: Final = {
    "": Decimal(1),
    **{unit: Decimal(1000) ** power for power, unit in enumerate("num", -3)},
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
}
NUMBER = r"[0-9]{1,12}(\.[0-9]{1,6})?"
MemoryQuantity = Annotated[
    str,
    Text(
        shortest=1,
        longest=24,
        pattern=rf"{NUMBER}([kMGT]|[KMGT]i)?",
        meaning="an amount of memory such as 512Mi or 16Gi",
    ),
]
CoreQuantity = Annotated[
    str,
    Text(
        shortest=1,
        longest=24,
        pattern=rf"{NUMBER}|[0-9]{{1,12}}m",
        meaning="a number of cores such as 4, 0.5 or 500m",
    ),
]


def memory_bytes(quantity: str) -> int:
    """Bytes of an amount of memory, rounded up.

    Raises:
        ValueError: it is none.
    """
    found = MEMORY.fullmatch(quantity)
    if found is None:
        raise ValueError(f"{quantity!r} is no amount of memory such as 16Gi")
    number = Decimal(f"{found['number']}E{found['power'] or 0}")
    return math.ceil(number * MEMORY_UNITS[found["unit"] or ""])


def amount(quantity: object) -> int:
    """Bytes of an amount of memory, 0 where there is none to be read."""
    try:
        return memory_bytes(str(quantity))
    except ValueError:
        return 0


def cores(quantity: str) -> Decimal:
    """Cores of a `CoreQuantity`."""
    if quantity.endswith("m"):
        return Decimal(quantity.removesuffix("m")) / 1000
    return Decimal(quantity)
