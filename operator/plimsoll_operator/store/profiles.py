"""Costs of workloads, by request key."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select

from plimsoll_operator.store.database import Repository
from plimsoll_operator.store.documents import (
    large_digest_of,
    large_record_of,
    large_text_of,
)
from plimsoll_operator.store.rows import ProfileRow
from plimsoll_planner.records.model_profile import ModelProfile


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownProfile:
    """Which profile there is, and since when."""

    digest: str
    made_s: float
    """Seconds since 1970."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredProfile(KnownProfile):
    """A profile as it was stored."""

    profile: ModelProfile


class Profiles(Repository):
    """The newest profile of each request key."""

    async def find(self, request_key: str) -> StoredProfile | None:
        """The profile that answers a request."""
        row = await self._used(ProfileRow, request_key)
        if row is None:
            return None
        profile = await large_record_of(ModelProfile, row.document)
        return StoredProfile(profile=profile, digest=row.digest, made_s=row.made_s)

    async def known(self, request_key: str) -> KnownProfile | None:
        """Which profile answers a request, without reading it."""
        wanted = select(ProfileRow.digest, ProfileRow.made_s).where(
            ProfileRow.request_key == request_key
        )
        async with self._database.read() as session:
            row = (await session.execute(wanted)).one_or_none()
        return (
            None if row is None else KnownProfile(digest=row.digest, made_s=row.made_s)
        )

    async def save(self, profile: ModelProfile, made_s: float) -> None:
        """Keep a profile, in place of the one that answered its request before."""
        row = ProfileRow(
            request_key=profile.request_key,
            digest=await large_digest_of(profile),
            made_s=made_s,
            used_s=self._database.clock(),
            document=await large_text_of(profile),
        )
        await self._replace(row)
