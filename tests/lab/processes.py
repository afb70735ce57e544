"""The running parts of one lab: start, stop, wait for, and none outlives its keeper.

In: a slot, the folder of binaries and, for the keeper of a test run, its owner's
process. Used by control_plane.py and nodes.py, which say what to start, and by
keeper.py, which watches and ends it all.

Every part is started with a parent-death signal: the kernel itself kills it when the
keeper goes, however that happens.
"""

from __future__ import annotations

import json
import os
import select
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.lab.errors import LabError
from tests.lab.slots import Slot

POLL_S = 0.05
DIES_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL")


class PortTakenError(LabError):
    """A part found its port in use. Caught by control_plane, which tries others."""


class OwnerGoneError(Exception):
    """The process that the lab was started for has ended. Caught by keeper."""


@dataclass(kw_only=True)
class Processes:
    """The processes of one lab, by name; a context manager that kills them all."""

    slot: Slot
    binaries: Path
    owner: int | None
    """File descriptor of the owner's process; None for a lab that has no owner."""
    inside: tuple[str, ...] = ()
    """Command that enters the namespaces of the lab; set by nodes.py."""
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _commands: dict[str, Sequence[str]] = field(default_factory=dict)

    def __enter__(self) -> Processes:
        """Make the folders that every lab has."""
        for name in ("logs", "hold"):
            (self.slot.state / name).mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        """Kill everything."""
        self.stop(*self._running)

    def start(self, name: str, *command: str | Path) -> subprocess.Popen[bytes]:
        """Start a part; its output goes to logs/<name>.log."""
        # Once outside for nsenter, once inside for the part that nsenter forks.
        enter = (*self.inside, *DIES_WITH_PARENT) if self.inside else ()
        whole = [*DIES_WITH_PARENT, *enter, *map(str, command)]
        with (self.slot.state / "logs" / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                whole, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/"
            )
        self._running[name] = process
        self._commands[name] = [str(part) for part in command]
        return process

    def start_binary(self, name: str, *arguments: str) -> None:
        """Start the binary called `name` (up to a dash and a number) of the lab."""
        program = name.rstrip("0123456789").rstrip("-")
        self.start(name, self.binaries / program, *arguments)

    def is_done(self, name: str) -> bool:
        """Whether a part that was to end has ended."""
        return self._running[name].poll() is not None

    def stop(self, *names: str) -> None:
        """Kill parts and wait for their ends."""
        for name in names:
            self._running[name].kill()
        for name in names:
            self._running.pop(name).wait()

    def wait_until(
        self, what: str, condition: Callable[[], bool], *, timeout_s: float = 180.0
    ) -> None:
        """Poll until `condition` holds, as long as all parts run and the owner lives.

        Raises:
            LabError: a part stopped, or time is up.
            OwnerGoneError: nobody waits for this lab any more.
        """
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            if self.owner_is_gone():
                raise OwnerGoneError
            for name, process in self._running.items():
                if process.poll():
                    raise self._explain(name, process)
            if time.monotonic() > deadline_s:
                raise LabError(
                    f"{what}: not there after {timeout_s:.0f} s; is the machine very "
                    "busy? (`python -m tests.lab status` lists running labs)"
                )
            time.sleep(POLL_S)

    def owner_is_gone(self, *, within_s: float = 0.0) -> bool:
        """Whether the owner has ended, waiting for it up to `within_s`."""
        watched = [] if self.owner is None else [self.owner]
        return bool(select.select(watched, [], [], within_s)[0])

    def follow_holds(self) -> None:
        """Kill what a file hold/<name> names; start it again when the file is gone."""
        for name in list(self._commands):
            held = (self.slot.state / "hold" / name).exists()
            if held and name in self._running:
                self.stop(name)
                (self.slot.state / "hold" / name).write_text("stopped")
            elif not held and name not in self._running:
                self.start(name, *self._commands[name])

    def _explain(self, name: str, process: subprocess.Popen[bytes]) -> LabError:
        log = (self.slot.state / "logs" / f"{name}.log").read_text(errors="replace")
        if "address already in use" in log:
            return PortTakenError(
                f"{name} found its port in use: see who has it with `ss -ltnp`, "
                "then start the lab again"
            )
        last = (log.strip().splitlines() or ["it wrote nothing"])[-1]
        return LabError(
            f"{name} stopped with status {process.returncode}: {last[:400]} "
            "(start the lab again; if it stays, run `python -m tests.lab prepare`)"
        )


def answers(url: str, *, state: Path | None = None) -> bytes | None:
    """Answer to a GET of `url`; as the lab's administrator if given `state`.

    None stands for every way not to answer: no listener, no certificate yet, not ready.
    """
    request = urllib.request.Request(url)  # noqa: S310 - the lab's own addresses
    context = None
    try:
        if state:
            facts = json.loads((state / "admin.json").read_text())
            request.add_header("Authorization", f"Bearer {facts['token']}")
            context = ssl.create_default_context(cafile=state / "certs/apiserver.crt")
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),  # a proxy of the machine is not for us
            urllib.request.HTTPSHandler(context=context),
        )
        with opener.open(request, timeout=2) as answer:
            body: bytes = answer.read()
            return body
    except OSError:
        return None


def process_of(pid: int) -> int | None:
    """File descriptor that is readable once `pid`, our parent, has ended.

    Not the end of a pipe: children forked by the owner would hold that open.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        raise OwnerGoneError from None
    if os.getppid() != pid:
        raise OwnerGoneError
    return descriptor
