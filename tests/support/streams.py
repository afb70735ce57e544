"""Data sets for tests that can only be read from their beginning on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor
from torch.utils.data import IterableDataset

from tests.support.workloads import tokens


class Rows(IterableDataset[tuple[Tensor, Tensor]]):
    """Random tokens, so many samples in an epoch; counts what was read of it."""

    def __init__(self, length: int) -> None:
        """Take the number of samples."""
        self.length = length
        self.num_read = 0

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Read all, from the first on."""
        for row in range(self.length):
            self.num_read += 1
            yield self.at(row)

    @staticmethod
    def at(row: int) -> tuple[Tensor, Tensor]:
        """One sample."""
        x, y = tokens(0, row, 1)
        return x[0], y[0]


class RowsWithState(Rows):
    """The same, which knows where it is, as streams of `datasets` do."""

    def __init__(self, length: int) -> None:
        """Begin at the first."""
        super().__init__(length)
        self._first = self._next = 0

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Read on from where a state was, or from the first."""
        for row in range(self._first, self.length):
            self.num_read += 1
            self._next = row + 1
            yield self.at(row)

    def state_dict(self) -> dict[str, Any]:
        """Index of the sample that follows."""
        return {"next": self._next}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Begin there."""
        self._first = self._next = state["next"]


class RowsThatSkip(Rows):
    """The same, which can leave some out."""

    def skip(self, count: int) -> Rows:
        """All but the first so many."""
        rest = Rows(max(self.length - count, 0))
        rest.at = lambda row: Rows.at(row + count)  # type: ignore[method-assign]
        return rest
