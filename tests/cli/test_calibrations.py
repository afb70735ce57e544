"""What was learned of devices, as a table."""

from __future__ import annotations

import pytest

from plimsoll_cli.calibrations import calibration_table
from plimsoll_cli.output import print_table
from plimsoll_planner.records.device_overhead import (
    DeviceOverhead,
    OverheadKey,
    OverheadLine,
    SeenAt,
)


def test_a_table_tells_ranks_plans_and_shortages(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In a column each; and the most bytes of all places where ranks were seen."""
    mib = 2**20
    learned = DeviceOverhead(
        key=OverheadKey(device_product="L4", torch_version="2.15.0"),
        allocator=OverheadLine(),
        outside=OverheadLine(constant_bytes=100 * mib, bytes_per_sample=10 * mib),
        num_observations=24,
        num_plans=3,
        num_shortages=1,
        seen=tuple(SeenAt(micro_batch=b, num_communicators=2) for b in (4, 2)),
    )
    print_table(calibration_table([learned]), less_important=())
    (row,) = [text for text in capsys.readouterr().out.splitlines() if "L4" in text]
    numbers = "24 3 1 up to 0 B up to 140.0 MiB"
    assert row.split() == ["L4", "2.15.0", "-", "-", *numbers.split()]
