"""Record of a plan: of all attempts, the part that counts in the end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")

from plimsoll_cli.__main__ import main
from plimsoll_cli.errors import ExitCode
from plimsoll_cli.state.gather import HomeSource
from plimsoll_cli.state.run_record import RunRecord
from plimsoll_cli.state.state_dir import open_state_dir
from plimsoll_operator.api.status import CheckpointsStatus
from plimsoll_operator.store.answers import StoredAnswer
from plimsoll_operator.store.questions import Occasion
from plimsoll_planner.records.certificate import Certificate
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.problem import Problem
from tests.support.builders import DIGEST, a_peak
from tests.support.home_plans import NAME, HomePlan, a_home_plan
from tests.support.questions import a_question, solved
from tests.support.reports import told_by_all


def trained(plan: HomePlan, capsys: pytest.CaptureFixture[str]) -> str:
    """Lines about the steps that were trained."""
    assert main(["describe", NAME, "--home", str(plan.root)]) == ExitCode.DONE
    lines = capsys.readouterr().out.splitlines()
    return next((line for line in lines if line.startswith("trained ")), "")


def test_steps_that_were_lost_are_not_told_as_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An attempt that is killed loses what came after its last checkpoint.

    The next one trains that again from there; it may come less far, and its losses
    count. One that came to no step has lost nothing more.
    """
    plan = a_home_plan(tmp_path / "home")
    assert trained(plan, capsys) == ""
    plan.attempt(1, {step: 10.0 - step for step in range(1, 10)})
    assert trained(plan, capsys) == "trained 9 steps, loss 9 -> 1"
    plan.attempt(2, {5: 5.5, 6: 4.5})
    assert trained(plan, capsys) == "trained 6 steps, loss 9 -> 4.5"
    plan.attempt(3, {})
    assert trained(plan, capsys) == "trained 6 steps, loss 9 -> 4.5"
    plan.attempt(4, {1: 8.0})
    assert trained(plan, capsys) == "trained 1 step, loss 8 -> 8"


def test_after_a_new_plan_the_old_one_is_not_shown(tmp_path: Path) -> None:
    """Nor its proof, nor what was measured by it, from the new answer on.

    An attempt had run out of memory, and describe went on showing the plan of it with
    "One is the least there is. Proven" when two devices were planned.
    """
    plan = a_home_plan(tmp_path / "home")
    first, second = a_question(3000), a_question(700)
    before, after = solved(first).plan, solved(second).plan
    assert before.num_gpus < after.num_gpus
    asyncio.run(put(plan, 0, first))
    asyncio.run(attempt(plan, 1, first, is_observed=True))
    record = asyncio.run(HomeSource(plan.root).find(NAME))[1]
    assert shown_by(record) == (before, solved(first).certificate)
    assert record.observations

    asyncio.run(put(plan, 1, second))
    for _ in range(2):
        record = asyncio.run(HomeSource(plan.root).find(NAME))[1]
        assert shown_by(record) == (after, solved(second).certificate)
        assert record.observations == ()
        if len(record.attempts) == 1:
            asyncio.run(attempt(plan, 2, second, is_observed=False))
    asyncio.run(attempt(plan, 3, second, is_observed=True))
    asyncio.run(attempt(plan, 4, second, is_observed=False))
    record = asyncio.run(HomeSource(plan.root).find(NAME))[1]
    assert {one.attempt for one in record.observations} == {3}


def shown_by(record: RunRecord) -> tuple[HybridPlan | None, Certificate]:
    """Plan and proof that are shown."""
    assert record.answer is not None
    return record.plan, record.answer.certificate


async def put(plan: HomePlan, number: int, problem: Problem) -> None:
    """Ask a question, and answer it."""
    occasion = Occasion(
        plan_uid=plan.uid, generation=1, round=number, profile_digest=DIGEST
    )
    answer = StoredAnswer(
        answer=solved(problem), unreplayed="", is_certified=True, num_rounds=1
    )
    async with open_state_dir(plan.root) as home:
        asked = await home.store.questions.put(occasion, problem)
        await home.store.answers.save(asked.digest, answer)


async def attempt(
    plan: HomePlan, number: int, problem: Problem, *, is_observed: bool
) -> None:
    """Write down an attempt by the answer to a question."""
    by = solved(problem).plan
    stored: dict[str, Any] = {"problem_digest": digest_of(problem), "now_s": 1.0}
    async with open_state_dir(plan.root) as home:
        await home.store.attempts.record(plan.uid, number, by, **stored)
        for one in told_by_all(by, attempt=number) if is_observed else ():
            await home.store.observations.save(plan.uid, one, a_peak(), 1, 0.0)


def test_the_folder_of_checkpoints_is_named_whole(tmp_path: Path) -> None:
    """In the state directory; one machine has no claims."""
    plan = a_home_plan(tmp_path / "home")

    async def saves() -> CheckpointsStatus:
        async with open_state_dir(plan.root) as home:
            return home.backend(await home.plan(NAME)).saves

    folder = str(plan.home.plan(plan.uid).checkpoints)
    assert asyncio.run(saves()) == CheckpointsStatus(folder=folder)
