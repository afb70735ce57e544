"""Profiles, by request key."""

from __future__ import annotations

from pathlib import Path

from plimsoll_operator.store.profiles import StoredProfile
from plimsoll_operator.store.store import Store
from tests.support.builders import DIGEST, a_profile
from tests.support.stores import in_store


def test_a_profile_is_found_by_its_request_key(tmp_path: Path) -> None:
    """As it was, with the time at which it was made; another key finds nothing."""

    async def work(store: Store) -> None:
        assert await store.profiles.find(DIGEST) is None
        await store.profiles.save(a_profile(), 12.5)
        found = await store.profiles.find(DIGEST)
        assert found == StoredProfile(profile=a_profile(), made_s=12.5)
        assert await store.profiles.find(DIGEST.replace("0", "1")) is None

    in_store(tmp_path / "store.db", work)


def test_the_newer_profile_wins(tmp_path: Path) -> None:
    """Whichever is saved last."""
    newer, older = a_profile(tokens_per_sample=1024), a_profile()

    async def work(store: Store) -> None:
        for profile, made_s in ((older, 1.0), (newer, 3.0), (older, 2.0)):
            await store.profiles.save(profile, made_s)
        found = await store.profiles.find(DIGEST)
        assert found == StoredProfile(profile=newer, made_s=3.0)

    in_store(tmp_path / "store.db", work)
