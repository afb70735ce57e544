"""Input of a replay: a plan, with the workload and profile that it was made from."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

from plimsoll_planner.records.model_profile import (
    DeviceKind,
    ModelProfile,
    OptimizerMode,
    Precision,
)
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_profiler.counting.live_bytes import CUDA_BLOCK_BYTES
from plimsoll_profiler.ranks.replayer import replay
from plimsoll_trainer.errors import ForeignFingerprintError, PlanMismatchError
from tests.support.builders import a_profile, an_offer
from tests.support.plans import plan_for

GPT = "tests.support.workloads:a_gpt"
ARGUMENTS = json.dumps({"depth": 2, "precision": "bf16"})
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def at_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entry points of these tests are found from the root of the tree."""
    monkeypatch.chdir(ROOT)


@pytest.fixture
def plan() -> HybridPlan:
    """Put a GPT of four layers on two emulated devices."""
    return plan_for((0, 2, 4), entrypoint=GPT, arguments=ARGUMENTS)


@pytest.fixture
def profile(plan: HybridPlan) -> ModelProfile:
    """Build a profile of that GPT."""
    recipe = replace(a_profile().recipe, gradient_precision=Precision.FP32)
    return a_profile(fingerprint=plan.fingerprint, recipe=recipe)


def test_a_plan_is_replayed_with_what_it_was_made_from(
    plan: HybridPlan, profile: ModelProfile
) -> None:
    """One rank of every stage."""
    found = replay(plan, profile, GPT)
    assert [stage.stage for stage in found.stages] == [0, 1]


def test_a_plan_for_gpus_is_replayed_where_there_are_none(
    plan: HybridPlan, profile: ModelProfile
) -> None:
    """All bytes are whole blocks of CUDA's allocator."""
    offer = an_offer(device_kind=DeviceKind.CUDA, devices_per_node=2)
    found = replay(replace(plan, offers=(offer,)), profile, GPT)
    for stage in found.stages:
        assert all(not p.allocated_bytes % CUDA_BLOCK_BYTES for p in stage.peaks)


def test_a_profile_of_other_code_is_refused(
    plan: HybridPlan, profile: ModelProfile
) -> None:
    """The search widens the profile by the replay: they must be of one workload."""
    other = replace(profile.fingerprint, source_digest="sha256:" + "0" * 64)
    with pytest.raises(ForeignFingerprintError, match="the source is not"):
        replay(plan, replace(profile, fingerprint=other), GPT)


def test_layers_of_another_name_are_refused(
    plan: HybridPlan, profile: ModelProfile
) -> None:
    """The same code may build another model, say by an environment variable."""
    names = ("embedding", "block.0", "bend", "head")
    other = replace(profile, layers=replace(profile.layers, name=names))
    message = "the name of layer 2 was 'bend' when profiled, but here it is 'block.1'"
    with pytest.raises(PlanMismatchError, match=re.escape(message)):
        replay(plan, other, GPT)


def test_another_optimizer_is_refused(plan: HybridPlan, profile: ModelProfile) -> None:
    """It holds something else in its step, on a GPU as well as without one."""
    plan = replace(plan, optimizer_mode=OptimizerMode.FOREACH)
    gpu = an_offer(device_kind=DeviceKind.CUDA, devices_per_node=2)
    for asked in (plan, replace(plan, offers=(gpu,))):
        with pytest.raises(PlanMismatchError, match=r"foreach optimizer.* is fused"):
            replay(asked, profile, GPT)
