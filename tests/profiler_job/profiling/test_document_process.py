"""The end of a process of ours is one line with the place and the remedy."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("torch")

from plimsoll_planner.exit_codes import ExitCode
from plimsoll_planner.records.document import to_text
from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.offer import Offer
from plimsoll_profiler.errors import (
    BadWorkloadError,
    EntryPointTooLargeError,
    ProbingFailedError,
)
from plimsoll_profiler.profiling import document_process
from plimsoll_profiler.profiling.document_process import (
    DocumentProcess,
    ProcessKilledError,
    reason_of,
)
from plimsoll_profiler.profiling.request import ProfileRequest
from tests.support.builders import an_offer

NAME = "prober"
STACK = """Fatal Python error: Segmentation fault

Current thread 0x00007f (most recent call first):
  File "/home/them/kernels.py", line 12 in forward
  File "/home/them/model.py", line 5 in forward
"""


def test_a_signal_is_reported_by_name_and_place() -> None:
    """The innermost line of the user's code, which faulthandler writes."""
    found = reason_of(NAME, -11, STACK)
    assert isinstance(found, BadWorkloadError)
    assert str(found) == (
        "the workload's code ended its process with SIGSEGV at "
        "/home/them/kernels.py:12; --debug shows where from"
    )
    assert "with SIGABRT; --debug" in str(reason_of(NAME, -6, ""))


def test_the_exit_code_follows_from_whose_fault_it_is() -> None:
    """The workload's, or the memory's that was given; all else is the prober's."""
    for status in (ExitCode.BAD_WORKLOAD, ExitCode.DEVICE_OUT_OF_MEMORY):
        found = reason_of(NAME, status, "a warning\nthe line\n")
        assert isinstance(found, BadWorkloadError)
        assert str(found) == "the line"
    full = reason_of(NAME, ExitCode.ENTRY_POINT_OUT_OF_MEMORY, "the line")
    assert isinstance(full, EntryPointTooLargeError)
    assert full.exit_code is ExitCode.ENTRY_POINT_OUT_OF_MEMORY
    assert isinstance(reason_of(NAME, 1, "the line"), ProbingFailedError)


WRITES = """
import os, signal, sys
whole, end = sys.argv[1:]
sys.stdout.write(whole + "\\n" + whole[:9])
sys.stdout.flush()
if end == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("end", "error"), [("killed", ProcessKilledError), ("done", ProbingFailedError)]
)
def test_half_a_line_is_judged_by_the_end_of_its_process(
    end: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole documents before it are read; half of one is none."""
    whole = an_offer()
    monkeypatch.setattr(
        document_process, "command_of", lambda _: (sys.executable, "-c", WRITES)
    )
    request = ProfileRequest(
        entrypoint="examples.mlp:workload",
        device_kind=DeviceKind.CUDA,
        source=Source.TRACED,
    )
    found: list[Offer] = []
    with DocumentProcess(NAME, request, to_text(whole), end) as process:  # noqa: SIM117
        with pytest.raises(error):
            found += process.documents(type(whole))
    assert found == [whole]
