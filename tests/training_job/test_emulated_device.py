"""The emulated device counts torch's tensors to the byte, and can be full."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from plimsoll_trainer.emulated import device
from plimsoll_trainer.emulated.device import EmulatedDevice
from plimsoll_trainer.errors import NoEmulatedDeviceError

torch = pytest.importorskip("torch", reason="torch is missing: run `make test`")
BEGIN = """
import torch
from plimsoll_trainer.emulated.device import EmulatedDevice
device = EmulatedDevice()
torch.empty(1)
start = device.current_bytes
"""


def worker(script: str, cap_bytes: int = 0) -> str:
    """Run a script as an emulated device and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + script],
        env=os.environ | device.environment(cap_bytes),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_tensors_are_counted_to_the_byte() -> None:
    """4 MB and 12 bytes come and go; the peak stays until it is reset."""
    printed = worker(
        """
block, small = torch.empty(1000, 1000), torch.empty(3)
held = device.current_bytes - start
del block
left, peak = device.current_bytes - start, device.peak_bytes - start
device.reset_peak()
print(held, left, peak, device.peak_bytes - start)
"""
    )
    assert printed == "4000012 12 4000012 12"


def test_what_does_not_fit_is_out_of_memory() -> None:
    """The allocation over the cap raises in torch; a smaller one still fits."""
    printed = worker(
        """
first = torch.empty(1_500_000)
try:
    torch.empty(1_500_000)
except RuntimeError as error:
    print("can't allocate memory" in str(error), device.num_refused)
second = torch.empty(500_000)
print(device.current_bytes <= device.cap_bytes, device.cap_bytes)
""",
        cap_bytes=10_000_000,
    )
    assert printed == "True 1\nTrue 10000000"


def test_threads_lose_no_byte() -> None:
    """Eight threads that allocate and free at random leave nothing behind."""
    printed = worker(
        """
import threading
def work(seed):
    held = []
    for turn in range(4000):
        held.append(torch.empty(16 + (turn * seed) % 977))
        if len(held) > 50:
            held.pop((turn * 31) % 50)
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 9)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(device.current_bytes - start, device.peak_bytes > start)
"""
    )
    assert printed == "0 True"


def test_what_is_left_to_the_host_counts_neither_alive_nor_freed() -> None:
    """8 kB are there when it is left out; what comes later counts as ever."""
    printed = worker(
        """
earlier = torch.empty(2000)
device.leave_out()
later = torch.empty(3)
found = device.current_bytes, device.peak_bytes
del earlier
print(*found, device.current_bytes)
"""
    )
    assert printed == "12 12 12"


def test_what_a_thread_makes_on_the_host_is_not_counted() -> None:
    """Neither alive nor freed; what other threads make meanwhile counts as ever."""
    printed = worker(
        """
import threading
from plimsoll_trainer.emulated.device import host_memory
found = []
def beside():
    found.append(torch.empty(5))
with host_memory():
    with host_memory():  # by what is called
        pass
    on_host = torch.empty(2000)
    thread = threading.Thread(target=beside)
    thread.start()
    thread.join()
    counted = device.current_bytes - start
later = torch.empty(3)
both = device.current_bytes - start
del on_host
print(counted, both, device.current_bytes - start)
"""
    )
    assert printed == "20 32 32"


def test_a_tensor_may_be_freed_by_another_thread() -> None:
    """Torch's backward runs on threads of its own; the sum still comes out even."""
    printed = worker(
        """
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)])
for parameter in model.parameters():
    parameter.grad = torch.zeros_like(parameter)
def step():
    model(torch.ones(8, 64)).sum().backward()
step()
before = device.current_bytes
for _ in range(20):
    step()
print(device.current_bytes - before)
"""
    )
    assert printed == "0"


def test_outside_a_device_there_are_no_counters() -> None:
    """A process that was started otherwise says what to do."""
    with pytest.raises(
        NoEmulatedDeviceError, match="not started as an emulated device"
    ):
        _ = EmulatedDevice().peak_bytes


def test_a_missing_compiler_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the library is not there and cannot be made, one line says so."""
    monkeypatch.setenv("PLIMSOLL_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoEmulatedDeviceError, match="needs a C compiler once"):
        device.environment(1)
    monkeypatch.setenv(device.LIBRARY_VARIABLE, "/opt/shim.so")
    assert device.environment(1)["LD_PRELOAD"].startswith("/opt/shim.so")


def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the file and the setting."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PLIMSOLL_CACHE", str(tmp_path / "file"))
    with pytest.raises(NoEmulatedDeviceError, match="set PLIMSOLL_CACHE"):
        device.environment(1)
