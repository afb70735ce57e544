"""Which of the 16 labs of this machine is ours, and everything named after it.

A slot is a number from 0 to 15, taken with a file lock that its keeper holds for life.
Folder, link, addresses and cgroups of a lab all derive from the number, so two labs
cannot collide, and whoever gets the lock knows what a dead holder may have left:

    slot 3: folder     <root>/lab3            lock       <root>/lab3.lock
            link       plimh3 - plimn3        link net   10.242.3.0/24
            pods       10.243.48.0/20         services   10.241.48.0/20
            cgroups    plimsoll-3-node0, plimsoll-3-node1

Used by keeper.py (takes and frees a slot), owner.py and __main__ (sweep, list).
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tests.lab import cgroups
from tests.lab.errors import LabError

NUM_SLOTS = 16
SWEEP_TIMEOUT_S = 60.0


def root() -> Path:
    """Folder of all labs of this user, in memory where that is possible.

    In memory because etcd waits for the disk on every write, and unpacked images are
    short-lived. Not configurable: root's labs must all see each other's locks.
    """
    memory = Path("/dev/shm")  # noqa: S108 - the point is that it is a tmpfs
    base = memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
    return base / f"plimsoll-{os.getuid()}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Slot:
    """One lab's number and the names and addresses that follow from it."""

    number: int

    @property
    def state(self) -> Path:
        """Folder of everything that the lab writes."""
        return root() / f"lab{self.number}"

    @property
    def lock(self) -> Path:
        """File whose lock the keeper holds."""
        return root() / f"lab{self.number}.lock"

    @property
    def host_link(self) -> str:
        """Host's end of the link; the kernel allows 15 characters."""
        return f"plimh{self.number}"

    @property
    def node_link(self) -> str:
        """End of the link inside the lab's network namespace."""
        return f"plimn{self.number}"

    @property
    def host_address(self) -> str:
        """Address of the host on the link."""
        return f"10.242.{self.number}.1"

    def node_address(self, node: int) -> str:
        """Address of a node; the first node's is also the API server's."""
        return f"10.242.{self.number}.{2 + node}"

    @property
    def pods(self) -> ipaddress.IPv4Network:
        """Range of pod addresses, one for all nodes: they share a bridge."""
        return ipaddress.IPv4Network(f"10.243.{16 * self.number}.0/20")

    @property
    def services(self) -> ipaddress.IPv4Network:
        """Range of service addresses."""
        return ipaddress.IPv4Network(f"10.241.{16 * self.number}.0/20")

    @property
    def bridge_address(self) -> str:
        """Pods' gateway, where the cluster's DNS server listens as well."""
        return str(self.pods[1])

    def cgroup(self, node: int) -> str:
        """Control group of a node's pods, below the root of each hierarchy."""
        return f"plimsoll-{self.number}-node{node}"

    def facts(self) -> dict[str, Any]:
        """Record of the lab by its supervisor; empty while it starts."""
        try:
            facts: dict[str, Any] = json.loads((self.state / "lab.json").read_text())
        except (OSError, ValueError):
            return {}
        return facts


ALL = tuple(Slot(number=number) for number in range(NUM_SLOTS))


@contextlib.contextmanager
def take() -> Iterator[Slot]:
    """Hold the first free slot, swept before and after.

    Raises:
        LabError: all slots are taken.
    """
    for slot in ALL:
        if lock := _try_lock(slot):
            break
    else:
        raise LabError(
            f"all {NUM_SLOTS} slots for labs are taken: see them with "
            "`python -m tests.lab status`, free those of `up` with `down`"
        )
    with lock:
        try:
            _sweep(slot)
            _claim(slot)
            yield slot
        finally:
            _sweep(slot)
            _unlock(slot)


def _claim(slot: Slot) -> None:
    """Make the slot's folder, which nobody else may have left."""
    try:
        slot.state.mkdir()
    except FileExistsError:
        raise LabError(
            f"{slot.state} of an earlier lab cannot be removed: see what holds it with "
            f"`fuser -m {slot.state}`, end that, then start the lab again"
        ) from None


def is_taken(slot: Slot) -> bool:
    """Whether a keeper holds the slot."""
    if not slot.lock.exists():
        return False
    if lock := _try_lock(slot):
        lock.close()
        return False
    return True


def sweep_abandoned() -> None:
    """Remove what labs without a keeper have left: killed keepers, a crash."""
    for slot in ALL:
        if (slot.lock.exists() or slot.state.exists()) and (lock := _try_lock(slot)):
            with lock:
                _sweep(slot)
                _unlock(slot)


def _try_lock(slot: Slot) -> IO[str] | None:
    try:
        root().mkdir(mode=0o700, exist_ok=True)
        lock = slot.lock.open("a")
    except FileNotFoundError:  # the last lab to end removed the root in between
        return _try_lock(slot)
    with contextlib.suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Its last holder may have removed the file after we opened it.
        if os.fstat(lock.fileno()).st_ino == slot.lock.stat().st_ino:
            return lock
    lock.close()
    return None


def _unlock(slot: Slot) -> None:
    """Remove the lock file, still held, and the root folder after the last lab."""
    slot.lock.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        root().rmdir()


def _sweep(slot: Slot) -> None:
    """Remove link, cgroups and folder of a lab whose processes are dead or dying."""
    if Path(f"/sys/class/net/{slot.host_link}").exists():
        # The routes to pods and services go with it.
        subprocess.run(["ip", "link", "delete", slot.host_link], check=False)
    deadline_s = time.monotonic() + SWEEP_TIMEOUT_S
    while time.monotonic() < deadline_s:
        shutil.rmtree(slot.state, ignore_errors=True)
        cgroups.remove(f"plimsoll-{slot.number}-node*")
        if not slot.state.exists() and not cgroups.find(
            f"plimsoll-{slot.number}-node*"
        ):
            return
        time.sleep(0.1)  # the kernel frees a dying process's files and cgroup late
