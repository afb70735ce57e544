"""Exit codes are read by whoever started the process; they must not change."""

from __future__ import annotations

from plimsoll_planner.exit_codes import ExitCode

TAKEN = {2, 14, 201, 202, 247, *range(126, 166)}
"""By Python, shells, signals, and hardware faults in other operators."""


def test_reserved_codes_stay_clear_of_taken_ones() -> None:
    """A reserved code can mean nothing else."""
    assert not TAKEN & {code.value for code in ExitCode}


def test_codes_are_what_other_releases_expect() -> None:
    """An operator and a trainer of different releases understand each other."""
    assert {code.name: code.value for code in ExitCode} == {
        "DONE": 0,
        "FAILED": 1,
        "FOREIGN_FINGERPRINT": 81,
        "BAD_WORKLOAD": 82,
        "DEVICE_OUT_OF_MEMORY": 83,
        "CHECKPOINTED": 84,
        "UNUSABLE_CHECKPOINT": 85,
        "UNEQUAL_REPLICAS": 86,
        "ENTRY_POINT_OUT_OF_MEMORY": 87,
        "INCOMPATIBLE": 88,
        "DEVICE_BUSY": 89,
        "HOST_FULL": 90,
        "NO_LOSS": 91,
    }
