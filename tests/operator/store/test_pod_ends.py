"""Ends of pods, by plan, attempt and pod."""

from __future__ import annotations

from pathlib import Path

from plimsoll_operator.store.pod_ends import StoredEnd
from plimsoll_operator.store.store import Store
from tests.support.stores import an_end, in_store


def test_the_first_end_of_a_pod_stays(place: Path | str) -> None:
    """Told again it changes nothing; a pod in the same place is another one."""
    stopped, failed = an_end(was_stopped=True), an_end(first=0, message="no such file")

    async def work(store: Store) -> None:
        ends = store.pod_ends
        assert await ends.of("uid", 1) == {}
        await ends.save("uid", 1, 1, "pod-b", stopped)
        await ends.save("uid", 1, 0, "pod-b", failed)
        await ends.save("uid", 1, 1, "pod-c", failed)
        await ends.save("uid", 2, 0, "pod-d", failed)
        await ends.save("other", 1, 0, "pod-e", failed)
        assert await ends.of("uid", 1) == {
            "pod-b": StoredEnd(place=1, end=stopped),
            "pod-c": StoredEnd(place=1, end=failed),
        }

    in_store(place, work)


def test_the_pod_that_ended_first_comes_first(place: Path | str) -> None:
    """Whoever told first, and whatever their uids; so a successor comes later."""
    ended_s = {"pod-c": 3.0, "pod-a": 9.0, "pod-d": 1.0, "pod-b": 3.0}

    async def work(store: Store) -> None:
        for uid, at_s in ended_s.items():
            await store.pod_ends.save("uid", 1, 0, uid, an_end(at_s=at_s))
        found = await store.pod_ends.of("uid", 1)
        assert list(found) == ["pod-d", "pod-b", "pod-c", "pod-a"]

    in_store(place, work)
