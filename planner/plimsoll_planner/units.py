"""Bytes and other numbers as people read them, and the hour, which prices are of.

In: numbers or text. Out: text, bytes rounded to the side on which it stays true.
Called by the commands, and wherever an answer is shown in words.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal

MIB, GIB = 2**20, 2**30
UNITS = {"B": 1, "KiB": 2**10, "MiB": MIB, "GiB": GIB, "TiB": 2**40}
QUANTITY = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(B|[KMGT]iB)")
S_PER_HOUR = 3600


def bytes_of(text: str) -> int | None:
    """Bytes of an amount such as `1.5GiB` or `1.50 GiB`; None if it is none."""
    found = QUANTITY.fullmatch(text)
    return int(float(found[1]) * UNITS[found[2]]) if found else None


def product_name(text: str) -> str:
    """Driver's name of a device, as the labels of nodes have it: no blanks.

    So that what was measured in a pod is found again by the product of its node
    (GPU feature discovery writes `NVIDIA-H100-80GB-HBM3`).
    """
    return "-".join(text.split())


def number_text(number: float, num_digits: int = 4) -> str:
    """Number in so many digits, without an exponent, thousands apart: `29,510`."""
    return f"{Decimal(f'{number:.{num_digits}g}'):,f}"


def at_least(num_bytes: int) -> str:
    """Bytes that are needed, rounded up at the second decimal."""
    return in_units(num_bytes, math.ceil)


def at_most(num_bytes: int) -> str:
    """Bytes that are there, rounded down at the second decimal."""
    return in_units(num_bytes, math.floor)


def in_units(num_bytes: int, rounding: Callable[[float], int]) -> str:
    """Bytes in the largest unit of which they are one or more."""
    if num_bytes < MIB:
        return f"{num_bytes} B"
    name, unit = ("MiB", MIB) if num_bytes < GIB else ("GiB", GIB)
    hundredths = rounding(num_bytes * 100 / unit)
    return f"{hundredths / 100:.2f} {name}"
