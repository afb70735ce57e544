"""Turns whatever ended a rank into the one line and exit code that say why.

device full, also inside the pipeline runtime's own error   83, with the bytes
another rank went away                                      1, pointing at that one
anything else that user code or torch raised                1, with its line
"""

from __future__ import annotations

import re

import torch.distributed as dist

from plimsoll_planner.errors import PlimsollError
from plimsoll_planner.records.plan import Phase
from plimsoll_trainer.devices.device import Device
from plimsoll_trainer.errors import (
    DeviceFullError,
    LostRankError,
    TrainerError,
    causes,
    located,
)
from plimsoll_trainer.out_of_memory import is_out_of_memory

ASKED = re.compile(
    r"(?:[tT]ried to allocate|Failed to CUDA [cm]alloc(?: async)?) "
    r"([\d.]+) ?(bytes|KiB|MiB|GiB)"
)
UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
LOST = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Connection refused",
    "Broken pipe",
    "connectFullMesh failed",
    "Timed out waiting",
    "Application timeout caused pair closure",
)
"""Parts of gloo's errors when a rank is gone."""
IN_BACKWARD = "Failed to run stage backward"
"""Begins the error that torch.distributed.pipelining raises from one in backward."""


def explain(error: BaseException, phase: Phase, device: Device | None) -> PlimsollError:
    """Error that ends this rank, from what was raised in a phase.

    The device is this rank's, if it was opened already.
    """
    if isinstance(error, PlimsollError):
        return error
    if is_out_of_memory(error):
        return device_full(error, phase_of(error, phase), device)
    if is_lost_rank(error):
        return LostRankError(
            f"another rank went away in {phase_of(error, phase)}: the first rank that "
            f"failed says why ({gloo_text(error) or located(innermost(error))})"
        )
    return TrainerError(
        f"{phase_of(error, phase)}: {located(innermost(error))}; --debug shows the "
        "traceback"
    )


def device_full(
    error: BaseException, phase: Phase, device: Device | None
) -> DeviceFullError:
    """Error of a full device: how full it is, and what did not fit."""
    asked_bytes = next(filter(None, map(bytes_asked, causes(error))), 0)
    what = f"{asked_bytes} bytes more" if asked_bytes else "more"
    text = f"out of device memory in {phase}: {what} asked for"
    if device is not None:
        text += (
            f" with {device.allocated_bytes} in use of "
            f"{device.capacity_bytes or 'unlimited'}: plan with this device's real "
            "memory, or override a smaller micro-batch or more recompute"
        )
    return DeviceFullError(text, phase=phase, asked_bytes=asked_bytes)


def phase_of(error: BaseException, phase: Phase) -> Phase:
    """Forward or backward, which alternate, by the runtime's own words."""
    texts = [str(part) for part in causes(error)]
    if phase is Phase.FORWARD and any(IN_BACKWARD in text for text in texts):
        return Phase.BACKWARD
    return phase


def bytes_asked(error: BaseException) -> int | None:
    """Bytes that an allocator could not give, where it says so."""
    found = ASKED.search(str(error))
    return int(float(found[1]) * UNITS[found[2]]) if found else None


def is_lost_rank(error: BaseException) -> bool:
    """Whether an error means that another rank is gone."""
    return any(
        isinstance(part, (dist.DistBackendError, dist.DistNetworkError))
        or (isinstance(part, RuntimeError) and any(t in str(part) for t in LOST))
        for part in causes(error)
    )


def gloo_text(error: BaseException) -> str:
    """Gloo's own words for a rank that is gone, without its advice."""
    texts = "".join(str(part) for part in causes(error))
    return next((text for text in LOST if text in texts), "")


def innermost(error: BaseException) -> BaseException:
    """The error that was raised first: the runtime wraps what a layer raises."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error
