"""Observed overheads of devices, as a table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from plimsoll_cli.output.tables import print_table
from plimsoll_cli.verbs.calibrations import (
    calibration_table,
    calibrations,
    measured_ranks,
)
from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.records.device_overhead import (
    DeviceOverhead,
    OverheadKey,
    OverheadLine,
    SeenAt,
)
from plimsoll_planner.records.document import to_text
from tests.support import builders


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


@pytest.mark.parametrize("is_nested", [True, False])
def test_what_make_gpu_measured_counts(tmp_path: Path, is_nested: bool) -> None:
    """From its own file or from the ranks alone; learned twice it counts once."""
    made = builders.measured_ranks()
    path = tmp_path / "gpu.json"
    nested = json.dumps({"date": "today", "observed": made.to_json()})
    path.write_text(nested if is_nested else to_text(made))
    words = ["--learn", str(path), "--home", str(tmp_path / "home"), "-o", "json"]
    for _ in range(2):
        done = CliRunner().invoke(calibrations, words)
        assert done.exit_code == 0, done.output
        assert f"1 rank of {path} kept" in done.stderr
        (found,) = json.loads(done.stdout)
        assert found["num_observations"] == 1
        product = made.ranks[0].observation.overhead_key.device_product
        assert found["key"]["device_product"] == product


@pytest.mark.parametrize("text", ["{}", "[", '{"observed": {"ranks": []}}'])
def test_a_file_of_something_else_is_refused(text: str, tmp_path: Path) -> None:
    """Naming the file and what it lacks; nothing is learned."""
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(InvalidInputError, match=r"other\.json"):
        measured_ranks(path)
