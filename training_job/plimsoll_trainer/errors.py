"""Errors of a training pod, as a tree; every message is one line.

    PlimsollError                       (plimsoll_planner.errors)
    └── TrainerError                    ends the rank
        ├── IncompatibleError           torch or numpy are missing or too old
        ├── ForeignFingerprintError     the plan was made for other code or versions
        ├── MissingSourceError          the workload's source cannot be read
        ├── WorkloadError               the entry point breaks the workload contract
        ├── PlanMismatchError           the plan is for another world or workload
        │   └── OtherWorkloadError      its layers are others than those profiled
        ├── CheckpointError             a checkpoint cannot be saved or read
        │   ├── NoRoomError                 the disk is full; later it may not be
        │   ├── UnusableCheckpointError     broken, or of another training
        │   └── TakenOverError              a later attempt saves in our place
        ├── NoLossError                 the loss is not finite, in training or beside it
        ├── CallbackError               a callback of the user's raised
        ├── UnequalReplicasError        ranks with the same tensor hold other values
        ├── NoGpuError                  the plan is for GPUs, and there is none
        ├── NoEmulatedDeviceError       there is no GPU and no stand-in for one
        ├── DeviceFullError             out of device memory
        ├── HostFullError               the machine lacks memory for optimizers
        ├── EntryPointFullError         so is the entry point, whatever is planned
        ├── LostRankError               another rank went away
        └── NotSavedError               asked to stop, with nowhere to save

The entry points catch `TrainerError`, print its text and exit with its `exit_code`.
`described`, `reason_of` and `located` are how a message quotes what somebody else's
code raised, and `causes` walks what that was raised from.
"""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from textwrap import shorten
from typing import ClassVar

from plimsoll_planner.errors import InvalidInputError, PlimsollError
from plimsoll_planner.exit_codes import ExitCode
from plimsoll_planner.records.plan import Phase

LONGEST_REASON = 300
"""Letters; what is missing is named in the first of them."""


class TrainerError(PlimsollError):
    """Ends a rank before or during training."""

    exit_code: ClassVar[ExitCode] = ExitCode.FAILED


class IncompatibleError(TrainerError, InvalidInputError):
    """Torch or numpy are missing, or too old for the trainer and the profiler."""

    exit_code = ExitCode.INCOMPATIBLE


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


class OtherWorkloadError(PlanMismatchError):
    """The workload is not the one that was profiled; no use in trying again."""

    exit_code = ExitCode.BAD_WORKLOAD


class CheckpointError(TrainerError):
    """A checkpoint cannot be saved, or read just now."""


class NoRoomError(CheckpointError):
    """A checkpoint cannot be saved while the disk is full."""


class UnusableCheckpointError(CheckpointError):
    """There is no checkpoint to go on from: missing, broken, or of another training."""

    exit_code = ExitCode.UNUSABLE_CHECKPOINT


class TakenOverError(CheckpointError):
    """A later attempt trains in our place: nothing that we still do is of use."""


class UnequalReplicasError(TrainerError):
    """Ranks that hold the same tensor built different values: different models."""

    exit_code = ExitCode.UNEQUAL_REPLICAS


class NoLossError(TrainerError):
    """The loss is not finite; it would be again, so there is no use in trying."""

    exit_code = ExitCode.NO_LOSS


class CallbackError(TrainerError):
    """What a user wants to be called between steps raised."""


class NoGpuError(TrainerError):
    """The plan is for GPUs and this process sees none; it never trains on the CPU."""


class DeviceFullError(TrainerError):
    """A rank ran out of device memory in some phase; `asked_bytes` did not fit."""

    exit_code = ExitCode.DEVICE_OUT_OF_MEMORY

    def __init__(
        self, text: str, *, phase: Phase = Phase.BUILD, asked_bytes: int = 0
    ) -> None:
        """Keep the phase that was under way, and what did not fit; 0 if nobody says."""
        super().__init__(text)
        self.phase = phase
        self.asked_bytes = asked_bytes


