"""Stores for tests: opened in this process, or in several that begin together."""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import resource
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, TypeVar

import pytest
from sqlalchemy import Connection as SqlConnection
from sqlalchemy import Executable, Row, inspect, text

from plimsoll_operator.errors import StoreError, StoreFullError
from plimsoll_operator.store.database import Database, open_database
from plimsoll_operator.store.places import system_at
from plimsoll_operator.store.rows import ProfileRow
from plimsoll_operator.store.store import Store, open_store
from plimsoll_planner.records.observation import ObservedPeak
from plimsoll_planner.records.plan import HybridPlan, Phase
from plimsoll_planner.records.task import End, Exit
from tests.support.builders import DIGEST, a_peak, a_plan, a_profile, an_observation

ROOT = Path(__file__).parents[2]
SPAWN = multiprocessing.get_context("spawn")
Found = TypeVar("Found")


def in_store(place: Path | str, work: Callable[[Store], Awaitable[Found]]) -> Found:
    """Open a store, work in it and close it."""
    return in_store_at(place, work, time.time)


def in_store_at(
    place: Path | str,
    work: Callable[[Store], Awaitable[Found]],
    clock: Callable[[], float],
) -> Found:
    """Do so at another time."""

    async def opened() -> Found:
        async with open_store(place, clock=clock) as store:
            return await work(store)

    return asyncio.run(opened())


def in_database(
    place: Path | str, work: Callable[[Database], Awaitable[Found]]
) -> Found:
    """Open what lies under a store, work in it and close it."""

    async def opened() -> Found:
        async with open_database(place) as database:
            return await work(database)

    return asyncio.run(opened())


@contextmanager
def connected(place: Path | str) -> Generator[SqlConnection]:
    """Open a transaction on a store behind its back."""
    engine = system_at(place).migration_engine()
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def by_hand(
    place: Path | str,
    statement: str | Executable,
    values: Mapping[str, object] | None = None,
) -> list[Row[Any]]:
    """Run a statement on a store behind its back; return the rows that it gives."""
    made = text(statement) if isinstance(statement, str) else statement
    with connected(place) as connection:
        found = connection.execute(made, values)
        return list(found) if found.returns_rows else []


def schema_of(place: Path | str) -> dict[str, object]:
    """Columns, keys and indexes of the tables of a store, by their names."""
    with connected(place) as connection:
        found = inspect(connection)
        return {
            table: (
                [{**one, "type": str(one["type"])} for one in found.get_columns(table)],
                found.get_pk_constraint(table),
                found.get_foreign_keys(table),
                found.get_unique_constraints(table),
                found.get_indexes(table),
            )
            for table in sorted(found.get_table_names())
        }


def at_once(
    work: Callable[..., Found], arguments: Sequence[tuple[object, ...]]
) -> list[Found]:
    """Call a function in as many processes as there are arguments, all together."""
    number = len(arguments)
    with ProcessPoolExecutor(
        number, mp_context=SPAWN, initializer=keep, initargs=(SPAWN.Barrier(number),)
    ) as pool:
        calls = [pool.submit(together, work, *given) for given in arguments]
        return [call.result() for call in calls]


kept: list[Barrier] = []
"""Barrier that the processes of `at_once` wait at, in each of them."""


def keep(barrier: Barrier) -> None:
    """Remember where to wait."""
    kept.append(barrier)


def together(work: Callable[..., Found], *given: object) -> Found:
    """Wait until all processes have come so far."""
    kept[0].wait(timeout=120)
    return work(*given)


TMPFS = 'mount -t tmpfs -o size=1m none "$1"'
READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1"'


