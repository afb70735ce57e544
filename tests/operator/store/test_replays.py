"""Replays, by the digest of the plan."""

from __future__ import annotations

from pathlib import Path

from plimsoll_operator.store.store import Store
from tests.support.builders import DIGEST, a_replay
from tests.support.stores import in_store


def test_the_first_replay_of_a_plan_stays(place: Path | str) -> None:
    """A later one of the same plan changes nothing."""

    async def work(store: Store) -> None:
        assert await store.replays.find(DIGEST) is None
        await store.replays.save(a_replay())
        await store.replays.save(a_replay(torch_version="2.16.0"))
        assert await store.replays.find(DIGEST) == a_replay()

    in_store(place, work)
