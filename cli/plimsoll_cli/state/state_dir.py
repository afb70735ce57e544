"""The state directory of a user: its folder, its store, its plans.

In: options. Out: an open store and plans of it. Called by the verbs that work with
plans: run, get, describe, logs, cancel, report.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from plimsoll_cli.errors import NoSuchPlanError
from plimsoll_cli.options.machines import gpu_products
from plimsoll_operator.backends.local.backend import LocalBackend
from plimsoll_operator.backends.local.observe import LocalObserver
from plimsoll_operator.backends.local.state_dir import StateFolder
from plimsoll_operator.backends.local.task_processes import TaskProcesses
from plimsoll_operator.store.plans import StoredPlan
from plimsoll_operator.store.store import Store, open_store


@dataclass(frozen=True)
class StateDir:
    """A state directory with its store open."""

    folder: StateFolder
    store: Store

    async def plan(self, name: str) -> StoredPlan:
        """The plan of a name.

        Raises:
            NoSuchPlanError: there is none; names the nearest one.
        """
        found = await self.store.plans.find(name)
        if found is not None:
            return found
        names = [plan.name for plan in await self.store.plans.all()]
        close = get_close_matches(name, names, n=1)
        meant = f"did you mean {close[0]}?" if close else "`plimsoll get` lists them"
        raise NoSuchPlanError(f"no plan {name} in {self.folder.root}; {meant}")

    def backend(self, plan: StoredPlan, device_memory_bytes: int = 0) -> LocalBackend:
        """Launcher of the task processes of a plan."""
        folder = self.folder.plan(plan.uid)
        return LocalBackend(
            store=self.store,
            observer=LocalObserver(self.store, gpu_products()),
            plan=plan,
            folder=folder,
            processes=TaskProcesses(folder.tasks, plan.name),
            device_memory_bytes=device_memory_bytes,
        )


@asynccontextmanager
async def open_state_dir(root: Path) -> AsyncGenerator[StateDir]:
    """Open the state directory at an absolute path; make it if there is none.

    Raises:
        LocalBackendError, StoreError: folder or store cannot be used.
    """
    folder = StateFolder(root)
    folder.make()
    async with open_store(folder.store) as store:
        yield StateDir(folder, store)


@asynccontextmanager
async def open_existing(root: Path) -> AsyncGenerator[StateDir]:
    """Open a state directory that exists; a verb that only reads makes none.

    Raises:
        NoSuchPlanError: nothing was ever run there.
        LocalBackendError, StoreError: see `open_state_dir`.
    """
    if StateFolder(root).is_new:
        raise NoSuchPlanError(
            f"{root}: nothing was ever run here; name another --home, or begin with "
            "`plimsoll run plan.yaml`"
        )
    async with open_state_dir(root) as home:
        yield home
