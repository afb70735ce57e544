"""A rehearsed rank: which one it is, and what it held."""

from __future__ import annotations

import pytest

from plimsoll_planner.records.observation import ObservedPeak
from plimsoll_planner.records.plan import Phase, PodShape
from tests.support.builders import (
    MIB,
    a_failed_rehearsal,
    a_peak,
    a_plan,
    a_rehearsal,
    a_stage,
    an_observation,
)


def a_held_peak(phase: Phase, device_bytes: int) -> ObservedPeak:
    """Build a peak of which only the device's number matters."""
    return ObservedPeak(
        phase=phase, allocated_bytes=0, reserved_bytes=0, device_bytes=device_bytes
    )


def test_a_rehearsal_fits_unless_its_rank_ran_out() -> None:
    """Out of memory is a verdict of the same document."""
    assert a_rehearsal().fits
    assert a_rehearsal(other_bytes=None).fits
    assert not a_failed_rehearsal().fits
    assert not a_failed_rehearsal(other_bytes=None).fits


def test_what_a_rank_held_is_its_largest_peak() -> None:
    """Over all phases, of the whole device."""
    peaks = (
        a_held_peak(Phase.BUILD, MIB),
        a_held_peak(Phase.FIRST_STEP, 9 * MIB),
        a_held_peak(Phase.BACKWARD, 3 * MIB),
    )
    seen = an_observation(num_communicators=0, peaks=peaks)
    assert a_rehearsal(observation=seen).device_bytes == 9 * MIB


@pytest.mark.parametrize(
    ("upper_mib", "rank"),
    [((10, 30, 20), 2), ((30, 10, 20), 0), ((10, 20, 30), 4), ((20, 20, 20), 0)],
)
def test_the_fullest_rank_is_the_first_of_the_fullest_stage(
    upper_mib: tuple[int, int, int], rank: int
) -> None:
    """By the upper bound of the device; the first stage where several are alike."""
    stages = tuple(
        a_stage(
            place,
            place + 1,
            (2 * place, 2 * place + 1),
            peaks=(a_peak(Phase.BUILD, MIB), a_peak(Phase.BACKWARD, mib * MIB)),
        )
        for place, mib in enumerate(upper_mib)
    )
    pods = PodShape(num_pods=1, gpus_per_pod=6, host_memory_bytes_per_pod=2**30)
    assert a_plan(stages=stages, pods=pods).fullest_rank == rank


def test_a_plan_without_predictions_rehearses_its_first_rank() -> None:
    """A person wrote it: nobody knows which rank is the fullest."""
    stages = a_stage(0, 2, (0, 1), peaks=()), a_stage(2, 4, (2, 3), peaks=())
    assert a_plan(stages=stages).fullest_rank == 0