class HostFullError(TrainerError):
    """The machine has less memory than the optimizers that the plan keeps there."""

    exit_code = ExitCode.HOST_FULL


class EntryPointFullError(TrainerError):
    """The entry point itself needs more memory than the device has.

    It does the same under every plan, so another one would not help.
    """

    exit_code = ExitCode.ENTRY_POINT_OUT_OF_MEMORY


class LostRankError(TrainerError):
    """Another rank went away; that one says why."""


class NotSavedError(TrainerError):
    """The rank was asked to stop and has no folder to save into."""


class NoEmulatedDeviceError(TrainerError):
    """The library of the emulated device cannot be built, or was not preloaded."""


def exit_code_of(error: PlimsollError) -> ExitCode:
    """Exit code of a process that an error ends."""
    return getattr(error, "exit_code", ExitCode.FAILED)


def described(error: BaseException) -> str:
    """Type of an error, and its text up to a line that no colon ends.

    What checks a field puts the reason on the next line.
    """
    text = type(error).__name__
    for line in filter(None, map(str.strip, str(error).splitlines())):
        text += f" {line}" if text.endswith(":") else f": {line}"
        if not line.endswith(":"):
            break
    return text


def reason_of(error: BaseException) -> str:
    """An error of a library that explains at length, as part of a message."""
    return shorten(described(error), LONGEST_REASON)


THEIR_ERRORS = (Exception, SystemExit)
"""All that code of users may raise and that ends in a message: `sys.exit` as well."""
OURS = ("plimsoll_planner", "plimsoll_trainer", "plimsoll_profiler")
STANDARD_LIBRARY = sysconfig.get_path("stdlib")
LIBRARIES = ("site-packages", "dist-packages")
"""Folders of libraries; an environment on top of another one has several."""


def located(error: BaseException) -> str:
    """Type of an error, its first line, and its place in the user's own code.

    What a library raised that no code of the user's called is placed in the library,
    unless that is torch: layers of a captured module are torch's code and nobody's.
    """
    text = described(error)
    if isinstance(error, SyntaxError):
        return f"{text} at {error.filename}:{error.lineno}"
    place = innermost(traceback.extract_tb(error.__traceback__))
    return text if place is None else f"{text} at {place.filename}:{place.lineno}"


def innermost(
    frames: Iterable[traceback.FrameSummary],
) -> traceback.FrameSummary | None:
    """The last frame of the user's code, or else of a library other than torch."""
    outside = [
        frame
        for frame in frames
        if frame.filename[0] != "<" and not is_ours(frame.filename)
    ]
    theirs = [frame for frame in outside if is_theirs(frame.filename)]
    others = [frame for frame in outside if not is_of_torch(frame.filename)]
    return next(reversed(theirs or others), None)


def one_of(given: str, known: Sequence[str]) -> str:
    """Names that there are in place of one that is not known, the nearest first."""
    import difflib  # noqa: PLC0415 - for errors alone

    nearest = difflib.get_close_matches(given, known, n=1, cutoff=0.5)
    guess = f"did you mean {nearest[0]!r}? " if nearest else ""
    return f"{guess}there are {', '.join(known)}"


def is_ours(file: str) -> bool:
    """Whether code is Plimsoll's."""
    return not set(OURS).isdisjoint(Path(file).parts)


def is_theirs(file: str) -> bool:
    """Whether code is the user's own, neither Plimsoll's nor of a library."""
    parts = Path(file).parts
    is_library = any(name in parts for name in LIBRARIES)
    is_library = is_library or file.startswith(STANDARD_LIBRARY)
    return file[0] != "<" and not is_ours(file) and not is_library


def is_of_torch(file: str) -> bool:
    """Whether code is torch's."""
    return any(f"/{name}/torch/" in file for name in LIBRARIES)


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it was raised from, as far as a traceback shows it."""
    above: BaseException | None = error
    while above is not None:
        yield above
        hidden = above.__suppress_context__  # raise .. from None, or from a cause
        above = above.__cause__ if hidden else above.__context__
