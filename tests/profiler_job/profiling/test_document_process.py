"""The end of a process of ours is one line with the place and the remedy."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from plimsoll_planner.exit_codes import ExitCode
from plimsoll_profiler.errors import (
    BadWorkloadError,
    EntryPointTooLargeError,
    ProbingFailedError,
)
from plimsoll_profiler.profiling.document_process import reason_of

NAME = "prober"
STACK = """Fatal Python error: Segmentation fault

Current thread 0x00007f (most recent call first):
  File "/home/them/kernels.py", line 12 in forward
  File "/home/them/model.py", line 5 in forward
"""


def test_a_signal_is_told_by_name_and_place() -> None:
    """The innermost line of the user's code, which faulthandler writes."""
    found = reason_of(NAME, -11, STACK)
    assert isinstance(found, BadWorkloadError)
    assert str(found) == (
        "the workload's code ended its process with SIGSEGV at "
        "/home/them/kernels.py:12; --debug shows where from"
    )
    assert "with SIGABRT; --debug" in str(reason_of(NAME, -6, ""))


def test_the_exit_code_tells_whose_fault_it_is() -> None:
    """The workload's, or the memory's that was given; all else is the prober's."""
    for status in (ExitCode.BAD_WORKLOAD, ExitCode.DEVICE_OUT_OF_MEMORY):
        found = reason_of(NAME, status, "a warning\nthe line\n")
        assert isinstance(found, BadWorkloadError)
        assert str(found) == "the line"
    full = reason_of(NAME, ExitCode.ENTRY_POINT_OUT_OF_MEMORY, "the line")
    assert isinstance(full, EntryPointTooLargeError)
    assert full.exit_code is ExitCode.ENTRY_POINT_OUT_OF_MEMORY
    assert isinstance(reason_of(NAME, 1, "the line"), ProbingFailedError)
