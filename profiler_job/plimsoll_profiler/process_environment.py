"""Command and environment of the processes that the profiler starts.

The environment is what such a process has on top of ours. An emulated device is a
preloaded library, and torch reads its settings once; so both are settled before a
process begins.
"""

from __future__ import annotations

import os
import sys

from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_profiler.entrypoint_path import python_path
from plimsoll_trainer.devices.allocator import allocator_environment
from plimsoll_trainer.emulated import device as emulated


def command_of(name: str) -> tuple[str, ...]:
    """Words that start one of the processes that `start` knows."""
    return sys.executable, "-m", "plimsoll_profiler.start", name


def environment_of(kind: DeviceKind, cap_bytes: int = 0) -> dict[str, str]:
    """Variables of a process that traces or probes for a kind of device.

    For the emulated device it is one, to see what kernels allocate inside; without
    `cap_bytes` its memory has no end.

    Raises:
        NoEmulatedDeviceError: the library of the emulated device cannot be built.
    """
    extra = {"OMP_NUM_THREADS": "1", "PYTHONPATH": python_path()}
    return extra | (
        emulated.environment(cap_bytes) if kind is DeviceKind.EMULATED else {}
    )


def environment_on_device(
    plan: HybridPlan, device_memory_bytes: int = 0
) -> dict[str, str]:
    """Variables of a process that is the device of a plan, as a rank is.

    An emulated device may have other memory than the plan says.

    Raises:
        NoEmulatedDeviceError: the library of the emulated device cannot be built.
    """
    offer = plan.offers[0]
    if offer.device_kind is DeviceKind.EMULATED:
        cap_bytes = device_memory_bytes or offer.device_memory_bytes
        return environment_of(offer.device_kind, cap_bytes)
    return {"PYTHONPATH": python_path(), **allocator_environment(os.environ)}
