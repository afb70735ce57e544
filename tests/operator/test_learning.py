"""What an attempt teaches of the devices that it ran on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plimsoll_operator.brain.seen import Ending
from plimsoll_operator.learning import Lesson, learn, shortage_of
from plimsoll_operator.store.store import Store
from plimsoll_planner.observed_overhead import unreported_shortage
from plimsoll_planner.records.observation import ObservedPeak
from plimsoll_planner.records.plan import Phase
from plimsoll_planner.records.problem import Limits
from plimsoll_planner.records.task import FullDevice
from tests.support.builders import MIB, a_peak, a_plan, a_stage, an_observation
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


def test_a_plan_that_was_not_to_fit_teaches_nothing(tmp_path: Path) -> None:
    """A person had fixed it."""
    huge = a_peak(upper_bytes=PLAN.offers[0].device_memory_bytes + 1)
    stages = a_stage(0, 2, (0, 1), peaks=(huge,)), a_stage(2, 4, (2, 3))

    async def work(store: Store) -> None:
        await learn(store, a_lesson(plan=a_plan(stages=stages)))
        assert await store.calibrations.all() == ()

    in_store(tmp_path / "store.db", work)
