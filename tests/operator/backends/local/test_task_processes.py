"""Task processes are kept once, found by their mark, and never left over."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path

import psutil
import pytest

from plimsoll_operator.backends.local import task_processes
from plimsoll_operator.backends.local.task_processes import (
    MARK,
    SUPERVISOR,
    TaskProcesses,
)
from plimsoll_operator.errors import SlowStartError
from plimsoll_operator.rules.observed_state import (
    Ending,
    ObservedTask,
    TaskKind,
    TaskState,
)
from plimsoll_planner.records.document import load, save
from plimsoll_planner.records.task import END, TASK, Command, End, Task, Variable

SLEEPS = "import time; time.sleep(600)"
SAVES = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(84))
print("listens", flush=True)
time.sleep(600)
"""
HANGS = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("hangs", flush=True)
time.sleep(600)
"""


@pytest.fixture
def tasks(tmp_path: Path) -> Generator[TaskProcesses]:
    """No tasks yet, and none in the end."""
    made = TaskProcesses(tmp_path / "children")
    yield made
    made.end_all()
    # A supervisor that has written its end may be about to leave; a look lets go.
    until(lambda: not marked(tmp_path))
    time.sleep(0.05)
    made.observe()


def a_task(folder: Path, *programs: str, timeout_s: float | None = None) -> Task:
    """Run Python programs side by side."""
    return Task(
        child_kind=TaskKind.TRAIN,
        subject="1",
        commands=tuple(
            Command(
                words=(sys.executable, "-c", text),
                variables=(Variable(name="RANK", value=str(place)),),
            )
            for place, text in enumerate(programs)
        ),
        folder=str(folder),
        timeout_s=timeout_s,
    )


def only(tasks: TaskProcesses) -> ObservedTask:
    """Only task."""
    [task] = tasks.observe()
    return task


def until(holds: Callable[[], bool], seconds: float = 120.0) -> None:
    """Wait until something is so."""
    end_s = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def ended(tasks: TaskProcesses) -> ObservedTask:
    """Only task once it has ended."""
    until(lambda: only(tasks).state is TaskState.ENDED)
    return only(tasks)


def marked(tmp_path: Path, *words: str) -> list[psutil.Process]:
    """Live processes of all tasks below a folder that were called with words."""
    found = []
    for process in psutil.process_iter():
        try:
            is_ours = process.environ().get(MARK, "").startswith(str(tmp_path))
            is_zombie = process.status() == psutil.STATUS_ZOMBIE
            if is_ours and not is_zombie and set(words) <= set(process.cmdline()):
                found.append(process)
        except (psutil.Error, OSError):
            continue  # gone meanwhile, or somebody else's
    return found


def keepers(tmp_path: Path) -> list[psutil.Process]:
    """Keepers among them, and ranks that were forked but run nothing yet."""
    return marked(tmp_path, SUPERVISOR)


def test_a_task_runs_and_ends(tasks: TaskProcesses, tmp_path: Path) -> None:
    """Each process has its number; what they say is kept, also when it is cleared."""
    words = "import os; print('rank', os.environ['RANK'])"
    tasks.start(a_task(tmp_path, words, words))
    assert ended(tasks).ending is Ending.DONE
    tasks.clear(TaskKind.TRAIN, "1")
    assert tasks.observe() == ()
    logs = tasks.logs(TaskKind.TRAIN, "1")
    assert (logs / "1.out").read_text() == "rank 1\n"


def test_a_task_is_started_once(tasks: TaskProcesses, tmp_path: Path) -> None:
    """However often it is asked for, and after it has ended as well."""
    task = a_task(tmp_path, "print('here', flush=True)")
    tasks.start(task)
    tasks.start(task)
    ended(tasks)
    tasks.start(task)
    folder = tasks.folder(TaskKind.TRAIN, "1")
    assert (folder / "0.out").read_text() == "here\n"


def test_two_supervisors_supervise_one_task(
    tasks: TaskProcesses, tmp_path: Path
) -> None:
    """Whoever comes second leaves: a crash between two steps starts nothing twice."""
    folder = tasks.folder(TaskKind.TRAIN, "1")
    folder.mkdir(parents=True)
    save(folder / TASK, a_task(tmp_path, "print('here', flush=True)"))
    keepers = [
        subprocess.Popen(
            [sys.executable, "-m", SUPERVISOR, str(folder)],
            env=os.environ | {MARK: str(folder)},
        )
        for _ in range(4)
    ]
    assert [supervisor.wait() for supervisor in keepers] == [0] * 4
    assert (folder / "0.out").read_text() == "here\n"


def test_another_process_finds_what_runs(tasks: TaskProcesses, tmp_path: Path) -> None:
    """Nothing is remembered but the mark: whoever looks sees the same."""
    tasks.start(a_task(tmp_path, SLEEPS))
    other = TaskProcesses(tmp_path / "children")
    assert only(other).state is TaskState.RUNNING
    other.end_all()
    assert ended(other).ending is Ending.DISRUPTED
    assert marked(tmp_path) == []


def test_a_supervisor_of_an_older_release_goes_on(
    tasks: TaskProcesses, tmp_path: Path
) -> None:
    """Its module had another name; whoever looks with this release lets it work."""
    tasks.start(a_task(tmp_path, SLEEPS))
    until(lambda: len(marked(tmp_path)) == 2 and len(keepers(tmp_path)) == 1)
    [supervisor] = keepers(tmp_path)
    folder = tasks.folder(TaskKind.TRAIN, "1")
    older = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import time; time.sleep(300)",
            "plimsoll_trainer.keeper",
        ],
        env=os.environ | {MARK: str(folder)},
    )
    supervisor.kill()
    supervisor.wait()
    assert only(tasks).state is TaskState.RUNNING
    assert len(marked(tmp_path)) == 2
    older.kill()
    older.wait()
    assert ended(tasks).ending is Ending.DISRUPTED


def test_processes_without_a_keeper_are_ended(
    tasks: TaskProcesses, tmp_path: Path
) -> None:
    """Nobody would write down how they end; then the task counts as disrupted."""
    tasks.start(a_task(tmp_path, SLEEPS, SLEEPS))
    until(lambda: len(marked(tmp_path)) == 3 and len(keepers(tmp_path)) == 1)
    [supervisor] = keepers(tmp_path)
    supervisor.kill()
    assert ended(tasks).ending is Ending.DISRUPTED
    assert marked(tmp_path) == []


def test_what_a_rank_started_itself_is_ended_with_it(
    tasks: TaskProcesses, tmp_path: Path
) -> None:
    """Loaders of data, for one, carry the same mark."""
    starts = (
        "import subprocess, sys;"
        f"subprocess.Popen([sys.executable, '-c', {SLEEPS!r}], start_new_session=True)"
    )
    tasks.start(a_task(tmp_path, starts))
    until(lambda: tasks.observe() != () and not marked(tmp_path))
    assert ended(tasks).ending is Ending.DONE


def test_a_stop_is_passed_on(tasks: TaskProcesses, tmp_path: Path) -> None:
    """The ranks save and leave by themselves."""
    tasks.start(a_task(tmp_path, SAVES, SAVES))
    folder = tasks.folder(TaskKind.TRAIN, "1")
    until(
        lambda: [path.stat().st_size > 0 for path in folder.glob("?.out")] == [True] * 2
    )
    tasks.stop(TaskKind.TRAIN, "1")
    assert ended(tasks).ending is Ending.CHECKPOINTED


def test_a_stop_before_anybody_listens_is_no_saving(
    tasks: TaskProcesses, tmp_path: Path
) -> None:
    """A rank that the signal kills while it starts has saved nothing, and says so."""
    tasks.start(a_task(tmp_path, SLEEPS))
    until(lambda: len(marked(tmp_path)) == 2)
    tasks.stop(TaskKind.TRAIN, "1")
    task = ended(tasks)
    assert task.ending is Ending.DISRUPTED
    assert task.message == "it was stopped before it could save"


def test_a_task_has_only_so_long(tasks: TaskProcesses, tmp_path: Path) -> None:
    """Then all of it is ended."""
    tasks.start(a_task(tmp_path, SLEEPS, timeout_s=0.2))
    assert ended(tasks).ending is Ending.TIMED_OUT
    assert marked(tmp_path) == []


def test_a_command_that_cannot_be_run_is_an_error_with_its_line(
    tasks: TaskProcesses, tmp_path: Path
) -> None:
    """A folder that is not there, for one."""
    tasks.start(a_task(tmp_path / "nowhere", SLEEPS))
    task = ended(tasks)
    assert task.ending is Ending.APPLICATION_ERROR
    assert "nowhere: No such file or directory" in task.message


def test_who_does_not_leave_when_asked_is_killed_in_the_end(
    tasks: TaskProcesses, tmp_path: Path
) -> None:
    """A rank that hangs keeps nobody waiting for ever; here for half a second."""
    folder = tasks.folder(TaskKind.TRAIN, "1")
    folder.mkdir(parents=True)
    save(folder / TASK, a_task(tmp_path, HANGS))
    text = (
        f"import {SUPERVISOR} as supervisor; supervisor.SAVE_S = 0.5; supervisor.main()"
    )
    supervisor = subprocess.Popen(
        [sys.executable, "-c", text, str(folder)], env=os.environ | {MARK: str(folder)}
    )
    until(lambda: any("hangs" in path.read_text() for path in folder.glob("0.out")))
    supervisor.terminate()
    supervisor.wait()
    task = only(tasks)
    assert task.ending is Ending.DISRUPTED
    assert task.message == "it was stopped before it could save"


def test_a_rank_from_outside_killed_takes_its_gang_along(
    tasks: TaskProcesses, tmp_path: Path
) -> None:
    """The others get some seconds to say what they lost; here they do not use them."""
    tasks.start(a_task(tmp_path, SLEEPS, "import sys; sys.exit(0)"))
    until(lambda: len(marked(tmp_path, SLEEPS)) == 1)
    marked(tmp_path, SLEEPS)[0].kill()
    assert ended(tasks).ending is Ending.DISRUPTED


def test_a_later_rank_that_fails_takes_the_first_along(
    tasks: TaskProcesses, tmp_path: Path
) -> None:
    """Whichever of them it is, the others are not waited for."""
    tasks.start(a_task(tmp_path, SLEEPS, "import sys; sys.exit(1)"))
    assert ended(tasks).ending is Ending.APPLICATION_ERROR
    end = load(tasks.folder(TaskKind.TRAIN, "1") / END, End)
    assert end.first == 1
    assert end.exits[0].by_keeper


def test_a_clearing_that_was_killed_leaves_no_ghost(
    tasks: TaskProcesses, tmp_path: Path
) -> None:
    """What is half removed is no task any more, and is removed wholly later."""
    tasks.start(a_task(tmp_path, "pass"))
    ended(tasks)
    folder = tasks.folder(TaskKind.TRAIN, "1")
    gone = folder.with_name(f".{folder.name}")
    folder.rename(gone)
    (gone / TASK).unlink()
    assert tasks.observe() == ()
    tasks.clear(TaskKind.TRAIN, "1")
    assert not gone.exists()


def test_a_keeper_that_is_killed_at_once_is_started_again(
    tasks: TaskProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody may kill it before it has written anything down."""
    task = a_task(tmp_path, SLEEPS)
    with monkeypatch.context() as killed:
        killed.setattr(task_processes, "SUPERVISOR", "tests.support.killed_keeper")
        with pytest.raises(SlowStartError, match="its supervisor was ended by SIGKILL"):
            tasks.start(task)
    assert tasks.observe() == ()
    tasks.start(task)
    assert only(tasks).state is TaskState.RUNNING
