"""What is written down when an attempt has ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll_operator.backends.local.backend import LocalBackend
from plimsoll_operator.backends.local.observe import LocalObserver, LocalState
from plimsoll_operator.backends.local.state_dir import StateFolder
from plimsoll_operator.backends.local.task_processes import TaskProcesses
from plimsoll_operator.rules.actions import RecordEnding
from plimsoll_operator.rules.observed_state import (
    Ending,
    ObservedTask,
    TaskKind,
    TaskState,
)
from plimsoll_operator.rules.question import limits_of
from plimsoll_operator.store.store import Store
from tests.support.builders import DIGEST, a_peak, a_plan, a_stage, an_offer
from tests.support.specs import a_spec
from tests.support.stores import in_store

CAPACITY = limits_of(a_spec()).usable_bytes(an_offer().device_memory_bytes)
FULL = ObservedTask(
    kind=TaskKind.TRAIN,
    subject="1",
    state=TaskState.ENDED,
    since_s=2.0,
    ending=Ending.OUT_OF_MEMORY,
)


@pytest.mark.parametrize(("beyond_bytes", "num_learned"), [(0, 1), (1, 0)])
def test_a_shortage_is_kept_of_a_plan_that_was_to_fit(
    tmp_path: Path, beyond_bytes: int, num_learned: int
) -> None:
    """One that a person fixed, though it needs a byte too many, teaches nothing."""
    peaks = (a_peak(upper_bytes=CAPACITY + beyond_bytes),)
    stages = a_stage(0, 2, (0, 1), peaks=peaks), a_stage(2, 4, (2, 3), peaks=peaks)
    plan = a_plan(stages=stages)

    async def work(store: Store) -> None:
        made = await store.plans.create("chain", a_spec(), (an_offer(),), "/code", 1.0)
        await store.attempts.record(made.uid, 1, plan, problem_digest=DIGEST, now_s=1.0)
        folder = StateFolder(tmp_path).plan(made.uid)
        backend = LocalBackend(
            store=store,
            observer=LocalObserver(store, gpu_products=()),
            plan=made,
            folder=folder,
            processes=TaskProcesses(folder.tasks),
        )
        seen = LocalState(attempts=await store.attempts.of(made.uid), tasks=(FULL,))
        await backend.executor(seen).apply(
            RecordEnding(attempt=1, task=FULL, ending=Ending.OUT_OF_MEMORY)
        )
        assert len(await store.calibrations.all()) == num_learned
        assert (await store.attempts.of(made.uid))[0].ending is Ending.OUT_OF_MEMORY

    in_store(tmp_path / "store.db", work)
