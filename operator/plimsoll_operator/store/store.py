"""The store: profiles, plans, runs and calibration, each behind a repository.

In: the path of a file, or the address of a server. Out: a `Store`. Called by the loops
and by the CLI.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from sqlalchemy import delete, select, union

from plimsoll_operator.store.answers import Answers
from plimsoll_operator.store.attempts import Attempts
from plimsoll_operator.store.calibrations import Calibrations
from plimsoll_operator.store.database import DAY_S, Database, open_database
from plimsoll_operator.store.observations import Observations
from plimsoll_operator.store.plans import Plans
from plimsoll_operator.store.pod_ends import PodEnds
from plimsoll_operator.store.profiles import Profiles
from plimsoll_operator.store.questions import Questions
from plimsoll_operator.store.rehearsals import Rehearsals
from plimsoll_operator.store.replays import Replays
from plimsoll_operator.store.revisions import Revisions
from plimsoll_operator.store.rows import (
    AnswerRow,
    PodEndRow,
    ProfileRow,
    QuestionRow,
    RehearsalRow,
    ReplayRow,
    RevisionRow,
)
from plimsoll_operator.store.shortages import Shortages

OF_A_PLAN = (QuestionRow, RehearsalRow, PodEndRow, RevisionRow)
"""Tables that nobody needs once a plan of a cluster is gone."""


class Store:
    """All repositories of one database."""

    def __init__(
        self, database: Database, scope: str = "", *, shares: bool = False
    ) -> None:
        """Work on a database, which stores of several scopes may share.

        A scope is a namespace, or empty for one machine. It has its own replays,
        answers, observations, shortages and calibrations; the rest is found by the uid
        of a plan, or by a key that holds the namespace. Scopes with
        `shares` have replays and answers in common, and listen to the calibrations of
        the others.
        """
        self._database = database
        common = "" if shares else scope
        self.profiles = Profiles(database)
        self.replays = Replays(database, common)
        self.rehearsals = Rehearsals(database)
        self.questions = Questions(database)
        self.answers = Answers(database, common)
        self.attempts = Attempts(database)
        self.revisions = Revisions(database)
        self.plans = Plans(database)
        self.observations = Observations(database, scope)
        self.shortages = Shortages(database, scope)
        self.calibrations = Calibrations(database, scope, shares=shares)
        self.pod_ends = PodEnds(database)

    def within(self, scope: str, *, shares: bool = False) -> Store:
        """The store of another scope, in the same database."""
        return Store(self._database, scope, shares=shares)

    async def forget(self, plan_uid: str) -> None:
        """Forget a plan, but not what its ranks were observed to use."""
        async with self._database.write() as session:
            for row in OF_A_PLAN:
                await session.execute(delete(row).where(row.plan_uid == plan_uid))

    async def forget_unused(self, before_s: float) -> int:
        """Forget profiles, answers and replays, of all scopes, that nobody uses.

        What was used since `before_s` (since 1970) stays, and some of what was
        used on the day before it.
        What a plan needs that is there stays, however long it has waited, run, or been
        a dry run: the profiles and answers of its questions, which go with the plan
        (`forget`). A replay counts no more once its answer is certified. What is gone
        is made anew where it is asked for again: at the price of a profile, a replay
        or a search. Observations and shortages stay: calibrations are fitted to them.

        A file of SQLite becomes no smaller; the room is used again.

        Returns:
            How many rows went.
        """
        asked, noted_s = QuestionRow, before_s - DAY_S
        unused = (
            delete(ProfileRow).where(
                ProfileRow.used_s < noted_s,
                ProfileRow.digest.not_in(select(asked.profile_digest)),
            ),
            delete(AnswerRow).where(
                AnswerRow.used_s < noted_s,
                AnswerRow.problem_digest.not_in(select(asked.problem_digest)),
            ),
            delete(ReplayRow).where(ReplayRow.used_s < noted_s),
        )
        async with self._database.write() as session:
            connection = await session.connection()
            return sum([(await connection.execute(one)).rowcount for one in unused])

    async def known_plans(self) -> set[str]:
        """The uids of all plans that can be forgotten."""
        wanted = union(*(select(row.plan_uid) for row in OF_A_PLAN))
        async with self._database.read() as session:
            return set(await session.scalars(wanted))


@asynccontextmanager
async def open_store(
    place: Path | str, scope: str = "", clock: Callable[[], float] = time.time
) -> AsyncGenerator[Store]:
    """Open a store; make it where there is none, and bring an older one up.

    `place` is one of `system_at`; `clock`, since 1970, says when rows are used.

    Raises:
        StoreError: it cannot be made, read or written; see `plimsoll_operator.errors`.
    """
    async with open_database(place, clock) as database:
        yield Store(database, scope)
