"""A writer that is killed at any moment leaves a store that others read and write."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from plimsoll_operator.store.store import Store
from tests.support.builders import DIGEST, a_profile
from tests.support.stores import (
    PEAKS,
    SPAWN,
    by_hand,
    in_store,
    observe_for_ever,
    stay_in_transaction,
)


def killed(
    work: Callable[..., None], *given: object, after: int, wait_s: float = 0.0
) -> list[object]:
    """Let a process work until it has said something, and kill it.

    Args:
        work: its last argument is what it says things to.
        given: the other arguments.
        after: how many times it says something.
        wait_s: before it is killed then.

    Returns:
        All that it has said.
    """
    here, there = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=work, args=(*given, there))
    process.start()
    there.close()
    said = [here.recv() for _ in range(after)]
    process.join(wait_s)
    process.kill()
    process.join()
    return said + rest(here)


def rest(here: Connection) -> list[object]:
    """Lines that were printed and not read yet."""
    found: list[object] = []
    with here:
        try:
            while True:
                found.append(here.recv())
        except EOFError:
            return found


def test_what_was_saved_before_a_kill_is_there(place: Path | str) -> None:
    """Whatever the moment: every report that was said to be saved, each one whole."""
    saved: set[object] = set()
    for turn, wait_s in enumerate((0.0, 0.002, 0.005, 0.011)):
        said = killed(observe_for_ever, place, turn * 10_000, after=20, wait_s=wait_s)
        saved.update(said)

    async def work(store: Store) -> None:
        found = await store.observations.of("uid", 1)
        ranks = {one.rank for one in found}
        assert saved <= ranks
        assert len(ranks - saved) <= 4  # committed, and killed before it was said
        assert all(one.peaks == PEAKS for one in found)

    in_store(place, work)
    if isinstance(place, Path):
        assert by_hand(place, "PRAGMA integrity_check") == [("ok",)]


def test_a_kill_in_a_transaction_leaves_nothing_of_it(place: Path | str) -> None:
    """Neither its row nor its turn to write."""
    killed(stay_in_transaction, place, after=1)

    async def work(store: Store) -> None:
        await store.profiles.save(a_profile(), 1.0)
        assert await store.profiles.find(DIGEST) is not None

    in_store(place, work)
    assert by_hand(place, "SELECT request_key FROM profile") == [(DIGEST,)]
