"""Works through many places in processes side by side, forks of this one.

In: what works through places, how many places, how many processes. Out: results, as
they come. Called by the replayer before code of users is loaded: a fork has the modules
that are imported, 3 s of torch, but none of the threads that such code may start.

    this process --- all places, in one pipe ---> whichever process is free
                 <-- results, in a pipe each ---

A process that is killed, as when memory is short, costs the place that it was at. Each
ends by itself when there are no more places, or nobody reads its results.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TypeVar, cast

T = TypeVar("T")
CONTEXT = multiprocessing.get_context("fork")
PLACE_BYTES = 2
MOST_PLACES = 2**15
"""So many fit into a pipe, which holds 64 KiB."""
PROCESS_BYTES = 2**31
"""Memory for a process: twice what the replay of a 70B Llama takes."""
MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")
"""Of this container; version 2."""


def room_for_processes() -> int:
    """Processes that this machine, or the container's share of it, has room for."""
    cores = float(len(os.sched_getaffinity(0)))
    available_kib = next(
        int(line.split()[1])
        for line in MEMINFO.read_text().splitlines()
        if line.startswith("MemAvailable:")
    )
    free_bytes = 1024 * available_kib
    quota, period = words_in(CGROUP / "cpu.max", 2)
    if quota.isdecimal() and period.isdecimal():
        cores = min(cores, int(quota) / int(period))
    (limit,), (used,) = (
        words_in(CGROUP / f"memory.{x}", 1) for x in ("max", "current")
    )
    if limit.isdecimal() and used.isdecimal():
        free_bytes = min(free_bytes, int(limit) - int(used))
    return max(1, min(round(cores), free_bytes // PROCESS_BYTES))


def words_in(path: Path, count: int) -> list[str]:
    """The first words of a file; "max", for no limit, if there is no such file."""
    found = path.read_text().split() if path.exists() else []
    return [*found, *["max"] * count][:count]


def side_by_side(
    work: Callable[[Iterator[int]], Iterator[T]], num_places: int, num_processes: int
) -> Generator[T, None, None]:
    """Results, as they come; close it to end the processes early.

    `work` runs in each process, on those of the places 0 .. num_places - 1 that the
    process gets; its results are pickled.
    """
    places, writing = os.pipe()
    with os.fdopen(writing, "wb") as pipe:
        for place in range(min(num_places, MOST_PLACES)):
            pipe.write(place.to_bytes(PLACE_BYTES, "big"))
    # The only writing end is closed: a process that finds the pipe empty is done.
    workers: dict[Connection, BaseProcess] = {}  # by where the results come from
    try:
        while len(workers) < num_processes:
            results, process = start(work, places, list(workers))
            workers[results] = process
        waiting = list(workers)
        while waiting:
            for results in cast("list[Connection]", wait(waiting)):
                try:
                    yield results.recv()
                except EOFError:
                    waiting.remove(results)
    finally:
        os.close(places)
        for results, process in workers.items():
            process.kill()
            process.join()
            results.close()


def start(
    work: Callable[[Iterator[int]], Iterator[T]], places: int, others: list[Connection]
) -> tuple[Connection, BaseProcess]:
    """A process that works at places of a pipe, and where its results come from.

    `others` are results of other processes.
    """
    ours, theirs = CONTEXT.Pipe(duplex=False)
    args = (work, places, theirs, [*others, ours])
    process = CONTEXT.Process(target=run, args=args, daemon=True)
    process.start()
    theirs.close()
    return ours, process


def run(
    work: Callable[[Iterator[int]], Iterator[T]],
    places: int,
    results: Connection,
    inherited: list[Connection],
) -> None:
    """Work at whatever place is next, until there is none."""
    for connection in inherited:  # else a write would not fail when nobody reads
        connection.close()
    with suppress(BrokenPipeError):
        for result in work(read_places(places)):
            results.send(result)


def read_places(places: int) -> Iterator[int]:
    """Take places from a pipe that others read as well."""
    while place := os.read(places, PLACE_BYTES):
        yield int.from_bytes(place, "big")
