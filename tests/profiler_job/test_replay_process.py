"""The replay as a process: what it refuses is one line that says what to do."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

from plimsoll_profiler.errors import BadWorkloadError
from plimsoll_profiler.replay_process import replay_plan
from tests.support.builders import a_profile
from tests.support.plans import plan_for

pytestmark = pytest.mark.slow
GPT = "tests.support.workloads:a_gpt"
ROOT = Path(__file__).parents[2]


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
