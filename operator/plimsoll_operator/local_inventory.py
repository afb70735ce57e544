"""What this machine offers: its CUDA devices, or emulated devices in its own memory.

In: nothing but the machine. Out: one `Offer` for each kind of device. CUDA devices are
listed by `nvidia-smi`, which every driver brings, so that torch is not needed. The
emulated device is a process with a counted and capped allocator: one for each core,
sharing the memory that is free now.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

from plimsoll_operator.errors import InventoryError
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.offer import CapacityType, Offer

LOCAL_NAME = "this machine"
NVIDIA_SMI = (
    "nvidia-smi",
    "--query-gpu=name,memory.total",
    "--format=csv,noheader,nounits",
)
NVIDIA_SMI_TIMEOUT_S = 20.0
"""A driver that hangs must not hang the command; a cold one answers within seconds."""
MEMINFO = Path("/proc/meminfo")
MIB = 2**20


def local_offers() -> tuple[Offer, ...]:
    """Return the offers of this machine, CUDA devices first.

    Raises:
        InventoryError: the driver is there but does not answer properly.
    """
    cuda = parse_nvidia_smi(run_nvidia_smi()) if shutil.which(NVIDIA_SMI[0]) else ()
    cores = len(os.sched_getaffinity(0))
    return (*cuda, emulated_offer(MEMINFO.read_text(), cores))


def run_nvidia_smi() -> str:
    """Return what nvidia-smi prints, one line for each device."""
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command
            NVIDIA_SMI,
            capture_output=True,
            text=True,
            timeout=NVIDIA_SMI_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InventoryError(f"nvidia-smi did not answer: {error}") from None
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines() or ["nothing"]
        raise InventoryError(f"nvidia-smi failed and said: {said[0]}")
    return done.stdout


def parse_nvidia_smi(text: str) -> tuple[Offer, ...]:
    """Turn lines such as `NVIDIA H200, 143771` (MiB) into one offer for each product.

    Raises:
        InventoryError: a line is no such pair.
    """
    devices: Counter[tuple[str, int]] = Counter()
    for line in text.splitlines():
        product, _, mib = line.rpartition(",")
        if not product or not mib.strip().isdecimal():
            raise InventoryError(f"nvidia-smi: not a product and its MiB: {line!r}")
        devices[product.strip(), int(mib)] += 1
    return tuple(
        Offer(
            name=LOCAL_NAME,
            capacity_type=CapacityType.RESERVED,
            device_kind=DeviceKind.CUDA,
            device_product=product,
            device_memory_bytes=mib * MIB,
            devices_per_node=count,
            nodes_available=1,
        )
        for (product, mib), count in devices.items()
    )


def emulated_offer(meminfo: str, cores: int) -> Offer:
    """Return the emulated devices that the free memory in `meminfo` carries."""
    for line in meminfo.splitlines():
        if line.startswith("MemAvailable:"):
            available_bytes = int(line.split()[1]) * 1024
            return Offer(
                name=LOCAL_NAME,
                capacity_type=CapacityType.RESERVED,
                device_kind=DeviceKind.EMULATED,
                device_product="process",
                device_memory_bytes=available_bytes // cores // MIB * MIB,
                devices_per_node=cores,
                nodes_available=1,
            )
    raise InventoryError("/proc/meminfo has no line MemAvailable: Linux is needed")
