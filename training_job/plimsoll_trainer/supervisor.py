"""The process that keeps one child: `python -m plimsoll_trainer.supervisor FOLDER`.

Starts the processes of the task in FOLDER, waits for them, writes down how each ended.
At home it leads a session of its own, so a terminal's Ctrl-C does not reach it; in a
pod it works for `plimsoll_trainer.pod`.

    one process fails      the others have some seconds to leave, then are killed
    SIGTERM                is passed on: the ranks save and leave; those that have not
                           after some minutes are killed; before there are any, none
                           is started
    the time is up         all are killed

A child is kept once: a lock lets one keeper in, and `began.json` turns later ones away.
So whoever starts a keeper may be killed at any point and start another one.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Protocol

from plimsoll_planner.errors import DISK_FULL, one_line
from plimsoll_planner.exit_codes import ExitCode
from plimsoll_planner.records.document import load, save
from plimsoll_planner.records.task import (
    BEGAN,
    END,
    TASK,
    Began,
    ChildKind,
    Command,
    End,
    Exit,
    Task,
)

POLL_S = 0.05
GRACE_S = 10.0
"""For ranks to notice that another one is gone, and say so."""
SAVE_S = 600.0
"""For ranks that were asked to save and leave."""
TAIL_BYTES, LONGEST_LINE = 65_536, 1024
"""Of a log, that its last line is looked for in; of that line, in characters."""
NOT_STARTED = 127
"""As shells report a command that cannot be run."""
MEMORY_CGROUP = Path("/sys/fs/cgroup")
VMSTAT = Path("/proc/vmstat")


def main() -> None:
    """Keep the child of a folder, unless somebody does or did."""
    folder = Path(sys.argv[1])
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if (folder / BEGAN).exists():
            return
        keeper = Keeper(
            task=load(folder / TASK, Task), outputs=FileOutputs(folder=folder)
        )
        signal.signal(signal.SIGTERM, keeper.ask)
        save(folder / BEGAN, Began(pid=os.getpid(), at_s=time.time()))
        write_down(folder / END, keeper.keep())


class Outputs(Protocol):
    """Where the processes of a task say what they say."""

    @contextmanager
    def open(self, place: int) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
        """Open stdout and stderr of one process while it is started."""
        ...

    def last_line(self, place: int) -> str:
        """Return the last line of a process on stderr, once it has ended."""
        ...


@dataclass(frozen=True, kw_only=True)
class FileOutputs:
    """Files in the folder of the child."""

    folder: Path

    @contextmanager
    def open(self, place: int) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
        """Append to two files."""
        with (
            (self.folder / f"{place}.out").open("ab") as out,
            (self.folder / f"{place}.err").open("ab") as err,
        ):
            yield out, err

    def last_line(self, place: int) -> str:
        """Return the last line that says anything."""
        return last_line(self.folder / f"{place}.err")


@dataclass(kw_only=True)
class Keeper:
    """Keeps the processes of one task."""

    task: Task
    outputs: Outputs
    processes: list[subprocess.Popen[bytes]] = field(
        default_factory=list[subprocess.Popen[bytes]]
    )
    ended_by_us: set[int] = field(default_factory=set[int])
    first: int | None = None
    failed_s: float = 0.0
    """When the first one failed; seconds since they were started."""
    asked_s: float = 0.0
    """When they were asked to leave."""
    is_asked: bool = False
    was_stopped: bool = False
    was_late: bool = False

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Be asked to stop, by a signal; answered between two polls."""
        del number, frame
        self.is_asked = True

    def keep(self) -> End:
        """Start all processes and wait for the last one."""
        if self.is_asked:
            return self.unstarted()
        killed_before, message = killed_for_memory(), ""
        started_s = time.monotonic()
        try:
            for place, command in enumerate(self.task.commands):
                self.processes.append(self.start(place, command))
        except OSError as error:
            message = f"{error.filename}: {error.strerror}"
            self.kill()
        # All are polled each time: a later one may fail while the first lives on.
        while None in [process.poll() for process in self.processes]:
            self.tend(time.monotonic() - started_s)
            time.sleep(POLL_S)
        self.note_failure(time.monotonic() - started_s)
        missing = len(self.task.commands) - len(self.processes)
        return End(
            at_s=time.time(),
            exits=(
                *(self.exit_of(place) for place in range(len(self.processes))),
                *(Exit(status=NOT_STARTED),) * missing,
            ),
            first=self.first,
            was_stopped=self.was_stopped,
            was_late=self.was_late,
            host_was_full=killed_for_memory() > killed_before,
            message=message,
        )

    def unstarted(self) -> End:
        """Return the end of processes that nobody wants any more."""
        trains = self.task.child_kind is ChildKind.TRAIN
        # Of a training nothing was done that could be lost; of the rest all is.
        status = int(ExitCode.CHECKPOINTED if trains else -signal.SIGTERM)
        exits = (Exit(status=status),) * len(self.task.commands)
        return End(at_s=time.time(), exits=exits, was_stopped=True)

    def start(self, place: int, command: Command) -> subprocess.Popen[bytes]:
        """Start one process."""
        extra = {variable.name: variable.value for variable in command.variables}
        with self.outputs.open(place) as (out, err):
            return subprocess.Popen(  # noqa: S603 - our own modules
                command.words,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=self.task.folder,
                env=os.environ | extra,
            )

    def tend(self, passed_s: float) -> None:
        """Look once at what has happened."""
        if self.is_asked and not self.was_stopped:
            self.was_stopped, self.asked_s = True, passed_s
            for process in self.processes:
                process.terminate()
        if self.task.timeout_s is not None and passed_s > self.task.timeout_s:
            self.was_late = True
            self.kill()
        self.note_failure(passed_s)
        if self.first is not None and passed_s - self.failed_s > GRACE_S:
            self.kill()
        if self.was_stopped and passed_s - self.asked_s > SAVE_S:
            self.kill()

    def note_failure(self, passed_s: float) -> None:
        """Remember which process failed first, and when."""
        fine = (None, ExitCode.DONE, ExitCode.CHECKPOINTED)
        failed = [
            place
            for place, process in enumerate(self.processes)
            if process.returncode not in fine and place not in self.ended_by_us
        ]
        if failed and self.first is None:
            self.first, self.failed_s = failed[0], passed_s

    def kill(self) -> None:
        """End what runs."""
        for place, process in enumerate(self.processes):
            if process.poll() is None:
                self.ended_by_us.add(place)
                process.kill()

    def exit_of(self, place: int) -> Exit:
        """Return how one process ended."""
        return Exit(
            status=self.processes[place].returncode,
            by_keeper=place in self.ended_by_us,
            said=self.outputs.last_line(place),
        )


