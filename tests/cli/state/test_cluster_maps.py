"""A plan out of its ConfigMaps, and lines on what they do not hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("kubernetes")

from plimsoll_cli.state.cluster_maps import gathered
from plimsoll_operator.api.status import Status
from plimsoll_operator.kube.api import Object
from plimsoll_operator.objects.page_maps import (
    ANSWER,
    LEFT_OUT,
    QUESTION,
    RECORDED,
    REPORTS,
    page_map,
)
from plimsoll_operator.objects.rank_reports import rank_reports
from plimsoll_operator.objects.record_maps import note, plan_map, result_map
from plimsoll_operator.rules.actions import RecordPlan
from plimsoll_operator.rules.observed_state import Attempt, Ending, RecordedRevision
from plimsoll_planner.records.document import digest_of
from tests.support.api_values import A_STATUS
from tests.support.builders import a_plan, a_revision, a_solution, an_observation
from tests.support.cluster_objects import OWNER, a_plan_object
from tests.support.questions import a_question

ASKED = a_question(900)
DIGEST = digest_of(ASKED)
PLANNED = Status.from_json(A_STATUS, "status")
SEEN = an_observation()
REVISED = RecordedRevision(revision=a_revision(), made_s=1.0)


def pages() -> list[Object]:
    """Question and answer of a plan."""
    about = {note("problem-digest"): DIGEST}
    return [
        page_map(OWNER, QUESTION, DIGEST, ASKED, {}),
        page_map(OWNER, ANSWER, "sha256:1", a_solution(), about),
    ]


def begun(number: int = 1) -> Object:
    """Build the plan of record of an attempt."""
    action = RecordPlan(
        attempt=number, plan=a_plan(), problem_digest=DIGEST, asked_digest=DIGEST
    )
    return plan_map(OWNER, action, 1.0)


def ended(number: int = 1) -> Object:
    """Build the end of an attempt whose ranks have reported."""
    attempt = Attempt(number=number, ending=Ending.DONE, ended_s=2.0, generation=1)
    return result_map(OWNER, attempt, rank_reports([SEEN], [REVISED]))


def running() -> Object:
    """Build reports of the ranks of the first attempt while it runs."""
    reports = rank_reports([SEEN], [REVISED])
    return page_map(OWNER, REPORTS, "sha256:2", reports, {note("attempt"): "1"})


@pytest.mark.parametrize("reports", [ended(), running()], ids=["ended", "running"])
def test_all_that_there_is_of_a_plan_is_gathered(reports: Object) -> None:
    """What only logs have is a line of its own."""
    found = gathered(a_plan_object(PLANNED), [*pages(), begun(), reports])
    assert (found.problem, found.answer) == (ASKED, a_solution())
    assert found.problem_digest == DIGEST
    [attempt] = found.attempts
    assert (attempt.plan, attempt.problem_digest) == (a_plan(), DIGEST)
    assert found.observed == {1: (SEEN,)}
    assert [one.recorded for one in found.revisions] == [REVISED]
    [line] = found.unknown
    assert line.startswith("the loss of each step: ranks write it to their logs;")
    assert "kubectl logs -n team -c trainer -l plimsoll.dev/plan=tiny," in line


def test_the_latest_of_two_counts() -> None:
    """One takes the place of another, and for a moment both are there."""
    about = {note("problem-digest"): DIGEST}
    answers = [
        page_map(OWNER, ANSWER, f"sha256:{n}", answer, about | {RECORDED: f"{n}.5"})
        for n, answer in enumerate((a_solution(gap=0.0), a_solution(warnings=("new",))))
    ]
    for maps in (answers, answers[::-1]):
        found = gathered(a_plan_object(PLANNED), [*pages()[:1], *maps]).answer
        assert found == a_solution(warnings=("new",))


def unknown(maps: Sequence[Object], status: Status = PLANNED) -> str:
    """First line on what is not known."""
    return (*gathered(a_plan_object(status), maps).unknown, "")[0]


def test_a_plan_that_is_not_planned_lacks_nothing() -> None:
    """One that is, and has no ConfigMaps, was planned by an earlier release."""
    assert unknown([], Status()) == ""
    assert unknown([]).startswith("its question and answer: no ConfigMap of the plan")


def test_what_was_left_out_says_why() -> None:
    """As the operator wrote it down."""
    question, answer = pages()
    answer["binaryData"] = {}
    answer["metadata"]["annotations"][LEFT_OUT] = "it would be too large"
    name = answer["metadata"]["name"]
    said = unknown([question, answer])
    assert said == f"its answer (ConfigMap {name}): it would be too large"
    assert unknown(pages()[1:]) == "its question: no ConfigMap of the plan has it"


def test_an_attempt_without_its_plan_is_named() -> None:
    """The others are shown."""
    broken: dict[str, Any] = begun() | {"binaryData": {}}
    found = gathered(a_plan_object(PLANNED), [*pages(), broken, begun(2)])
    assert [one.number for one in found.attempts] == [2]
    assert found.unknown[0].startswith("attempt 1: ConfigMap tiny-plan-1 holds no plan")


def test_maps_of_another_plan_are_left_alone() -> None:
    """Of an earlier one of the name, or made by hand with our labels."""
    others = pages()
    for one in others:
        one["metadata"]["ownerReferences"] = []
    assert gathered(a_plan_object(), others).answer is None
