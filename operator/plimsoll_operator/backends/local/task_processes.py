"""Tasks of one plan: those that run, and those that ended and were not cleared away.

Every process of a task carries the folder of the task in its environment, and so do
the processes that it starts. That mark, read from the kernel, says what is alive; no
number of a process is ever kept.

    no began.json                      the task does not exist
    supervisor alive                   running
    end.json, nothing alive            ended as that says
    neither, nothing alive             ended: somebody killed all of it
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

from plimsoll_operator.errors import LocalBackendError, SlowStartError
from plimsoll_operator.rules.advice import ON_ONE_MACHINE, advised
from plimsoll_operator.rules.endings import ending_of
from plimsoll_operator.rules.observed_state import (
    Ending,
    ObservedTask,
    TaskKind,
    TaskState,
)
from plimsoll_planner.errors import DEBUG_VARIABLE
from plimsoll_planner.records.document import load, save
from plimsoll_planner.records.task import BEGAN, END, TASK, Began, End, Task

MARK = "PLIMSOLL_CHILD"
SUPERVISOR = "plimsoll_trainer.supervisor"
NAMES = {SUPERVISOR, "plimsoll_trainer.keeper"}
"""Its module, and the name that this had: one that an older release began goes on."""
START_S, KILL_S = 30.0, 10.0
"""At most, for a supervisor to begin and for a killed process to go."""
POLL_S = 0.02
LOGS = (".out", ".err", ".jsonl", ".log")
"""Ends of the names of files that stay when a task is cleared away."""
SUBJECT_LENGTH = 16
"""Of a subject in the name of a folder; digests are cut."""


class TaskProcesses:
    """The tasks of one plan."""

    def __init__(self, root: Path, name: str = "NAME") -> None:
        """Keep them below a folder; `name` is the plan's in advice."""
        self._root, self._name = root.resolve(), name
        self._supervisors: list[subprocess.Popen[bytes]] = []

    def folder(self, kind: TaskKind, subject: str) -> Path:
        """The folder of a task."""
        short = subject.removeprefix("sha256:")[:SUBJECT_LENGTH]
        return self._root / f"{kind}-{short}"

    def observe(self) -> tuple[ObservedTask, ...]:
        """The tasks that are there; those without a supervisor are ended first."""
        alive = self._kept()
        found = [path.parent for path in sorted(self._root.glob(f"[!.]*/{BEGAN}"))]
        if any(one not in alive and not (one / END).exists() for one in found):
            # A process that replaces itself shows no mark for a moment.
            time.sleep(POLL_S)
            alive |= self._alive()
        return tuple(task_in(one, self._name, is_alive=one in alive) for one in found)

    def alive(self) -> set[Path]:
        """The folders of tasks of which anything is alive; ends nothing."""
        found = self._alive()
        if not found:
            time.sleep(POLL_S)  # as in `observe`
            found = self._alive()
        return set(found)

    def has_changed(self, seen: Iterable[ObservedTask]) -> bool:
        """Whether a running task has ended; does not look at every process."""
        return any(
            (self.folder(task.kind, task.subject) / END).exists()
            for task in seen
            if task.state is TaskState.RUNNING
        ) or any(supervisor.poll() is not None for supervisor in self._supervisors)

    def start(self, task: Task) -> None:
        """Start a task, unless it is there.

        Raises:
            LocalBackendError: its supervisor cannot begin.
            SlowStartError: it has not yet, or was killed before.
        """
        folder = self.folder(task.child_kind, task.subject)
        if (folder / BEGAN).exists():
            return
        folder.mkdir(parents=True, exist_ok=True)
        save(folder / TASK, task)
        with (folder / "keeper.log").open("ab") as log:
            supervisor = subprocess.Popen(  # noqa: S603 - our own module
                (sys.executable, "-m", SUPERVISOR, str(folder)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {MARK: str(folder), DEBUG_VARIABLE: "1"},
                start_new_session=True,
            )
        self._supervisors.append(supervisor)
        end_s = time.monotonic() + START_S
        while not (folder / BEGAN).exists():
            if supervisor.poll() and not (folder / BEGAN).exists():
                raise not_begun(folder, supervisor.returncode)
            if time.monotonic() > end_s:
                raise SlowStartError(f"{folder}: no supervisor after {START_S:g} s")
            time.sleep(POLL_S)

    def stop(self, kind: TaskKind, subject: str) -> None:
        """Ask a task to save and leave; asked twice is asked once."""
        folder = self.folder(kind, subject)
        for process in self._alive().get(folder, ()):
            if is_supervisor(process):
                process.terminate()

    def end_all(self) -> None:
        """End whatever runs, saved or not, and what that starts meanwhile."""
        while alive := self._alive():
            kill(process for found in alive.values() for process in found)

    def logs(self, kind: TaskKind, subject: str) -> Path:
        """The folder with the logs of a task that was cleared away."""
        return self._root.parent / "logs" / self.folder(kind, subject).name

    def clear(self, kind: TaskKind, subject: str) -> None:
        """End what is alive of a task, and remove its folder; its logs stay."""
        folder = self.folder(kind, subject)
        kill(self._alive().get(folder, ()))
        self._reap()
        gone = folder.with_name(f".{folder.name}")
        shutil.rmtree(gone, ignore_errors=True)  # of a clearing that was killed
        if not folder.exists():
            return
        logs = self.logs(kind, subject)
        logs.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            if path.suffix in LOGS and path.stat().st_size:
                shutil.copy(path, logs / path.name)
        folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def _kept(self) -> dict[Path, list[psutil.Process]]:
        """Living processes, once all that have no supervisor are ended.

        What a supervisor that has ended left over is ended as well.
        """
        alive, lost = self._alive(), list[psutil.Process]()
        for folder, processes in alive.items():
            is_kept = any(map(is_supervisor, processes)) and folder.exists()
            if not is_kept or (folder / END).exists():
                lost += [
                    p for p in processes if not is_supervisor(p) or not folder.exists()
                ]
        if not lost:
            return alive
        kill(lost)
        return self._alive()

    def _alive(self) -> dict[Path, list[psutil.Process]]:
        """The living processes of each task, by its folder."""
        self._reap()
        found: dict[Path, list[psutil.Process]] = {}
        for process in psutil.process_iter():
            try:
                mark = process.environ().get(MARK)
                is_zombie = process.status() == psutil.STATUS_ZOMBIE
            except (psutil.Error, OSError):
                continue  # gone meanwhile, or somebody else's
            if mark and not is_zombie and Path(mark).parent == self._root:
                found.setdefault(Path(mark), []).append(process)
        return found

    def _reap(self) -> None:
        """Let go of supervisors that have ended."""
        self._supervisors = [k for k in self._supervisors if k.poll() is None]


def not_begun(folder: Path, status: int) -> LocalBackendError:
    """The error of a supervisor that has ended before it began."""
    if status < 0:
        name = signal.Signals(-status).name
        return SlowStartError(f"{folder}: its supervisor was ended by {name}")
    lines = (folder / "keeper.log").read_text(errors="replace").splitlines()
    why = lines[-1] if lines else f"exit status {status}"
    return LocalBackendError(f"{folder}: its supervisor did not begin: {why}")


def is_supervisor(process: psutil.Process) -> bool:
    """Whether a process of a task is the one that keeps it."""
    try:
        return not NAMES.isdisjoint(process.cmdline())
    except psutil.Error:
        return False


def kill(processes: Iterable[psutil.Process]) -> None:
    """End processes, and wait until they are gone.

    Raises:
        LocalBackendError: one does not go, as when its disk does not answer.
    """
    mine = list(processes)
    for process in mine:
        try:
            process.kill()
        except psutil.Error:
            continue  # gone meanwhile, or not ours to end: then it is reported below
    _, alive = psutil.wait_procs(mine, timeout=KILL_S)
    if alive:
        raise LocalBackendError(
            f"process {alive[0].pid} cannot be ended, it waits for the machine; "
            "nothing else is started beside it: try again"
        )


def task_in(folder: Path, name: str, *, is_alive: bool) -> ObservedTask:
    """The task of a folder in which a supervisor has begun; `name` is the plan's."""
    task, began = load(folder / TASK, Task), load(folder / BEGAN, Began)
    if is_alive:
        state, since_s, ending, message = TaskState.RUNNING, began.at_s, None, ""
    elif (folder / END).exists():
        end = load(folder / END, End)
        state, since_s = TaskState.ENDED, end.at_s
        ending, line = ending_of(end)
        message = advised(line, task.child_kind, ON_ONE_MACHINE, name)[:1024]
    else:
        state, since_s = TaskState.ENDED, began.at_s
        ending, message = Ending.DISRUPTED, "all of its processes were killed"
    return ObservedTask(
        kind=task.child_kind,
        subject=task.subject,
        state=state,
        since_s=since_s,
        started_s=began.at_s,
        ending=ending,
        message=message,
    )
