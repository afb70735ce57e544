"""Values that layers carry past others, as a profile has them: a line of bytes each.

Bytes follow from a value's form, which is known without a probe, and from the unit of
the allocator; they are exact for every micro-batch that was asked for. In: what the
prober knows of the workload. Out: columns, values in the order in which they are sent.
Called by `assemble`.
"""

from __future__ import annotations

from plimsoll_planner.records.carried import CarriedColumns
from plimsoll_planner.records.layer_costs import ByteColumns, Source
from plimsoll_profiler.probing.messages import Frame
from plimsoll_profiler.profiling.line_fit import bytes_line, fit_samples


def carried_columns(frame: Frame, source: Source) -> CarriedColumns:
    """All values; no error is known of their bytes."""
    carried = frame.carried
    lines = [
        fit_samples(frame.micro_batches, one.num_bytes, bytes_line) for one in carried
    ]
    return CarriedColumns(
        name=tuple(one.name for one in carried),
        source=tuple(one.source for one in carried),
        takers=tuple(one.takers for one in carried),
        needs_gradient=tuple(one.needs_gradient for one in carried),
        value=ByteColumns(
            constant_bytes=tuple(line.constant for line in lines),
            slope_bytes_per_sample=tuple(line.slope for line in lines),
            residual_bytes=tuple(line.residual for line in lines),
            relative_error=(0.0,) * len(lines),
            source=(source,) * len(lines),
            probed_bytes=tuple(line.probed for line in lines),
        ),
    )
