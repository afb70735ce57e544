"""Builds the shim, says how to start a worker under it, and reads its counters.

Whoever starts a worker calls `environment`; inside the worker `EmulatedDevice` reads
what the library counts. The library is built once for each version of its source, in
the user's cache folder; an image brings it built (`LIBRARY_VARIABLE`).
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from plimsoll_planner.cache_folder import cache_folder
from plimsoll_planner.pod_names import CACHE_VARIABLE
from plimsoll_trainer.errors import NoEmulatedDeviceError

SOURCE = Path(__file__).parent / "shim.c"
LIBRARY_VARIABLE = "PLIMSOLL_SHIM"
"""Names a library that is built already, as in an image without a compiler."""
CAP_VARIABLE = "PLIMSOLL_DEVICE_MEMORY_BYTES"
COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-O2", "-shared", "-fPIC", "-pthread")
KEPT_WHEN_FREED = {
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
    "MALLOC_MMAP_THRESHOLD_": str(2**25),
}
"""Memory that is freed stays with the process, as the allocator of a device keeps it: a
step does not touch new pages. 32 MiB is the most that glibc takes."""
THREAD = threading.local()
COUNTERS = ("current_bytes", "peak_bytes", "cap_bytes", "num_refused")


def environment(cap_bytes: int) -> dict[str, str]:
    """Variables that a worker's environment needs on top, for a device of `cap_bytes`.

    Raises:
        NoEmulatedDeviceError: the library cannot be built.
    """
    earlier = os.environ.get("LD_PRELOAD", "")
    preload = f"{library()}:{earlier}" if earlier else str(library())
    return {"LD_PRELOAD": preload, CAP_VARIABLE: str(cap_bytes), **KEPT_WHEN_FREED}


def library() -> Path:
    """Path of the library, built now if need be."""
    if built := os.environ.get(LIBRARY_VARIABLE):
        return Path(built)
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    target = cache_folder() / f"shim-{digest}.so"
    if not target.exists():
        build(target)
    return target


def build(target: Path) -> None:
    """Compile the library; it appears by rename, so that it is whole or absent."""
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        raise NoEmulatedDeviceError(
            "the emulated device needs a C compiler once: install one of "
            f"{', '.join(COMPILERS)}, or set {LIBRARY_VARIABLE} to a built library"
        )
    part = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(  # noqa: S603 - the compiler found above
            [compiler, *FLAGS, SOURCE, "-o", part, "-ldl"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["nothing"])[0]
            raise NoEmulatedDeviceError(f"{compiler} cannot build {SOURCE}: {reason}")
        part.replace(target)
    except OSError as error:
        raise NoEmulatedDeviceError(
            f"cannot write {target}: {error.strerror}; set {CACHE_VARIABLE} to a "
            "folder that you can write to"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def is_emulated_device() -> bool:
    """Whether this process was started as one."""
    return hasattr(ctypes.CDLL(None), "plimsoll_current_bytes")


def require_emulated_device() -> None:
    """Refuse to go on in a process that is none.

    Raises:
        NoEmulatedDeviceError: says how to start one.
    """
    if not is_emulated_device():
        raise NoEmulatedDeviceError(
            "this process was not started as an emulated device: python -m "
            "plimsoll_trainer does so by itself; start others with what "
            "plimsoll_trainer.emulated.device.environment gives"
        )


@contextmanager
def host_memory() -> Iterator[None]:
    """Let tensors that this thread makes meanwhile lie in the host's memory, uncounted.

    In a process that is no emulated device only those who count fake tensors see it.
    """
    shim = ctypes.CDLL(None) if is_emulated_device() else None
    before = is_on_host()
    set_on_host(shim, True)
    try:
        yield
    finally:
        set_on_host(shim, before)


def set_on_host(shim: ctypes.CDLL | None, on_host: bool) -> None:
    """Note where tensors of this thread lie from now on."""
    THREAD.on_host = on_host
    if shim is not None:
        shim.plimsoll_set_on_host(int(on_host))


def is_on_host() -> bool:
    """Whether tensors that this thread makes now lie in the host's memory."""
    return getattr(THREAD, "on_host", False)


class EmulatedDevice:
    """The counters of the device that this process is; bytes of torch's CPU tensors."""

    @cached_property
    def _shim(self) -> ctypes.CDLL:
        require_emulated_device()
        loaded = ctypes.CDLL(None)
        for counter in COUNTERS:
            getattr(loaded, f"plimsoll_{counter}").restype = ctypes.c_uint64
        return loaded

    def _read(self, counter: str) -> int:
        return int(getattr(self._shim, f"plimsoll_{counter}")())

    @property
    def current_bytes(self) -> int:
        """Bytes of all tensors alive now."""
        return self._read("current_bytes")

    @property
    def peak_bytes(self) -> int:
        """Largest `current_bytes` since the start or `reset_peak`."""
        return self._read("peak_bytes")

    @property
    def cap_bytes(self) -> int:
        """Memory of the device; 0 is no cap."""
        return self._read("cap_bytes")

    @property
    def num_refused(self) -> int:
        """Allocations that did not fit."""
        return self._read("num_refused")

    def reset_peak(self) -> None:
        """Start counting the peak from what is alive now."""
        self._shim.plimsoll_reset_peak()

    def leave_out(self) -> None:
        """Leave to the host what is alive now; neither its bytes nor its end count."""
        self._shim.plimsoll_leave_out()

    def set_cap(self, cap_bytes: int) -> None:
        """Give the device another memory; 0 is no cap."""
        self._shim.plimsoll_set_cap(ctypes.c_uint64(cap_bytes))
