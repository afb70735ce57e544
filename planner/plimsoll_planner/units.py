"""Bytes as people read them, rounded to the side on which they stay true.

In: bytes. Out: text. Called wherever an answer is shown in words. Also
the hour, in which prices are stated.
"""

from __future__ import annotations

import math
from collections.abc import Callable

MIB, GIB = 2**20, 2**30
S_PER_HOUR = 3600


def product_name(text: str) -> str:
    """Driver's name of a device, as the labels of nodes have it: no blanks.

    So that what was measured in a pod is found again by the product of its node
    (GPU feature discovery writes `NVIDIA-H100-80GB-HBM3`).
    """
    return "-".join(text.split())


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
