"""Batches out of a data set that can only be read from its beginning on.

    sample n of the whole training  ->  n samples after the beginning, read again and
                                        again where it ends before

The position follows from the step, as everywhere, so each rank that makes data reads
all of the stream and keeps what is its own, and every plan sees the same samples. After
a resume a data set with a `state_dict` goes on where a checkpoint knows it to be; one
with a `skip` is asked to skip; any other is read up to there.

In: what can be iterated: `IterableDataset` of torch, streams of `datasets`, or anything
else that begins anew each time. Out: a `MakeBatch` with a position. Used by workloads.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.evaluation import stacked
from plimsoll_trainer.workload import Batch

NOTHING = object()
"""After the last sample."""


@dataclass(kw_only=True)
class Stream:
    """A `MakeBatch` that reads on from wherever it stands."""

    samples: Iterable[Any]
    """Begins anew, and with the same samples, each time that it is iterated."""
    convert: Callable[[Any], Batch] | None = None
    """Makes input and target of a sample, where it is something else than these two."""
    keeps_state: bool = True
    """False for one whose `state_dict` loses samples, as a shuffle buffer does: it is
    then read from its beginning."""
    samples_per_step: int = 1
    """Of the global batch, which the trainer fills in."""
    most_workers: ClassVar[int] = 1
    """Several would all read everything."""
    _read: Any = field(default=None, init=False, repr=False)
    """That is iterated: `samples`, or a copy that began elsewhere."""
    _iterator: Iterator[Any] | None = field(default=None, init=False, repr=False)
    _position: int = field(default=0, init=False, repr=False)
    """Samples read of the whole training."""
    _epoch: int = field(default=0, init=False, repr=False)
    _in_epoch: int = field(default=0, init=False, repr=False)
    """Samples read of this epoch."""
    _resumed: dict[str, Any] | None = field(default=None, init=False, repr=False)
    """A state of an earlier attempt."""

    def __call__(self, step: int, first: int, count: int) -> Batch:
        """Make samples of a step's global batch.

        Returns:
            Inputs and targets, of shape [count, ...] each.

        Raises:
            WorkloadError: the data set is empty, or cannot be read twice.
        """
        self._go_to(step * self.samples_per_step + first)
        pairs = [self._converted(self._next()) for _ in range(count)]
        return stacked(pairs)

    def state(self) -> str:
        """Position, and the data set's own state there, as JSON; empty if it has none.

        A position is of a sample that every rank still needs, or an earlier one, if it
        is read on the first rank.
        """
        if not (self.keeps_state and hasattr(self._read, "state_dict")):
            return ""
        if has_shuffle_buffer(self._read):
            return ""
        found = {
            "position": self._position,
            "epoch": self._epoch,
            "in_epoch": self._in_epoch,
            "state": self._read.state_dict(),
        }
        try:
            return json.dumps(found)
        except (TypeError, ValueError):  # then it is read again from its beginning
            return ""

    def resume(self, state: str) -> None:
        """Begin where a checkpoint was, as soon as a sample behind that is wanted."""
        self._resumed, self._iterator = (json.loads(state) if state else None), None

    def _go_to(self, position: int) -> None:
        """Stand before a sample of the whole training."""
        if self._iterator is None or position < self._position:
            self._begin(position)
        while self._position < position:
            self._next()

    def _begin(self, position: int) -> None:
        """Begin anew, as near before a position as can be known."""
        known = self._resumed
        if known is not None and known["position"] <= position:
            self._read = copy.deepcopy(self.samples)
            set_epoch(self._read, known["epoch"])
            self._read.load_state_dict(known["state"])
            self._iterator = iter(self._read)
            self._position = known["position"]
            self._epoch, self._in_epoch = known["epoch"], known["in_epoch"]
            return
        self._begin_epoch(0)
        self._position = 0
        skip = getattr(self.samples, "skip", None)
        if position == 0 or skip is None or hasattr(self.samples, "state_dict"):
            return
        self._read = skip(position)
        iterator = iter(self._read)
        following = next(iterator, NOTHING)
        if following is NOTHING:  # it ends before, nobody knows where
            self._begin_epoch(0)
            return
        self._iterator = joined(following, iterator)
        self._position = self._in_epoch = position

    def _begin_epoch(self, epoch: int) -> None:
        """Begin anew."""
        set_epoch(self.samples, epoch)
        self._read = self.samples
        self._iterator = iter(self.samples)
        if self._iterator is self.samples:
            raise WorkloadError(
                f"the stream {type(self.samples).__name__} can be read once alone: "
                "give one whose __iter__ begins anew, not an iterator or a generator"
            )
        self._epoch, self._in_epoch = epoch, 0

    def _next(self) -> Any:
        """The sample that follows; the first one after the last."""
        assert self._iterator is not None  # noqa: S101 - `_go_to` comes first
        sample = next(self._iterator, NOTHING)
        if sample is NOTHING:
            if not self._in_epoch:
                raise WorkloadError("the stream has no samples: give it some")
            self._begin_epoch(self._epoch + 1)
            return self._next()
        self._position += 1
        self._in_epoch += 1
        return sample

    def _converted(self, sample: Any) -> Batch:
        """Input and target of a sample."""
        return sample if self.convert is None else self.convert(sample)


def set_epoch(samples: object, epoch: int) -> None:
    """Let a data set that has an order of its own for each epoch know which it is."""
    set_own = getattr(samples, "set_epoch", None)
    if set_own is not None:
        set_own(epoch)


def joined(first: Any, others: Iterator[Any]) -> Iterator[Any]:
    """Yield one sample, then the others."""
    yield first
    yield from others


def has_shuffle_buffer(samples: object) -> bool:
    """Whether a stream of `datasets` shuffles in a buffer, which no state of it holds.

    It then begins at a state with an empty buffer, and some samples are lost.
    """
    inner = getattr(samples, "_ex_iterable", None)
    while inner is not None:
        if "BufferShuffled" in type(inner).__name__:
            return True
        inner = getattr(inner, "ex_iterable", None)
    return False
