"""Exit codes of training and profiling processes, and their meaning.

The numbers stay clear of those with a meaning already: 1 and 2 (Python), 14, 201, 202
and 247 (hardware and host memory in other operators), 126 to 165 (shell and signals).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class ExitCode(IntEnum):
    """Reserved exit codes of trainer and profiler."""

    DONE = 0
    FAILED = 1
    """The workload raised; the root-cause line is in the report."""
    FOREIGN_FINGERPRINT = 81
    """The plan or profile is for other code or versions: profile again, once."""
    BAD_WORKLOAD = 82
    """The entry point breaks the workload contract; no use in trying again."""
    DEVICE_OUT_OF_MEMORY = 83
    """A rank ran out of device memory: widen the interval, plan again."""
    CHECKPOINTED = 84
    """Asked to stop, and everything was saved: resume later."""
    UNUSABLE_CHECKPOINT = 85
    """There is none to go on from: missing, broken, or of another training; no use in
    trying again."""
    UNEQUAL_REPLICAS = 86
    """Ranks that hold the same tensor built different values; no use in trying
    again."""
    ENTRY_POINT_OUT_OF_MEMORY = 87
    """The entry point itself needs more memory than the device has, whatever is
    planned; no use in trying again."""
    INCOMPATIBLE = 88
    """Python, torch or numpy are missing or too old here; no use in trying again."""
    DEVICE_BUSY = 89
    """A rehearsal ran out of device memory beside other processes: no evidence."""
    HOST_FULL = 90
    """The machine, or the pod, has less memory than optimizers take there that the plan
    keeps on the host: try with more."""
    NO_LOSS = 91
    """The loss is not finite: the same steps would give the same, so there is no use in
    trying again."""


DECISIVE: Final = (
    ExitCode.INCOMPATIBLE,
    ExitCode.ENTRY_POINT_OUT_OF_MEMORY,
    ExitCode.HOST_FULL,
    ExitCode.DEVICE_OUT_OF_MEMORY,
    ExitCode.FOREIGN_FINGERPRINT,
    ExitCode.BAD_WORKLOAD,
    ExitCode.UNUSABLE_CHECKPOINT,
    ExitCode.UNEQUAL_REPLICAS,
    ExitCode.NO_LOSS,
    ExitCode.DEVICE_BUSY,
)
"""The first of these that any process ended with says how all of them did: one rank's
failure takes the others with it."""