def on_own_mount(mount: str, folder: Path, work: Callable[[Path], object]) -> str:
    """Call a function with a folder where another file system is mounted.

    The mount is seen by a process of its own alone and ends with it.

    Args:
        mount: `TMPFS` or `READ_ONLY`.
        folder: where.
        work: of a module of `tests.support`; what it prints is returned.
    """
    unshare = ("unshare", "--map-root-user", "--mount")
    if subprocess.run([*unshare, "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs to mount a file system of its own: unshare --mount")
    name = work.__name__
    code = f"import sys, pathlib; from {work.__module__} import {name} as work"
    code += "; work(pathlib.Path(sys.argv[1]))"
    done = subprocess.run(
        [
            *unshare,
            *("sh", "-ec", f'{mount}; exec "$2" -c "$3" "$1"'),
            *("sh", str(folder), sys.executable, code),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def print_refusal(folder: Path) -> None:
    """Print why there can be no store in a folder."""
    path = folder / "store.db"
    with pytest.raises(StoreError) as refused:
        in_store(path, nothing)
    sys.stdout.write(f"{type(refused.value).__name__} {refused.value}")


async def nothing(_: Store) -> None:
    """Do nothing with a store."""


def fill_disk(folder: Path) -> None:
    """Save profiles until the disk is full, make room, and go on; print how it went."""
    ballast = folder / "ballast"
    ballast.write_bytes(b"x" * 400_000)

    async def work(store: Store) -> None:
        saved, _ = await save_until_full(store)
        ballast.unlink()
        more, _ = await save_until_full(store, first=len(saved) + 1)
        for key in saved + more:
            assert await store.profiles.find(key) is not None
        sys.stdout.write(f"{len(saved)} {len(more)}")

    in_store(folder / "store.db", work)


async def save_until_full(
    store: Store, first: int = 0
) -> tuple[list[str], StoreFullError]:
    """Save profiles until there is no room; return the keys of those that are there."""
    saved: list[str] = []
    for place in itertools.count(first):
        profile = a_profile(request_key=f"sha256:{place:064}")
        try:
            await store.profiles.save(profile, 1.0)
        except StoreFullError as error:
            assert await store.profiles.find(profile.request_key) is None
            return saved, error
        saved.append(profile.request_key)
    raise AssertionError("the disk never was full")


def fill_quota(path: Path) -> tuple[int, str]:
    """Save profiles until no file may grow; return how many, and the message."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))

    async def work(store: Store) -> tuple[int, str]:
        saved, error = await save_until_full(store)
        return len(saved), str(error)

    return in_store(path, work)


def open_new(place: Path | str) -> None:
    """Open a store and do nothing with it."""
    in_store(place, nothing)


def plan_of_record(place: Path | str, micro_batch: int) -> int:
    """Record a plan as the first attempt; return the micro-batch of that of record."""
    size = 16 * micro_batch
    plan = a_plan(micro_batch=micro_batch, global_batch_size=size, num_micro_batches=8)

    async def work(store: Store) -> int:
        return (await begin_attempt(store, "uid", 1, plan)).micro_batch

    return in_store(place, work)


def observe(place: Path | str, ranks: range) -> None:
    """Save a report of each rank."""

    async def work(store: Store) -> None:
        for rank in ranks:
            observation = an_observation(rank=rank, peaks=PEAKS)
            await store.observations.save("uid", observation, a_peak(), 1, 0.0)

    in_store(place, work)


PEAKS = tuple(
    ObservedPeak(
        phase=phase,
        allocated_bytes=place,
        reserved_bytes=2 * place,
        device_bytes=3 * place,
    )
    for place, phase in enumerate(
        (
            Phase.BUILD,
            Phase.FIRST_STEP,
            Phase.BACKWARD,
            Phase.GRADIENT_NORM,
            Phase.OPTIMIZER_STEP,
        )
    )
)
"""As a rank reports them."""


def observe_for_ever(place: Path | str, first: int, reports: Connection) -> None:
    """Save reports and send each one that is saved, until killed."""

    async def work(store: Store) -> None:
        for rank in itertools.count(first):
            observation = an_observation(rank=rank, peaks=PEAKS)
            await store.observations.save("uid", observation, a_peak(), 1, 0.0)
            reports.send(rank)

    in_store(place, work)


def a_row(request_key: str) -> ProfileRow:
    """Build the row of a profile."""
    return ProfileRow(request_key=request_key, digest=DIGEST, made_s=0.0, document="{}")


def an_end(**fields: Any) -> End:
    """Build the end of a pod with one process."""
    defaults: dict[str, Any] = {"at_s": 7.5, "exits": (Exit(status=0),)}
    return End(**(defaults | fields))


def stay_in_transaction(place: Path | str, reports: Connection) -> None:
    """Write a profile without committing it, report that, and stay until killed."""

    async def work(database: Database) -> None:
        async with database.write() as session:
            session.add(a_row("unsaved"))
            await session.flush()
            reports.send("in it")
            await asyncio.sleep(600)

    in_database(place, work)


async def begin_attempt(
    store: Store,
    plan_uid: str,
    number: int,
    plan: HybridPlan | None = None,
    *,
    now_s: float = 0.0,
) -> HybridPlan:
    """Write down a plan of record; return the one that counts."""
    return await store.attempts.record(
        plan_uid, number, plan or a_plan(), problem_digest=DIGEST, now_s=now_s
    )
