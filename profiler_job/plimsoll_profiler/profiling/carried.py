"""Values that layers carry past others, as a profile has them: a line of bytes each.

Bytes follow from a value's form, which is known without a probe, and from the unit of
the allocator; they are exact for every micro-batch that was asked for. In: what the
prober knows of the workload. Out: one `Carried` for each value, in the order in which
they are sent. Called by `assemble`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from plimsoll_planner.records.layer_costs import ByteColumns, Source
from plimsoll_profiler.probing.messages import Frame
from plimsoll_profiler.profiling.line_fit import bytes_line, fit_samples


@dataclass(frozen=True, kw_only=True, slots=True)
class Carried:
    """One value, from its giver to its last taker."""

    name: str
    source: int
    """Layer that gives it, -1 for an input of the model."""
    takers: tuple[int, ...]
    """Layers that take it, in order."""
    micro_batches: tuple[int, ...]
    num_bytes: tuple[int, ...]
    """At each of them; a gradient has as many."""
    needs_gradient: bool

    @property
    def target(self) -> int:
        """The last layer that takes it."""
        return self.takers[-1]


def carried_of(frame: Frame) -> Iterator[Carried]:
    """Yield all values."""
    for one in frame.carried:
        yield Carried(
            name=one.name,
            source=one.source,
            takers=one.takers,
            micro_batches=frame.micro_batches,
            num_bytes=one.num_bytes,
            needs_gradient=one.needs_gradient,
        )


def byte_columns(carried: Sequence[Carried], source: Source) -> ByteColumns:
    """Lines of the bytes of all values, a row each; no error is known of them."""
    lines = [
        fit_samples(one.micro_batches, one.num_bytes, bytes_line) for one in carried
    ]
    return ByteColumns(
        constant_bytes=tuple(line.constant for line in lines),
        slope_bytes_per_sample=tuple(line.slope for line in lines),
        residual_bytes=tuple(line.residual for line in lines),
        relative_error=(0.0,) * len(lines),
        source=(source,) * len(lines),
        probed_bytes=tuple(line.probed for line in lines),
    )