def last_line(path: Path) -> str:
    """Return the last line of a log that says anything."""
    with path.open("rb") as log:
        log.seek(-min(path.stat().st_size, TAIL_BYTES), os.SEEK_END)
        lines = log.read().decode(errors="replace").split("\n")
    line = next((line for line in reversed(lines) if line.strip()), "")
    return one_line(line)[:LONGEST_LINE]


def write_down(path: Path, end: End) -> None:
    """Save an end, as soon as there is room for it."""
    while True:
        try:
            save(path, end)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            time.sleep(GRACE_S)
        else:
            return


def killed_for_memory() -> int:
    """Count the processes that the kernel has killed for want of memory.

    Of this control group where it is counted there, else of the machine.
    """
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        place = MEMORY_CGROUP / controllers / path.lstrip("/")
        for name in ("memory.events", "memory.oom_control"):
            if controllers in ("", "memory") and (place / name).exists():
                return counter(place / name)
    return counter(VMSTAT)


def counter(path: Path) -> int:
    """Return `oom_kill` from a file of names and numbers; 0 where it is not told."""
    pairs = (line.split() for line in path.read_text().splitlines())
    return next((int(pair[1]) for pair in pairs if pair[0] == "oom_kill"), 0)


if __name__ == "__main__":
    main()
