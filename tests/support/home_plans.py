"""Plans that somebody began to run at home, with ranks that are small programs."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from plimsoll_cli.state.state_dir import open_state_dir
from plimsoll_operator.api.status import Status, Truth
from plimsoll_operator.backends.commands import report_of
from plimsoll_operator.backends.local.state_dir import StateFolder
from plimsoll_operator.backends.local.task_processes import TaskProcesses
from plimsoll_operator.rules.observed_state import TaskKind
from plimsoll_planner.records.task import END, Command, Task
from tests.support.builders import DIGEST, a_plan, an_offer
from tests.support.reports import a_status
from tests.support.specs import a_spec

NAME = "chain"
RUNNING = a_status(
    *("Valid", "Measured", "Proven", "Replayed", "Started", "Running"),
    truth=Truth.UNKNOWN,
)
SLEEPS, ENDS = "import time; time.sleep(60)", "pass"
POLL_S = 0.02


def a_home_plan(root: Path, **parts: Any) -> HomePlan:
    """Begin a plan in a new home, as a command does that is killed then.

    Args:
        root: of the home.
        parts: of its spec.
    """
    spec = a_spec(**parts)

    async def begin() -> str:
        async with open_state_dir(root) as home:
            plans = home.store.plans
            made = await plans.create(NAME, spec, (an_offer(),), "/code", 1.0)
            await plans.save_status(made.uid, RUNNING)
            return made.uid

    return HomePlan(root, asyncio.run(begin()))


@dataclass(frozen=True)
class HomePlan:
    """A plan whose status says that it runs."""

    root: Path
    """Of its home."""
    uid: str

    @property
    def home(self) -> StateFolder:
        """No other plan lies there."""
        return StateFolder(self.root)

    @cached_property
    def tasks(self) -> TaskProcesses:
        """Its task processes."""
        return TaskProcesses(self.home.plan(self.uid).tasks)

    def say(self, status: Status, *, is_suspended: bool = False) -> None:
        """Write down where it stands."""

        async def write() -> None:
            async with open_state_dir(self.root) as home:
                await home.store.plans.save_status(self.uid, status)
                await home.store.plans.set_suspended(self.uid, is_suspended)

        asyncio.run(write())

    def attempt(self, number: int, losses: Mapping[int, float]) -> None:
        """Write down an attempt, and the reports of its first rank."""

        async def write() -> None:
            async with open_state_dir(self.root) as home:
                await home.store.attempts.record(
                    *(self.uid, number, a_plan()), problem_digest=DIGEST, now_s=1.0
                )

        asyncio.run(write())
        logs = self.tasks.logs(TaskKind.TRAIN, str(number))
        logs.mkdir(parents=True)
        with report_of(logs, 0).open("w") as file:
            for step, loss in losses.items():
                event = {"event": "step", "step": step, "loss": loss, "step_s": 0.1}
                file.write(json.dumps(event) + "\n")

    def train(self, program: str, attempt: int = 1) -> Path:
        """Start a rank that runs a program; return its folder."""
        words = (sys.executable, "-c", program)
        task = Task(
            child_kind=TaskKind.TRAIN,
            subject=str(attempt),
            commands=(Command(words=words),),
            folder=str(self.root),
        )
        self.tasks.start(task)
        return self.tasks.folder(TaskKind.TRAIN, str(attempt))

    def wait_for_end(self, folder: Path) -> None:
        """Wait until a rank has ended and its supervisor has left."""
        while not (folder / END).exists() or self.tasks.alive():
            time.sleep(POLL_S)
