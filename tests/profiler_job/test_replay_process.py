"""The replay as a process: what it refuses is one line that says what to do."""

from __future__ import annotations

import atexit
import re
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

from plimsoll_planner.records.model_profile import Precision
from plimsoll_profiler.errors import BadWorkloadError
from plimsoll_profiler.replay_process import replay_plan
from tests.support.builders import a_profile
from tests.support.plans import plan_for

pytestmark = pytest.mark.slow
GPT = "tests.support.workloads:a_gpt"
ROOT = Path(__file__).parents[2]
ABRUPT = """
import atexit, os
from tests.support.workloads import a_gpt
atexit.register(os._exit, 0)
"""


def test_a_profile_of_other_arguments_is_not_replayed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its ranks hold something else than those of the plan."""
    monkeypatch.chdir(ROOT)
    plan = plan_for((0, 4), entrypoint=GPT, arguments='{"depth": 2, "width": 16}')
    profile = a_profile(fingerprint=replace(plan.fingerprint, arguments="{}"))
    said = "profiled with arguments '{}', but here it is"
    with pytest.raises(BadWorkloadError, match=re.escape(said)):
        replay_plan(plan, profile, GPT)


def test_what_was_found_is_told_before_the_process_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A library that ends it in its own way, or holds on to stdout, loses nothing.

    In a pod without PYTHONUNBUFFERED, replays ended well and had said nothing.
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
