"""Pieces of a loss in pieces that stand for all of them.

Pieces of a sample are alike but for the last one, which may be smaller, and so are
samples. A pass holds most bytes within a piece, behind one of the same size or behind
the last one of a sample. So these show all bytes:

    first sample     first piece, second one, last one
    second sample    first piece

Each is counted as often as there are pieces like it: 128,000 tokens of eight samples in
pieces of 1,024 are four pieces in place of a thousand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from plimsoll_profiler.counting.work_counter import WorkCounter


@dataclass(kw_only=True, slots=True)
class FewPieces:
    """Places of these pieces (`token_pieces.Places`)."""

    counter: WorkCounter = field(default_factory=WorkCounter)
    """Of the work of a pass; it counts nothing unless it is entered."""

    def __call__(self, num_samples: int, firsts: range) -> Iterator[tuple[int, int]]:
        """Yield sample and first token of pieces; each counts for those like it."""
        for place, times in standing_for(num_samples, firsts):
            since = self.counter.work
            yield place
            self.counter.repeat(since, times - 1)


def standing_for(
    num_samples: int, firsts: range
) -> Iterator[tuple[tuple[int, int], int]]:
    """Yield pieces, each with the number of those that it stands for."""
    first, last = firsts[0], firsts[-1]
    yield (0, first), 1
    if len(firsts) > 2:  # noqa: PLR2004 - there are pieces between first and last
        yield (0, firsts[1]), num_samples * (len(firsts) - 2)
    if last != first:
        yield (0, last), num_samples
    if num_samples > 1:
        yield (1, first), num_samples - 1
