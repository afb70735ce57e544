"""The reasons that are explained are those that a decision gives."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from plimsoll_operator import rules
from plimsoll_operator.api.reasons import REASONS, WAITING
from plimsoll_operator.api.spec import TrainingPlanSpec
from plimsoll_operator.api.status import ConditionType, Status, Truth
from plimsoll_operator.rules.decide import decide
from plimsoll_operator.rules.observed_state import (
    Ending,
    ObservedAnswer,
    ObservedProfile,
    ObservedRehearsal,
    ObservedState,
    ObservedTask,
    TaskKind,
    TaskState,
)
from plimsoll_operator.store.attempts import StoredAttempt
from plimsoll_planner.records.solution import Termination
from tests.support.builders import a_plan, a_solution, an_infeasible
from tests.support.specs import a_spec

NOW_S = 10_000.0
MEASURED = ObservedProfile(source="measured", made_s=9000.0, was_cached=False)
READY = ObservedState(
    profile=MEASURED,
    profile_key="request",
    answer=ObservedAnswer(answer=a_solution(), is_certified=True),
)
Look = tuple[TrainingPlanSpec, ObservedState]


def tasks(kind: TaskKind, subject: str) -> list[tuple[ObservedTask, ...]]:
    """No task, and one in every state and with every ending."""
    waits = ObservedTask(
        kind=kind, subject=subject, state=TaskState.PENDING, since_s=9900.0
    )
    waited = replace(waits, since_s=100.0)
    runs = replace(waits, state=TaskState.RUNNING, started_s=9000.0)
    ended = replace(runs, state=TaskState.ENDED)
    ends = [replace(ended, ending=ending) for ending in Ending]
    return [(), *((task,) for task in (waits, waited, runs, *ends))]


def while_profiling() -> Iterator[Look]:
    """Yield looks before there is a plan."""
    yield a_spec(), replace(READY, complaint="no such ConfigMap")
    yield a_spec(), replace(READY, store_fault="no connection")
    traced = replace(MEASURED, source="traced")
    profiles = (None, MEASURED, traced, replace(MEASURED, was_cached=True))
    policies = ("IfMissing", "Always", "Never")
    found = tasks(TaskKind.PROFILE, "request")
    for policy, profile, task in product(policies, profiles, found):
        spec = a_spec(profile={"policy": policy})
        yield spec, replace(READY, profile=profile, tasks=task)


def while_planning() -> Iterator[Look]:
    """Yield looks before there is an attempt."""
    answers = (
        an_infeasible(),
        a_solution(),
        a_solution(termination=Termination.TIME_LIMIT, gap=0.5),
        a_solution(termination=Termination.FIXED),
    )
    steps: tuple[dict[str, Any], ...] = (
        {"is_certified": True},
        {"unreplayed": "plan"},
        {"unreplayed": "plan", "has_replay": True},
        {"num_rounds": 5},
    )
    yield a_spec(), replace(READY, answer=None)
    found = tasks(TaskKind.REPLAY, "plan")
    for answer, step, task, must in product(answers, steps, found, (True, False)):
        spec = a_spec(launch={"requireCertified": must})
        seen = ObservedAnswer(answer=answer, **step)
        yield spec, replace(READY, answer=seen, tasks=task)


def while_rehearsing() -> Iterator[Look]:
    """Yield looks at a plan that was replayed, or is not to be."""
    results = (
        None,
        ObservedRehearsal(fits=True, message="held"),
        ObservedRehearsal(fits=False, message="ran out"),
    )
    steps: tuple[dict[str, Any], ...] = ({"is_certified": True}, {"num_rounds": 5})
    found = tasks(TaskKind.REHEARSAL, "plan")
    wishes = ("Never", "IfDevice", "Always")
    for rehearse, result, step, task in product(wishes, results, steps, found):
        spec = a_spec(launch={"rehearse": rehearse, "requireCertified": False})
        answer = ObservedAnswer(
            answer=a_solution(), plan_digest="plan", rehearsal=result, **step
        )
        for here in (True, False):
            yield spec, replace(READY, answer=answer, tasks=task, has_device=here)


def while_training() -> Iterator[Look]:
    """Yield looks with a plan: no attempt, an open one, one or many that ended."""
    opened = StoredAttempt(number=1, plan=a_plan())
    outdated = replace(opened, asked_digest="sha256:other")
    settled = replace(opened, ended_s=9995.0, generation=1)
    ended = [replace(settled, ending=ending) for ending in Ending]
    attempts = [
        (),
        (opened,),
        (outdated,),
        *((one,) * n for one in ended for n in (1, 5)),
    ]
    specs = (
        a_spec(),
        a_spec(suspend=True),
        a_spec(launch={"policy": "PlanOnly"}),
        a_spec(runPolicy={"runningSeconds": 1}),
    )
    found = tasks(TaskKind.TRAIN, "1")
    for spec, tried, task in product(specs, attempts, found):
        yield spec, replace(READY, attempts=tried, tasks=task)


def test_every_reason_is_explained_and_given() -> None:
    """For its condition, with its truth; Succeeded repeats what it waits for."""
    given: dict[ConditionType, set[tuple[Truth, str]]] = {k: set() for k in REASONS}
    looks = while_profiling, while_planning, while_rehearsing, while_training
    for spec, seen in (look for some in looks for look in some()):
        decision = decide(spec, Status(), seen, generation=1, now_s=NOW_S)
        for said in decision.status.conditions:
            given[said.type].add((said.status, said.reason))
    repeated = {
        (truth, reason)
        for kind, reasons in REASONS.items()
        for was, reason in reasons
        for truth in (Truth.UNKNOWN, Truth.FALSE)
        if kind is not ConditionType.SUCCEEDED and was is not Truth.TRUE
    }
    for kind, reasons in REASONS.items():
        is_summary = kind is ConditionType.SUCCEEDED
        more = repeated - set(reasons) if is_summary else {(Truth.UNKNOWN, WAITING)}
        assert given[kind] - more == set(reasons)


def test_no_reason_is_left_out() -> None:
    """Every such word in the code of decisions is part of a reason."""
    known = {WAITING, *(reason for r in REASONS.values() for _, reason in r)}
    for file in Path(rules.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            word = node.value if isinstance(node, ast.Constant) else None
            if isinstance(word, str) and re.fullmatch("([A-Z]+[a-z]+)+", word):
                assert any(word in reason for reason in known), (
                    f"{file.name} says {word}: explain it in api/reasons.py"
                )
