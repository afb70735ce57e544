"""The supervisor of one task: `python -m plimsoll_trainer.supervisor FOLDER`.

Starts the task processes of FOLDER, waits for them, and writes down how each ended. On
one machine it leads a session of its own, so a terminal's Ctrl-C does not reach it; in
a pod it works for `plimsoll_trainer.pod`.

    one process fails      the others have some seconds to leave, then are killed
    SIGTERM                is passed on: the ranks save and leave; those that have not
                           after some minutes are killed; before there are any, none
                           is started
    the time is up         all are killed

A task is run once: a lock admits one supervisor, and `began.json` turns later ones
away. So whoever starts a supervisor may be killed at any point and start another one.
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
    Command,
    End,
    Exit,
    Task,
    TaskKind,
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
    """Run the task of a folder, unless another supervisor does or did."""
    folder = Path(sys.argv[1])
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if (folder / BEGAN).exists():
            return
        supervisor = Supervisor(
            task=load(folder / TASK, Task), outputs=FileOutputs(folder=folder)
        )
        signal.signal(signal.SIGTERM, supervisor.ask_to_stop)
        save(folder / BEGAN, Began(pid=os.getpid(), at_s=time.time()))
        write_down(folder / END, supervisor.run())


class Outputs(Protocol):
    """Outputs of the processes of a task."""

    @contextmanager
    def open(self, place: int) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
        """Open stdout and stderr of one process while it is started."""
        ...

    def last_line(self, place: int) -> str:
        """Last line of a process on stderr, once it has ended."""
        ...


@dataclass(frozen=True, kw_only=True)
class FileOutputs:
    """Files in the folder of the task."""

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
        """Last line that is not blank."""
        return last_line(self.folder / f"{place}.err")


@dataclass(kw_only=True)
class Supervisor:
    """Supervises the processes of one task."""

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
    is_asked_to_stop: bool = False
    was_stopped: bool = False
    was_late: bool = False

    def ask_to_stop(self, number: int, frame: FrameType | None) -> None:
        """Remember a signal; it is answered between two polls."""
        del number, frame
        self.is_asked_to_stop = True

    def run(self) -> End:
        """Start all processes and wait for the last one."""
        if self.is_asked_to_stop:
            return self.end_unstarted()
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
            self.poll(time.monotonic() - started_s)
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

    def end_unstarted(self) -> End:
        """The end of processes that were asked to stop before they were started."""
        trains = self.task.child_kind is TaskKind.TRAIN
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

    def poll(self, passed_s: float) -> None:
        """Act once on what has happened since."""
        if self.is_asked_to_stop and not self.was_stopped:
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
        """Exit of one process."""
        return Exit(
            status=self.processes[place].returncode,
            by_keeper=place in self.ended_by_us,
            said=self.outputs.last_line(place),
        )


def last_line(path: Path) -> str:
    """Last line of a log that is not blank."""
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
    """Number of processes that the kernel has killed because memory was full.

    In this control group if it is counted there, else on the machine.
    """
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        place = MEMORY_CGROUP / controllers / path.lstrip("/")
        for name in ("memory.events", "memory.oom_control"):
            if controllers in ("", "memory") and (place / name).exists():
                return counter(place / name)
    return counter(VMSTAT)


def counter(path: Path) -> int:
    """The number `oom_kill` in a file of names and numbers; 0 if it is not there."""
    pairs = (line.split() for line in path.read_text().splitlines())
    return next((int(pair[1]) for pair in pairs if pair[0] == "oom_kill"), 0)


if __name__ == "__main__":
    main()
