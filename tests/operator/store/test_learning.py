"""What attempts and rehearsals teach of the devices that they ran on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plimsoll_operator.rules.observed_state import Ending
from plimsoll_operator.store.learning import (
    Lesson,
    learn,
    learn_rehearsal,
    rehearsal_uid,
    shortage_of,
)
from plimsoll_operator.store.rehearsals import AskedRehearsal
from plimsoll_operator.store.store import Store
from plimsoll_planner.overhead.observed import unreported_shortage
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.observation import ObservedPeak
from plimsoll_planner.records.plan import Phase
from plimsoll_planner.records.rehearsal import Rehearsal
from plimsoll_planner.records.task import FullDevice
from tests.support.builders import (
    MIB,
    a_failed_rehearsal,
    a_peak,
    a_plan,
    a_rehearsal,
    a_stage,
    an_observation,
)
from tests.support.stores import in_store

LIMITS = Limits(max_gpus=16)
PLAN = a_plan(
    stages=(
        a_stage(0, 2, (0, 1), peaks=(a_peak(upper_bytes=20 * MIB),)),
        a_stage(2, 4, (2, 3), peaks=(a_peak(upper_bytes=30 * MIB),)),
    )
)
FULL = FullDevice(rank=1, phase=Phase.FORWARD, asked_bytes=7 * MIB)


def peak(phase: Phase, allocated_bytes: int) -> ObservedPeak:
    """Build what a rank held in a phase."""
    return ObservedPeak(
        phase=phase,
        allocated_bytes=allocated_bytes,
        reserved_bytes=allocated_bytes,
        device_bytes=allocated_bytes,
    )


def a_lesson(**fields: Any) -> Lesson:
    """Build an attempt whose rank 1 has told of two phases, and ran out of memory."""
    peaks = peak(Phase.FORWARD, 8 * MIB), peak(Phase.BACKWARD, 9 * MIB)
    defaults: dict[str, Any] = {
        "plan_uid": "uid",
        "attempt": 1,
        "plan": PLAN,
        "limits": LIMITS,
        "observations": (
            an_observation(rank=0),
            an_observation(rank=1, num_communicators=3, peaks=peaks),
        ),
        "full_device": FULL,
        "ending": Ending.OUT_OF_MEMORY,
    }
    return Lesson(**(defaults | fields))


def test_a_shortage_is_of_the_rank_that_ran_out() -> None:
    """In use was its largest peak; predicted was what its own stage was to need."""
    found = shortage_of(a_lesson())
    capacity_bytes = LIMITS.usable_bytes(PLAN.offers[0].device_memory_bytes)
    assert (found.in_use_bytes, found.asked_bytes) == (9 * MIB, 7 * MIB)
    assert (found.capacity_bytes, found.num_communicators) == (capacity_bytes, 3)
    assert found.predicted_device_bytes == 20 * MIB
    assert found.predicted_allocated_bytes == 20 * MIB
    assert found.key == an_observation().overhead_key


@pytest.mark.parametrize(
    ("fields", "rank"),
    [
        ({"full_device": None}, None),
        ({"observations": ()}, 1),
        ({"observations": (an_observation(rank=0),)}, 1),
        ({"observations": (an_observation(rank=1, peaks=()),)}, 1),
    ],
)
def test_where_the_rank_has_told_nothing_little_is_learned(
    fields: dict[str, Any], rank: int | None
) -> None:
    """Of its own stage where it is known, else of the fullest."""
    found = shortage_of(a_lesson(**fields))
    assert found == unreported_shortage(PLAN, LIMITS, rank)
    assert found.predicted_device_bytes == (30 if rank is None else 20) * MIB


@pytest.mark.parametrize("ending", Ending)
def test_only_a_lack_of_device_memory_counts_as_one(
    ending: Ending, tmp_path: Path
) -> None:
    """Whatever was told of a full device; learned twice, it is known once."""

    async def work(store: Store) -> None:
        for _ in range(2):
            await learn(store, a_lesson(ending=ending))
        known = await store.calibrations.all()
        assert len(known) == (ending is Ending.OUT_OF_MEMORY)
        forgotten = await store.calibrations.forget_shortages("H200")
        assert forgotten == len(known)

    in_store(tmp_path / "store.db", work)


def test_running_out_of_memory_while_layers_move_says_nothing_of_the_plan(
    tmp_path: Path,
) -> None:
    """Its steps fitted."""

    async def work(store: Store) -> None:
        full = replace(FULL, phase=Phase.MIGRATION)
        await learn(store, a_lesson(full_device=full))
        assert await store.calibrations.all() == ()

    in_store(tmp_path / "store.db", work)


def test_a_plan_that_was_not_to_fit_teaches_nothing(tmp_path: Path) -> None:
    """A person had fixed it."""
    huge = a_peak(upper_bytes=PLAN.offers[0].device_memory_bytes + 1)
    stages = a_stage(0, 2, (0, 1), peaks=(huge,)), a_stage(2, 4, (2, 3))

    async def work(store: Store) -> None:
        await learn(store, a_lesson(plan=a_plan(stages=stages)))
        assert await store.calibrations.all() == ()

    in_store(tmp_path / "store.db", work)


USABLE = LIMITS.usable_bytes(PLAN.offers[0].device_memory_bytes)
ASKED = AskedRehearsal(plan=PLAN, capacity_bytes=USABLE)


def of_plan(found: Rehearsal, **fields: Any) -> Rehearsal:
    """Make a rehearsal one of the plan."""
    seen = replace(found.observation, plan_digest=digest_of(PLAN))
    return replace(found, observation=seen, **fields)


@pytest.mark.parametrize(
    ("found", "num_ranks", "num_shortages"),
    [
        (of_plan(a_rehearsal()), 1, 0),
        (of_plan(a_rehearsal(), other_bytes=None), 1, 0),
        (of_plan(a_rehearsal(), other_bytes=MIB), 0, 0),
        (of_plan(a_failed_rehearsal()), 0, 1),
        (of_plan(a_failed_rehearsal(), other_bytes=None), 0, 1),
    ],
)
def test_a_rehearsal_teaches_what_a_rank_held_or_lacked(
    found: Rehearsal, num_ranks: int, num_shortages: int, tmp_path: Path
) -> None:
    """Learned twice, it is known once; a peak beside others teaches nothing."""

    async def work(store: Store) -> None:
        await store.rehearsals.ask("uid", ASKED)
        for _ in range(2):
            await learn_rehearsal(store, "uid", found, 1.0)
        assert await store.rehearsals.find("uid", digest_of(PLAN)) == found
        known = await store.calibrations.all()
        assert sum(one.num_observations for one in known) == num_ranks
        assert sum(one.num_shortages for one in known) == num_shortages
        uid = rehearsal_uid("uid", found.observation)
        assert len(await store.observations.of(uid, 1)) == num_ranks
        assert await store.observations.of("uid", 1) == ()

    in_store(tmp_path / "store.db", work)


def test_the_first_result_of_a_rehearsal_is_what_teaches(tmp_path: Path) -> None:
    """A pod that tells another story later changes nothing."""

    async def work(store: Store) -> None:
        await store.rehearsals.ask("uid", ASKED)
        await learn_rehearsal(store, "uid", of_plan(a_rehearsal()), 1.0)
        before = await store.calibrations.all()
        await learn_rehearsal(store, "uid", of_plan(a_failed_rehearsal()), 2.0)
        assert await store.calibrations.all() == before

    in_store(tmp_path / "store.db", work)


def test_nobody_learns_from_a_rehearsal_that_was_not_asked_for(tmp_path: Path) -> None:
    """Its plan was deleted meanwhile."""

    async def work(store: Store) -> None:
        await learn_rehearsal(store, "uid", of_plan(a_failed_rehearsal()), 1.0)
        assert await store.calibrations.all() == ()
        assert await store.rehearsals.find("uid", digest_of(PLAN)) is None

    in_store(tmp_path / "store.db", work)


def test_after_a_shortage_the_same_plan_is_not_predicted_to_fit(tmp_path: Path) -> None:
    """The bound is wider than the device by what the rank lacked."""

    async def work(store: Store) -> None:
        await store.rehearsals.ask("uid", ASKED)
        await learn_rehearsal(store, "uid", of_plan(a_failed_rehearsal()), 1.0)
        [known] = await store.calibrations.all()
        allowed = (
            known.allocator.at(1, 0).upper_bytes + known.outside.at(1, 0).upper_bytes
        )
        tensors = 20 * MIB  # upper bound of rank 0
        assert tensors + allowed > USABLE - 64 * MIB

    in_store(tmp_path / "store.db", work)
