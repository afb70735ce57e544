"""What this machine offers, with and without a CUDA driver."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from plimsoll_operator.errors import InventoryError
from plimsoll_operator.nodes import this_machine
from plimsoll_operator.nodes.this_machine import (
    BETWEEN_PROCESSES,
    CROWDED_SLOWDOWN,
    MEMORY_COPY,
    available_bytes,
    cuda_offers,
    emulated_offer,
    host_bytes,
    parse_nvidia_smi,
    share,
)
from plimsoll_planner.records.model_profile import DeviceKind
from plimsoll_planner.records.offer import Link

MIB = 2**20


def driver(folder: Path, script: str) -> None:
    """Put a program named nvidia-smi into a folder."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that comes first on the PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def test_the_memory_of_this_machine_is_shared_among_its_cores() -> None:
    """One emulated device for each core; together they fit what is available.

    They share the cores, so more of them would take turns.
    """
    offer = emulated_offer()
    assert offer.concurrent_devices_per_node == offer.devices_per_node
    assert offer.crowded_slowdown == CROWDED_SLOWDOWN
    assert offer.device_kind is DeviceKind.EMULATED
    assert offer.devices_per_node == len(os.sched_getaffinity(0))
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < offer.device_memory_bytes * offer.devices_per_node <= total
    assert offer.host_memory_bytes == host_bytes()
    assert offer.link_in_node == BETWEEN_PROCESSES
    assert offer.link_to_host == MEMORY_COPY


def test_memory_is_shared_in_whole_mib() -> None:
    """4 GiB on 3 cores: 1365 MiB each, and never called CUDA."""
    offer = share(available_bytes("MemTotal: 9 kB\nMemAvailable: 4194304 kB\n"), 3)
    assert offer.device_kind is DeviceKind.EMULATED
    assert offer.device_memory_bytes == 1365 * MIB


@pytest.mark.parametrize(("limit", "mib"), [("104857600", 60), ("max", None)])
def test_the_limit_of_a_container_counts(
    limit: str, mib: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container the memory of the host is not ours: 100 MiB less 40 in use."""
    files = tmp_path / "memory.max", tmp_path / "memory.current"
    files[0].write_text(f"{limit}\n")
    files[1].write_text(f"{40 * MIB}\n")
    monkeypatch.setattr(this_machine, "CGROUP_MEMORY", (files,))
    offer = emulated_offer()
    installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert offer.host_memory_bytes == (installed if mib is None else 100 * MIB)
    if mib is None:
        assert offer.device_memory_bytes > 100 * MIB
    else:
        cores = len(os.sched_getaffinity(0))
        assert offer.device_memory_bytes == mib // cores * MIB


def test_too_little_memory_is_said_in_words() -> None:
    """The message names what is free and what to do."""
    with pytest.raises(InventoryError, match="1000 bytes of memory are free"):
        share(1000, 64)


def test_cuda_devices_are_grouped_by_product_and_memory(path: Path) -> None:
    """Two equal cards and another one are two offers; each has its link to the host."""
    large, small = "NVIDIA H200, 143771, 5, 16", "NVIDIA L4, 23034, 4, 8"
    driver(path, f'printf "{large}\\n{large}\\n{small}\\n"')
    first, second = cuda_offers()
    assert (first.device_product, first.devices_per_node) == ("NVIDIA-H200", 2)
    assert first.device_memory_bytes == 143771 * MIB
    assert (second.device_product, second.devices_per_node) == ("NVIDIA-L4", 1)
    assert first.device_kind is second.device_kind is DeviceKind.CUDA
    assert first.host_memory_bytes == second.host_memory_bytes == host_bytes()
    assert first.link_to_host == Link(bandwidth_bytes_per_s=51.2e9)
    assert second.link_to_host == Link(bandwidth_bytes_per_s=12.8e9)


@pytest.mark.parametrize("link", ["[N/A], [N/A]", "2, 16", "5, 0"])
def test_a_link_that_is_not_stated_is_not_guessed(link: str) -> None:
    """As in a virtual machine; the devices are offered, also those that state it."""
    lines = f"NVIDIA H200, 143771, {link}\nNVIDIA H200, 143771, 5, 16"
    [offer] = parse_nvidia_smi(lines)
    assert (offer.devices_per_node, offer.link_to_host) == (2, None)


def test_the_slowest_link_of_equal_devices_counts() -> None:
    """Mainboards have slots of 16 and of 8 lanes."""
    [offer] = parse_nvidia_smi("RTX, 24564, 4, 16\nRTX, 24564, 4, 8\n")
    assert offer.devices_per_node == 2
    assert offer.link_to_host == Link(bandwidth_bytes_per_s=12.8e9)


def test_a_broken_driver_is_not_taken_for_none(path: Path) -> None:
    """A machine with a broken driver must not look like one without GPUs."""
    driver(path, 'echo "NVIDIA-SMI has failed because of the driver"; exit 9')
    with pytest.raises(InventoryError, match="printed: NVIDIA-SMI has failed"):
        cuda_offers()
    driver(path, "exit 9")
    with pytest.raises(InventoryError, match="printed: nothing"):
        cuda_offers()


def test_a_driver_without_devices_is_no_error(path: Path) -> None:
    """Login nodes have the driver's tools and no GPU."""
    driver(path, 'echo "No devices were found"; exit 6')
    assert cuda_offers() == ()


def test_odd_bytes_of_a_driver_are_shown(path: Path) -> None:
    """What is no text is quoted in the error, not a traceback."""
    driver(path, "printf '\\377\\n'")
    with pytest.raises(InventoryError, match="not a product, its MiB"):
        cuda_offers()


def test_a_driver_that_hangs_is_given_up(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command ends even when the driver does not."""
    monkeypatch.setattr(
        "plimsoll_operator.nodes.this_machine.NVIDIA_SMI_TIMEOUT_S", 0.2
    )
    driver(path, "exec sleep 60")
    with pytest.raises(InventoryError, match="did not answer"):
        cuda_offers()


@pytest.mark.parametrize(
    "line", ["NVIDIA H200", "NVIDIA H200, [N/A], 5, 16", ", 5, 5, 16", "a, -5, 5, 16"]
)
def test_an_odd_line_is_quoted(line: str) -> None:
    """What cannot be read is shown, not guessed."""
    with pytest.raises(InventoryError, match="not a product, its MiB"):
        parse_nvidia_smi(line)


def test_a_kernel_without_the_line_is_named() -> None:
    """Other kernels have no MemAvailable."""
    with pytest.raises(InventoryError, match="Linux is needed"):
        available_bytes("MemTotal: 1 kB\n")
