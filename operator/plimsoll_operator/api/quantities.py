"""Amounts as Kubernetes writes them: `16Gi` of memory, `500m` of a core.

In: text. Out: bytes or cores. Called where a spec is read, and where pods are written.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from plimsoll_planner.records.bounds import Text

DECIMAL_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
BINARY_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
NUMBER = r"[0-9]{1,12}(\.[0-9]{1,6})?"
MEMORY = rf"{NUMBER}([kMGT]|[KMGT]i)?"
MemoryQuantity = Annotated[
    str,
    Text(
        shortest=1,
        longest=24,
        pattern=MEMORY,
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
    """Return the bytes of a `MemoryQuantity`, rounded up."""
    number = quantity.rstrip("kKMGTi")
    unit = (DECIMAL_UNITS | BINARY_UNITS)[quantity.removeprefix(number)]
    amount = Decimal(number) * unit
    return int(amount.to_integral_value(rounding="ROUND_CEILING"))


def cores(quantity: str) -> Decimal:
    """Return the cores of a `CoreQuantity`."""
    if quantity.endswith("m"):
        return Decimal(quantity.removesuffix("m")) / 1000
    return Decimal(quantity)
