"""Errors of profiling, as a tree; every message is one line.

    PlimsollError                   (plimsoll_planner.errors)
    └── ProfilerError               ends the profiling run
        ├── NoDeviceError           a device is to be measured, and there is none
        ├── BusyDeviceError         other processes have the memory that was needed
        ├── TracedGraphError        operators are to be measured, and layers are traced
        ├── ReplayFailedError       the replaying process ended without an answer
        ├── ReplayDisagreesError    torch does not behave as the replay believes
        ├── BadWorkloadError        the entry point breaks the workload contract
        │   └── EntryPointTooLargeError     it needs more memory than the device has
        ├── ProbingFailedError      the probing process ended, and not for memory
        └── TooFewProbesError       not enough runs ended well to fit a line

The entry point catches `ProfilerError`, prints its text and exits with its `exit_code`,
or FAILED if it has none.
"""

from __future__ import annotations

from plimsoll_planner.errors import InvalidInputError, PlimsollError
from plimsoll_planner.exit_codes import ExitCode


class ProfilerError(PlimsollError):
    """Ends a profiling run."""


class TooFewProbesError(ProfilerError):
    """A line over the micro-batch needs two different micro-batches."""

    exit_code = ExitCode.DEVICE_OUT_OF_MEMORY


class NoDeviceError(ProfilerError):
    """A device is to be measured, and this machine has none."""


class TracedGraphError(ProfilerError, InvalidInputError):
    """Graphs are asked for of a profile that measures nothing."""

    exit_code = ExitCode.BAD_WORKLOAD


class BusyDeviceError(ProfilerError):
    """A device ran out of memory that other processes use, so it tells nothing."""

    exit_code = ExitCode.DEVICE_BUSY


class ProbingFailedError(ProfilerError):
    """The probing process ended for another reason than memory."""


class ReplayDisagreesError(ProfilerError):
    """This torch keeps other tensors alive than the replay believes."""


class BadWorkloadError(ProfilerError, InvalidInputError):
    """The entry point cannot be used; the text is the prober's own."""

    exit_code = ExitCode.BAD_WORKLOAD


class EntryPointTooLargeError(BadWorkloadError):
    """The entry point itself needs more memory than the device has."""

    exit_code = ExitCode.ENTRY_POINT_OUT_OF_MEMORY


class ReplayFailedError(ProfilerError):
    """The replaying process ended without an answer."""
