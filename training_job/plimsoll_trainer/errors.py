"""What can go wrong in a training pod, as a tree; every message is one line.

    PlimsollError                       (plimsoll_planner.errors)
    └── TrainerError                    ends the rank
        ├── ForeignFingerprintError     the plan was made for other code or versions
        ├── MissingSourceError          the workload's source cannot be read
        └── NoEmulatedDeviceError       there is no GPU and no stand-in for one

The entry points catch `TrainerError`, print its text and exit with its `exit_code`.
"""

from __future__ import annotations

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


class NoEmulatedDeviceError(TrainerError):
    """The library of the emulated device cannot be built, or was not preloaded."""
