"""Failures on the way cost the part that was under way, and are printed."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("torch")

from benchmarks.gpu import measuring as module
from benchmarks.gpu.device import MeasuredDevice, ask_gpu
from benchmarks.gpu.measuring import Measuring
from benchmarks.gpu.plans import Choice, plan_for
from benchmarks.gpu.rehearsing import RehearsalError, rehearse
from plimsoll_planner.errors import CannotPlanError, InvalidFieldError
from plimsoll_planner.records.model_profile import DeviceKind, ModelProfile
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.rehearsal import Rehearsal
from plimsoll_planner.records.replay import Replay
from plimsoll_trainer.errors import NoGpuError
from tests.support.builders import a_plan, a_profile, a_rehearsal, a_replay

CHOICES = tuple(Choice(num_stages=1, micro_batch=size) for size in (1, 2, 3))
GPU = MeasuredDevice(
    kind=DeviceKind.CUDA,
    product="H200",
    capacity_bytes=2**37,
    versions={"torch": "2.15.0"},
)


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch) -> Measuring:
    """Three choices; of micro-batch 2 there is no plan, and 3 is not rehearsed."""

    def planned(
        profile: ModelProfile,
        device: MeasuredDevice,
        choice: Choice,
        *,
        cuts: tuple[int, ...] = (),
        capacity_bytes: int = 0,
    ) -> HybridPlan:
        if choice.micro_batch == 2:
            raise CannotPlanError("nobody can")
        return plan_for(
            profile, device, choice, cuts=cuts, capacity_bytes=capacity_bytes
        )

    def replayed(plan: HybridPlan, profile: ModelProfile, entrypoint: str) -> Replay:
        del plan, profile, entrypoint
        return a_replay()

    def rehearsed(plan: HybridPlan, profile: ModelProfile, rank: int) -> Rehearsal:
        del profile, rank
        if plan.micro_batch == 3:
            raise InvalidFieldError("Rehearsal.peaks", (), "at least one")
        return a_rehearsal()

    monkeypatch.setattr(module, "plan_for", planned)
    monkeypatch.setattr(module, "replay_plan", replayed)
    monkeypatch.setattr(module, "rehearse", rehearsed)
    lines: list[str] = []
    return Measuring(
        model="own", device=GPU, is_tiny=False, choices=CHOICES, say=lines.append
    )


def test_a_choice_that_fails_costs_itself(measuring: Measuring) -> None:
    """Whether it cannot be planned, or what it printed cannot be read."""
    profile = a_profile(device_product=GPU.product)
    rows = list(measuring.ranks(profile, profile))
    assert [row.micro_batch for row in rows] == [1]
    without_plan, unread = measuring.errors
    assert without_plan == f"{CHOICES[1]}: nobody can"
    assert unread.startswith(f"{CHOICES[2]}, rank 0: Rehearsal.peaks: got ()")


def test_an_edge_that_cannot_be_found_is_an_error(measuring: Measuring) -> None:
    """The search for it plans many micro-batches, and one of them fails."""
    assert list(measuring.edge(a_profile(device_product=GPU.product))) == []
    assert measuring.errors == ["edge: nobody can"]


def test_a_process_that_prints_nothing_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Though it ended as one that has done its work."""
    monkeypatch.setattr(sys, "executable", "/bin/true")
    with pytest.raises(RehearsalError, match="printed nothing, exit status 0"):
        rehearse(a_plan(), a_profile(), 0)
    with pytest.raises(NoGpuError, match="nothing"):
        ask_gpu()
