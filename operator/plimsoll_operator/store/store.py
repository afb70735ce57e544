"""The store: profiles, plans, runs and calibration, each behind a repository.

In: the path of a file. Out: a `Store`. Called by the loop of a home and by the CLI.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from plimsoll_operator.store.answers import Answers
from plimsoll_operator.store.attempts import Attempts
from plimsoll_operator.store.calibrations import Calibrations
from plimsoll_operator.store.database import Database, open_database
from plimsoll_operator.store.observations import Observations
from plimsoll_operator.store.plans import Plans
from plimsoll_operator.store.profiles import Profiles
from plimsoll_operator.store.questions import Questions
from plimsoll_operator.store.replays import Replays
from plimsoll_operator.store.shortages import Shortages


class Store:
    """All repositories of one database."""

    def __init__(self, database: Database) -> None:
        """Work on a database."""
        self.profiles = Profiles(database)
        self.replays = Replays(database)
        self.questions = Questions(database)
        self.answers = Answers(database)
        self.attempts = Attempts(database)
        self.plans = Plans(database)
        self.observations = Observations(database)
        self.shortages = Shortages(database)
        self.calibrations = Calibrations(database)


@asynccontextmanager
async def open_store(path: Path) -> AsyncGenerator[Store]:
    """Open a store; make it where there is none, and bring an older one up.

    Raises:
        StoreError: it cannot be made, read or written; see `plimsoll_operator.errors`.
    """
    async with open_database(path) as database:
        yield Store(database)
