"""Places worked through by several processes, whatever becomes of these."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from plimsoll_profiler.ranks import side_by_side as module
from plimsoll_profiler.ranks.side_by_side import (
    PROCESS_BYTES,
    room_for_processes,
    side_by_side,
)

FATAL_PLACE = 3
PATIENCE_S = 20.0


def squared(places: Iterator[int]) -> Iterator[tuple[int, int]]:
    """Yield the square of each place, and who computed it."""
    for place in places:
        yield place**2, os.getpid()


def killed_at_one(places: Iterator[int]) -> Iterator[int]:
    """Yield places, but die at one of them."""
    for place in places:
        if place == FATAL_PLACE:
            os.kill(os.getpid(), signal.SIGKILL)
        yield place


def slow(places: Iterator[int]) -> Iterator[int]:
    """Yield this process, then take a place a moment."""
    for _ in places:
        yield os.getpid()
        time.sleep(0.1)


def is_running(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def all_end(pids: set[int]) -> bool:
    """Whether processes end within some seconds."""
    until_s = time.monotonic() + PATIENCE_S
    while any(map(is_running, pids)):
        if time.monotonic() > until_s:
            return False
        time.sleep(0.05)
    return True


def test_each_place_is_worked_at_once() -> None:
    """In other processes than this one, and none of them is left."""
    found = list(side_by_side(squared, 40, 3))
    assert sorted(square for square, _ in found) == [place**2 for place in range(40)]
    workers = {pid for _, pid in found}
    assert os.getpid() not in workers
    assert all_end(workers)


def test_a_process_that_is_killed_costs_one_place() -> None:
    """The other one goes on with all that are left."""
    found = sorted(side_by_side(killed_at_one, 9, 2))
    assert found == [place for place in range(9) if place != FATAL_PLACE]


def test_processes_end_when_nobody_wants_more() -> None:
    """As after an error of one of them: the rest would be for nothing."""
    with closing(side_by_side(slow, 10_000, 2)) as results:
        workers = {next(results) for _ in range(4)}
    assert all_end(workers)


ABANDONED = """
from plimsoll_profiler.ranks.side_by_side import side_by_side
from tests.profiler_job.ranks.test_side_by_side import slow
for pid in side_by_side(slow, 10_000, 2):
    print(pid, flush=True)
"""


def test_processes_end_with_the_one_that_started_them() -> None:
    """However it is ended; they would keep a gigabyte each."""
    process = subprocess.Popen(
        (sys.executable, "-c", ABANDONED),
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    assert process.stdout is not None
    with process.stdout as out:
        workers = {int(out.readline()) for _ in range(4)}
        process.kill()
        process.wait()
    assert all_end(workers)


@pytest.mark.parametrize(
    ("limits", "count"),
    [
        ({}, 6),
        ({"cpu.max": "max 100000"}, 6),
        ({"cpu.max": "250000 100000"}, 2),
        ({"cpu.max": "10000 100000"}, 1),
        ({"memory.max": "max", "memory.current": str(PROCESS_BYTES)}, 6),
        (
            {
                "memory.max": str(4 * PROCESS_BYTES),
                "memory.current": str(PROCESS_BYTES),
            },
            3,
        ),
        ({"memory.max": str(PROCESS_BYTES), "memory.current": "1"}, 1),
    ],
)
def test_a_container_has_room_for_fewer(
    limits: dict[str, str],
    count: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its share of cores and memory bounds the processes; one is always started."""
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(f"MemFree: 1 kB\nMemAvailable: {100 * PROCESS_BYTES} kB\n")
    for name, text in limits.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(module, "CGROUP", tmp_path)
    monkeypatch.setattr(module, "MEMINFO", meminfo)
    six: Callable[[int], set[int]] = lambda _: set(range(6))  # noqa: E731
    monkeypatch.setattr(os, "sched_getaffinity", six)
    assert room_for_processes() == count


def test_a_machine_short_of_memory_has_room_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replay in one process is what there was before."""
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemAvailable: 1000 kB\n")
    monkeypatch.setattr(module, "MEMINFO", meminfo)
    assert room_for_processes() == 1
