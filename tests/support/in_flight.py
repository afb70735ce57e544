"""The rule of numbers in flight, written once more to judge the search by."""

from __future__ import annotations

import itertools
from collections.abc import Iterable


def follow(numbers: Iterable[int]) -> bool:
    """Whether each stage has as many in flight as the one before, or one fewer."""
    return all(k - j in {0, 1} for k, j in itertools.pairwise(numbers))
