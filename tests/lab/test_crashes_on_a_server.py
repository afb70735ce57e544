"""An operator that dies around any of its effects, and one that comes after it.

An effect is a change of the API server or a transaction of the store; the plan is one
whose first gang runs out of memory. In memory the same is tested of `decide` alone
(tests/operator/rules/test_decide.py); here eyes, executor, server and store are the
real ones. Most of the time of a plan is the Job controller's, so many go on side by
side, each with a store of its own.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

from plimsoll_operator.api.status import ConditionType
from plimsoll_operator.errors import ApiConflictError
from plimsoll_operator.kube.api import open_api
from plimsoll_operator.solving.solve_cache import First, search_once
from plimsoll_operator.solving.solver import Solver
from plimsoll_operator.store.answers import StoredAnswer
from plimsoll_operator.store.database import Database, open_database
from plimsoll_operator.store.store import Store
from plimsoll_planner.exit_codes import ExitCode
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.replay import Replay
from tests.lab import event_loops
from tests.lab.cluster import Cluster
from tests.lab.loops import CrashError, Effects, Home, Process, at_home

pytestmark = [
    pytest.mark.control_plane,
    pytest.mark.long,
    pytest.mark.timeout(1800),
]

PAUSE_S = 0.8
"""Between two passes."""
MOST_PASSES = 400
MOST_EFFECTS = 6
"""Of a life: to write down how a gang ended takes that many, and begins anew."""
AT_A_TIME = 16
"""Plans that go on side by side."""
PARTS = 4
"""Tests that share the effects among them, each within the limit of one test."""


class Searches(Solver):
    """Searches as the real one does; equal questions are asked of it once."""

    def __init__(self) -> None:
        """Remember nothing yet."""
        super().__init__(1, lambda _: None)
        self._found: dict[tuple[str, ...], asyncio.Task[StoredAnswer]] = {}

    async def _search(
        self, problem: Problem, known: Mapping[str, Replay], first: First
    ) -> StoredAnswer:
        """Search, or remember."""
        asked = digest_of(problem), *sorted(known)
        if asked not in self._found:
            work = asyncio.to_thread(search_once, problem, dict(known), first)
            self._found[asked] = asyncio.create_task(work)
        return await asyncio.shield(self._found[asked])


@dataclass(kw_only=True)
class Trial:
    """One plan, and operators that come one after the other until it is over."""

    home: Home
    database: Database
    searches: Searches
    name: str
    crashes: Callable[[], Effects]
    """Returns what the next life is to suffer."""
    done: list[str] = field(default_factory=list[str])
    """Effects of all lives."""
    num_lives: int = 0

    def process(self) -> Process:
        """Next life."""
        self.num_lives += 1
        return Process(
            api=self.home.api,
            database=self.database,
            searches=self.searches,
            effects=self.crashes(),
        )

    async def run(self) -> None:
        """Make passes until the plan is over and nothing is left of its tasks."""
        train = (self.name, "train")
        self.home.kubelets.endings[train] = [ExitCode.DEVICE_OUT_OF_MEMORY]
        await self.home.create(self.name)
        process, key = self.process(), (self.home.namespace, self.name)
        for _ in range(MOST_PASSES):
            num_done = len(process.effects.done)
            with suppress(CrashError, ApiConflictError):
                await process.loop.reconciler.one_pass(key)
            has_moved = len(process.effects.done) != num_done
            if process.effects.is_dead:
                self.done += process.effects.done
                process = self.process()
                continue
            plan = await self.home.plan(self.name)
            if plan.status.is_over and not has_moved:
                self.done += process.effects.done
                return
            await asyncio.sleep(0.0 if has_moved else PAUSE_S)
        raise AssertionError(f"{self.name} is not over: {self.done}")

    async def check(self) -> None:
        """Nothing was done twice, and nothing was counted twice.

        Raises:
            AssertionError: something was.
        """
        status = (await self.home.plan(self.name)).status
        assert status.holds(ConditionType.SUCCEEDED), status
        assert (status.attempt, status.failures.out_of_memory) == (2, 1)
        met = self.home.kubelets.met.values()
        mine = Counter(one for one in met if one.startswith(f"{self.name}-"))
        assert set(mine.values()) == {1}, mine
        kinds = Counter(
            name.removeprefix(f"{self.name}-").split("-")[0] for name in mine
        )
        assert kinds == {"profile": 1, "replay": 2, "train": 2}, mine


Work = Callable[
    [Callable[[str, Callable[[], Effects]], Awaitable[Trial]]], Awaitable[None]
]


def with_trials(server: Cluster, namespace: str, folder: Path, work: Work) -> None:
    """Work with trials in a namespace."""

    async def opened() -> None:
        async with (
            open_api(str(server.kubeconfig)) as api,
            at_home(api, namespace, folder) as home,
        ):
            searches = Searches()

            async def trial(name: str, crashes: Callable[[], Effects]) -> Trial:
                async with open_database(folder / f"{name}.db") as database:
                    home.kubelets.stores[name] = Store(database)
                    made = Trial(
                        home=home,
                        database=database,
                        searches=searches,
                        name=name,
                        crashes=crashes,
                    )
                    await made.run()
                    await made.check()
                    return made

            await work(trial)

    event_loops.run(opened())


def one_crash(number: int) -> Callable[[], Effects]:
    """Lives of which the first ends after an effect.

    What it leaves is what a crash before the next effect leaves.
    """
    lives = iter([Effects(crash_at=(number, True))])
    return lambda: next(lives, Effects())


@pytest.mark.parametrize("part", range(PARTS))
def test_a_crash_around_any_effect_changes_nothing(
    server: Cluster, namespace: str, tmp_path: Path, part: int
) -> None:
    """Each task is made once, each attempt is counted once, and the plan succeeds."""

    async def work(
        trial: Callable[[str, Callable[[], Effects]], Awaitable[Trial]],
    ) -> None:
        plain = await trial("plain", Effects)
        limit = asyncio.Semaphore(AT_A_TIME)

        async def crashed(number: int) -> None:
            async with limit:
                found = await trial(f"after-{number}", one_crash(number))
                assert found.num_lives == 2

        assert len(plain.done) > 20
        async with asyncio.TaskGroup() as group:
            for number in range(part, len(plain.done), PARTS):
                group.create_task(crashed(number))

    with_trials(server, namespace, tmp_path, work)


def test_an_operator_that_dies_again_and_again_comes_to_an_end(
    server: Cluster, namespace: str, tmp_path: Path
) -> None:
    """Its lives last for one effect, for two, and so on up to a few, over and over."""

    async def work(
        trial: Callable[[str, Callable[[], Effects]], Awaitable[Trial]],
    ) -> None:
        lives = count()
        found = await trial(
            "mortal", lambda: Effects(crash_at=(next(lives) % MOST_EFFECTS, True))
        )
        assert found.num_lives >= len(found.done) / MOST_EFFECTS

    with_trials(server, namespace, tmp_path, work)
