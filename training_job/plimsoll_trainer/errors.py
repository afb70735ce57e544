"""What can go wrong in a training pod, as a tree; every message is one line.

    PlimsollError                       (plimsoll_planner.errors)
    └── TrainerError                    ends the rank
        ├── ForeignFingerprintError     the plan was made for other code or versions
        ├── MissingSourceError          the workload's source cannot be read
        ├── WorkloadError               the entry point breaks the workload contract
        ├── PlanMismatchError           the plan is for another world or workload
        ├── CheckpointError             a checkpoint cannot be read, or is foreign
        ├── NoGpuError                  the plan is for GPUs, and there is none
        ├── NoEmulatedDeviceError       there is no GPU and no stand-in for one
        ├── DeviceFullError             out of device memory
        ├── LostRankError               another rank went away
        └── NotSavedError               asked to stop, with nowhere to save

The entry points catch `TrainerError`, print its text and exit with its `exit_code`.
`described` is how a message quotes what somebody else's code raised, and `causes` walks
what that was raised from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from plimsoll_planner.errors import PlimsollError
from plimsoll_trainer.exit_codes import ExitCode


class TrainerError(PlimsollError):
    """Ends a rank before or during training."""

    exit_code: ClassVar[ExitCode] = ExitCode.FAILED


class ForeignFingerprintError(TrainerError):
    """The plan in hand was made for other code or versions; profile again."""

    exit_code = ExitCode.FOREIGN_FINGERPRINT


class MissingSourceError(TrainerError):
    """The entry point names a module whose source file cannot be found."""

    exit_code = ExitCode.BAD_WORKLOAD


class WorkloadError(TrainerError):
    """The entry point breaks the workload contract; no use in trying again."""

    exit_code = ExitCode.BAD_WORKLOAD


class PlanMismatchError(TrainerError):
    """The plan is for another number of ranks, or for another workload."""


class CheckpointError(TrainerError):
    """A checkpoint is corrupt, or was written for another model."""


class NoGpuError(TrainerError):
    """The plan is for GPUs and this process sees none; it never trains on the CPU."""


class DeviceFullError(TrainerError):
    """A rank ran out of device memory; says where, and what was asked for."""

    exit_code = ExitCode.DEVICE_OUT_OF_MEMORY


class LostRankError(TrainerError):
    """Another rank went away; that one says why."""


class NotSavedError(TrainerError):
    """The rank was asked to stop and has no folder to save into."""


class NoEmulatedDeviceError(TrainerError):
    """The library of the emulated device cannot be built, or was not preloaded."""


def described(error: BaseException) -> str:
    """Return what was raised, and the first line of its text."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it was raised from, as far as a traceback shows it."""
    above: BaseException | None = error
    while above is not None:
        yield above
        hidden = above.__suppress_context__  # raise .. from None, or from a cause
        above = above.__cause__ if hidden else above.__context__
