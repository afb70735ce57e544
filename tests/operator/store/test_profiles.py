"""Profiles, by request key."""

from __future__ import annotations

from pathlib import Path

from plimsoll_operator.store.profiles import KnownProfile, StoredProfile
from plimsoll_operator.store.store import Store
from plimsoll_planner.records.document import digest_of
from tests.support.builders import DIGEST, a_profile
from tests.support.stores import in_store


def test_a_profile_is_found_by_its_request_key(place: Path | str) -> None:
    """As it was, with the time at which it was made; another key finds nothing."""

    async def work(store: Store) -> None:
        assert await store.profiles.find(DIGEST) is None
        await store.profiles.save(a_profile(), 12.5)
        found = await store.profiles.find(DIGEST)
        assert found == StoredProfile(
            profile=a_profile(), digest=digest_of(a_profile()), made_s=12.5
        )
        assert await store.profiles.find(DIGEST.replace("0", "1")) is None

    in_store(place, work)


def test_the_profile_that_is_saved_last_counts(place: Path | str) -> None:
    """Also where a clock was set back meanwhile: it was asked for, and is there."""
    first, second = a_profile(), a_profile(tokens_per_sample=1024)

    async def work(store: Store) -> None:
        await store.profiles.save(first, 3.0)
        await store.profiles.save(second, 2.0)
        found = await store.profiles.find(DIGEST)
        assert found is not None
        assert (found.profile, found.made_s) == (second, 2.0)

    in_store(place, work)


def test_which_profile_there_is_can_be_told_without_reading_it(
    place: Path | str,
) -> None:
    """Its digest, and since when."""

    async def work(store: Store) -> None:
        assert await store.profiles.known(DIGEST) is None
        await store.profiles.save(a_profile(), 12.5)
        known = KnownProfile(digest=digest_of(a_profile()), made_s=12.5)
        assert await store.profiles.known(DIGEST) == known

    in_store(place, work)
