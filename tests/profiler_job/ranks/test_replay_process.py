"""The replay as a process: what it refuses is one line that says what to do."""

from __future__ import annotations

import atexit
import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("torch")

from plimsoll_planner.records.model_profile import (
    LayerColumns,
    ModelProfile,
    Precision,
    TiedLayers,
)
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_profiler.errors import BadWorkloadError
from plimsoll_profiler.ranks.replay_process import replay_plan
from plimsoll_profiler.ranks.replayer import processes_worth, replay
from tests.support.builders import a_profile
from tests.support.plans import plan_for
from tests.support.ranks import run_on_device

pytestmark = pytest.mark.slow
GPT = "tests.support.workloads:a_gpt"
ROOT = Path(__file__).parents[3]
ABRUPT = """
import atexit, os
from tests.support.workloads import a_gpt
atexit.register(os._exit, 0)
"""
KILLED_IN_FORKS = """
import multiprocessing, os, signal
if multiprocessing.parent_process() is not None:
    os.kill(os.getpid(), signal.SIGKILL)
from tests.support.workloads import a_gpt
"""


def test_a_profile_of_other_arguments_is_not_replayed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its ranks hold something else than those of the plan."""
    monkeypatch.chdir(ROOT)
    plan = plan_for((0, 4), entrypoint=GPT, arguments='{"depth": 2, "width": 16}')
    profile = a_profile(fingerprint=replace(plan.fingerprint, arguments="{}"))
    message = "profiled with arguments '{}', but here it is"
    with pytest.raises(BadWorkloadError, match=re.escape(message)):
        replay_plan(plan, profile, GPT)


def test_stages_side_by_side_hold_what_they_hold_in_turn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also those that are left when each process that was to help is killed."""
    (tmp_path / "unwelcome.py").write_text(KILLED_IN_FORKS)
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(tmp_path)
    plan, profile = a_deep_plan(GPT)
    assert processes_worth(plan) == NUM_STAGES
    in_turn = run_on_device(replay, plan, profile, GPT)
    for named in (GPT, "unwelcome:a_gpt"):
        seen: list[int] = []
        found = replay_plan(*a_deep_plan(named), named, partial(count, seen))
        assert found.stages == in_turn.stages
        assert seen == list(range(NUM_STAGES + 1))


NUM_STAGES, DEPTH = 2, 30
"""Enough layers for two processes."""


def a_deep_plan(named: str) -> tuple[HybridPlan, ModelProfile]:
    """Build a plan of two stages, and what it is made from."""
    arguments = json.dumps({"depth": DEPTH, "width": 16, "precision": "bf16"})
    middle, end = DEPTH // 2 + 1, DEPTH + 2
    plan = plan_for((0, middle, end), entrypoint=named, arguments=arguments)
    blocks = tuple(f"block.{place}" for place in range(DEPTH))
    profile = a_profile(
        fingerprint=plan.fingerprint,
        recipe=replace(a_profile().recipe, gradient_precision=Precision.FP32),
        layers=LayerColumns(
            name=("embedding", *blocks, "head"), kind=(0, *([1] * DEPTH), 2)
        ),
        tied=(TiedLayers(layers=(0, end - 1)),),
    )
    return plan, profile


def count(seen: list[int], done: int, total: int) -> None:
    """Write down how many of two ranks are replayed."""
    assert total == NUM_STAGES
    seen.append(done)


def test_what_other_processes_refuse_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With their text and exit code."""
    monkeypatch.chdir(ROOT)
    plan, profile = a_deep_plan(GPT)
    fingerprint = replace(plan.fingerprint, arguments="{}")
    profile = replace(profile, fingerprint=fingerprint)
    message = "profiled with arguments '{}', but here it is"
    with pytest.raises(BadWorkloadError, match=re.escape(message)):
        replay_plan(plan, profile, GPT)


def test_what_was_found_is_told_before_the_process_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A library that ends it in its own way, or holds on to stdout, loses nothing.

    In a pod without PYTHONUNBUFFERED, replays ended well and had printed nothing.
    """
    (tmp_path / "abrupt.py").write_text(ABRUPT)
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(atexit, "register", lambda *_: None)  # ours is to go on
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    named = "abrupt:a_gpt"
    bf16 = '{"depth": 2, "precision": "bf16"}'
    plan = plan_for((0, 4), entrypoint=named, arguments=bf16)
    recipe = replace(a_profile().recipe, gradient_precision=Precision.FP32)
    profile = a_profile(fingerprint=plan.fingerprint, recipe=recipe)
    found = replay_plan(plan, profile, named)
    assert [stage.stage for stage in found.stages] == [0]
