"""Offers of this machine: its CUDA devices, or emulated devices in its own memory.

In: nothing but the machine. Out: one `Offer` for each kind of device. CUDA devices are
listed by `nvidia-smi`, which every driver brings, so that torch is not needed. The
emulated device is a process with a counted and capped allocator: one for each core,
sharing the memory that is free now.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from plimsoll_operator.errors import InventoryError
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.offer import EMULATED_PRODUCT, CapacityType, Link, Offer
from plimsoll_planner.units import product_name

LOCAL_NAME = "this machine"
NVIDIA_SMI = (
    "nvidia-smi",
    "--query-gpu=name,memory.total,pcie.link.gen.max,pcie.link.width.max",
    "--format=csv,noheader,nounits",
)
NVIDIA_SMI_TIMEOUT_S = 20.0
"""A driver that hangs must not hang the command; a cold one answers within seconds."""
NO_DEVICES = "No devices were found"
"""Printed where the driver is installed and there is no GPU, as on login nodes."""
CGROUP_MEMORY = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ),
)
"""Limit and use of a container's memory, version 2 and 1; "max" is no limit."""
MEMINFO = Path("/proc/meminfo")
MIB = 2**20
PCIE_BYTES_PER_S = {3: 1e9, 4: 2e9, 5: 4e9, 6: 8e9}
"""Of a lane in each direction, by generation: 8, 16, 32, 64 GT/s of a bit each."""
PCIE_EFFICIENCY = 0.8
"""Part of it that is left to copies of pinned memory after encoding, headers and
acknowledgements; assumed."""
CROWDED_SLOWDOWN = 1.15
"""Of emulated devices that take turns. Four processes that train on two cores against
two (torch 2.15): 1.17 and 1.08 on shapes of GPT-2 and Llama, 1.06 on an MLP chain;
ranks of a pipeline lose a little more."""
MEMORY_COPY = Link(bandwidth_bytes_per_s=20e9)
"""Between an emulated device and its host, in one memory: copies of 64 MiB by each of
two cores at the same time (torch 2.15)."""

BETWEEN_PROCESSES = Link(bandwidth_bytes_per_s=3.5e9, latency_s=5e-5)
"""Between emulated devices, which talk by gloo: half of the fastest round trips of 256
bytes (45 us) and of 4 MiB (1.2 ms) of two processes on two cores (torch 2.15)."""


def cuda_offers() -> tuple[Offer, ...]:
    """The CUDA devices of this machine, none where there is no driver.

    Raises:
        InventoryError: the driver is there but does not answer properly.
    """
    found = parse_nvidia_smi(run_nvidia_smi()) if shutil.which(NVIDIA_SMI[0]) else ()
    return tuple(replace(one, host_memory_bytes=host_bytes()) for one in found)


def emulated_offer() -> Offer:
    """The emulated devices that this machine carries, one for each core.

    Raises:
        InventoryError: no memory is left, or the kernel does not state it.
    """
    free_bytes = available_bytes(MEMINFO.read_text())
    for limit_bytes, used in container_limits():
        left = limit_bytes - int(used.read_text())
        free_bytes = min(free_bytes, max(left, 0))
    return replace(
        share(free_bytes, len(os.sched_getaffinity(0))),
        host_memory_bytes=host_bytes(),
        link_in_node=BETWEEN_PROCESSES,
        link_to_host=MEMORY_COPY,
    )


def host_bytes() -> int:
    """Memory of this machine, as far as its container may have it; in use or not."""
    installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([installed, *(limit_bytes for limit_bytes, _ in container_limits())])


def container_limits() -> Iterator[tuple[int, Path]]:
    """Yield each limit of the container's memory, and the file of what it uses."""
    for limit, used in CGROUP_MEMORY:
        if limit.exists() and (text := limit.read_text().strip()).isdecimal():
            yield int(text), used


def run_nvidia_smi() -> str:
    """Output of nvidia-smi, one line for each device."""
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command
            NVIDIA_SMI,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=NVIDIA_SMI_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InventoryError(f"nvidia-smi did not answer: {error}") from None
    if NO_DEVICES in done.stdout:
        return ""
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines() or ["nothing"]
        raise InventoryError(f"nvidia-smi failed and printed: {lines[0]}")
    return done.stdout


def parse_nvidia_smi(text: str) -> tuple[Offer, ...]:
    """Turn lines such as `NVIDIA H200, 143771, 5, 16` into an offer for each product.

    They state MiB, and generation and lanes of PCI Express; in a virtual machine these
    may be missing, and then the link to the host is not known. The slowest of a product
    counts.

    Raises:
        InventoryError: a line is no such list.
    """
    links: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    for line in text.splitlines():
        match [part.strip() for part in line.rsplit(",", 3)]:
            case [product, mib, generation, lanes] if product and mib.isdecimal():
                rate = pcie_bytes_per_s(generation, lanes)
                links[product_name(product), int(mib)].append(rate)
            case _:
                raise InventoryError(
                    "nvidia-smi: not a product, its MiB, and generation and lanes of "
                    f"its PCI Express: {line!r}"
                )
    return tuple(
        Offer(
            name=LOCAL_NAME,
            capacity_type=CapacityType.RESERVED,
            device_kind=DeviceKind.CUDA,
            device_product=product,
            device_memory_bytes=mib * MIB,
            devices_per_node=len(rates),
            nodes_available=1,
            link_to_host=Link(bandwidth_bytes_per_s=min(rates)) if all(rates) else None,
        )
        for (product, mib), rates in links.items()
    )


def pcie_bytes_per_s(generation: str, lanes: str) -> float:
    """Bytes per second between a device and its host; 0 if not stated, or older."""
    if not (generation.isdecimal() and lanes.isdecimal()):
        return 0.0
    return PCIE_EFFICIENCY * PCIE_BYTES_PER_S.get(int(generation), 0.0) * int(lanes)


def available_bytes(meminfo: str) -> int:
    """The bytes that the kernel says are available."""
    for line in meminfo.splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise InventoryError("/proc/meminfo has no line MemAvailable: Linux is needed")


def share(free_bytes: int, cores: int) -> Offer:
    """Share memory among emulated devices, in whole MiB."""
    device_memory_bytes = free_bytes // cores // MIB * MIB
    if device_memory_bytes == 0:
        raise InventoryError(
            f"{free_bytes} bytes of memory are free, too few for {cores} emulated "
            "devices: end something, or raise the memory limit"
        )
    return Offer(
        name=LOCAL_NAME,
        capacity_type=CapacityType.RESERVED,
        device_kind=DeviceKind.EMULATED,
        device_product=EMULATED_PRODUCT,
        device_memory_bytes=device_memory_bytes,
        devices_per_node=cores,
        concurrent_devices_per_node=cores,
        crowded_slowdown=CROWDED_SLOWDOWN,
        nodes_available=1,
    )
