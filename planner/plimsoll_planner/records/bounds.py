"""Bounds of single values, and the annotated types that carry them.

A record states its fields with the types at the end of this module; `shape` reads the
bound from the annotation, so that a rule stands in one place and holds both for values
built in Python and for values read from JSON.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated

LARGEST_INTEGER = 2**53 - 1
"""Whole numbers stay exact in every JSON reader, also where all numbers are doubles."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Range:
    """Finite numbers from `minimum` to `maximum`; the minimum itself unless `above`."""

    minimum: float
    maximum: float = math.inf
    above: bool = False
    unit: str = ""

    def holds(self, value: float | Decimal) -> bool:
        """Whether one finite number is inside."""
        if self.above and value <= self.minimum:
            return False
        return self.minimum <= value <= self.maximum

    def __str__(self) -> str:
        """The rule, as an error message and the documentation state it."""
        text = f"{'above' if self.above else 'at least'} {self.minimum:.17g}"
        if self.maximum == LARGEST_INTEGER:
            text += " and at most 2^53 - 1"
        elif self.maximum != math.inf:
            text += f" and at most {self.maximum:.17g}"
        return f"{text} {self.unit}".rstrip()


@dataclass(frozen=True, kw_only=True, slots=True)
class Text:
    """Strings of `shortest` to `longest` printable characters.

    Printable leaves out controls, line ends, and halves of surrogate pairs, which no
    file could hold.
    """

    longest: int
    shortest: int = 0
    lines: bool = False
    """Several lines are allowed."""
    pattern: str | None = None
    """A regular expression that the whole string matches."""
    meaning: str = "printable text"

    def holds(self, value: str) -> bool:
        """Whether one string obeys."""
        if not self.shortest <= len(value) <= self.longest:
            return False
        if not (value.replace("\n", "") if self.lines else value).isprintable():
            return False
        return self.pattern is None or bool(re.fullmatch(self.pattern, value))

    def __str__(self) -> str:
        """The rule, as an error message and the documentation state it."""
        if self.shortest == self.longest:
            return self.meaning
        return f"{self.meaning}, {self.shortest} to {self.longest} characters"


@dataclass(frozen=True, kw_only=True, slots=True)
class JsonObject:
    """A JSON object that somebody else knows the fields of; kept as its text.

    Names are in order, so that equal objects have equal texts.
    """

    longest: int
    """Characters of the text."""

    def __str__(self) -> str:
        """The rule, as an error message and the documentation state it."""
        return f"a mapping, as JSON at most {self.longest} characters"


@dataclass(frozen=True, kw_only=True, slots=True)
class Entries:
    """Lists of at most so many entries."""

    most: int


Bytes = Annotated[int, Range(minimum=0, maximum=LARGEST_INTEGER, unit="bytes")]
LARGEST_DEVICE_BYTES = 2**40
"""1 TiB, over three times the largest GPU of 2026: sums over layers and micro-batches
of amounts up to there are whole numbers of 64 bits."""
DeviceBytes = Annotated[
    int, Range(minimum=1, maximum=LARGEST_DEVICE_BYTES, unit="bytes")
]
Count = Annotated[int, Range(minimum=1, maximum=LARGEST_INTEGER)]
MOST_GPUS = 65_536
"""As many as a search goes through one by one."""
GPUCount = Annotated[int, Range(minimum=1, maximum=MOST_GPUS)]
BatchSize = Annotated[int, Range(minimum=1, maximum=1_000_000, unit="samples")]
"""Of one step; its micro-batches are walked one by one."""
Index = Annotated[int, Range(minimum=0, maximum=LARGEST_INTEGER)]
Seconds = Annotated[float, Range(minimum=0, maximum=1e10, unit="s")]
Fraction = Annotated[float, Range(minimum=0, maximum=1)]
Factor = Annotated[float, Range(minimum=1, maximum=100)]
RelativeError = Annotated[float, Range(minimum=0, maximum=100)]
LARGEST_RATE = 1e18
"""Above every figure of a second."""
Rate = Annotated[float, Range(minimum=0, maximum=LARGEST_RATE, above=True)]
"""FLOP, bytes or samples in a second; the fastest devices reach 1e16."""
Work = Annotated[float, Range(minimum=0, maximum=1e18)]
"""FLOP, or bytes moved, of one layer and pass."""
Price = Annotated[Decimal, Range(minimum=0, maximum=1_000_000_000)]

Name = Annotated[str, Text(shortest=1, longest=256)]
Label = Annotated[str, Text(longest=256)]
Message = Annotated[str, Text(longest=4096, lines=True)]
Currency = Annotated[
    str,
    Text(
        shortest=3,
        longest=3,
        pattern="[A-Z]{3}",
        meaning="an ISO 4217 code such as USD",
    ),
]
Digest = Annotated[
    str,
    Text(
        shortest=71,
        longest=71,
        pattern="sha256:[0-9a-f]{64}",
        meaning="sha256: and 64 hexadecimal digits",
    ),
]
