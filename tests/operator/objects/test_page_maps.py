"""Documents for pages in ConfigMaps: read as they were written, and bounded."""

from __future__ import annotations

import base64
import gzip
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from plimsoll_operator.names import TASK_LABEL
from plimsoll_operator.objects.manifests import MOST_BYTES
from plimsoll_operator.objects.page_maps import (
    ANSWER,
    LEFT_OUT,
    QUESTION,
    document_in,
    note_of,
    page_map,
    page_name,
    published_in,
    subject_of,
)
from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.records.document import digest_of
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.solution import Infeasible, Solution
from tests.support.builders import DIGEST, a_solution, an_infeasible
from tests.support.cluster_objects import OWNER
from tests.support.questions import a_question

KEY = "answer.json.gz"
ANSWERS = (a_solution(), an_infeasible())


@pytest.mark.parametrize("answer", ANSWERS, ids=["fits", "infeasible"])
def test_an_answer_is_read_as_it_was_written(answer: Solution | Infeasible) -> None:
    """Of either kind; its metadata tell what it is about."""
    made = page_map(OWNER, ANSWER, DIGEST, answer, {"note": "text"})
    assert document_in(made, ANSWER, Solution, Infeasible) == answer
    assert made["immutable"] is True
    assert OWNER.owns(made)
    assert note_of(made, "note") == "text"
    [found] = published_in([made, {"metadata": {}}])
    assert (found.kind, found.subject) == (ANSWER, DIGEST)
    assert found.name == page_name(OWNER, ANSWER, DIGEST) == made["metadata"]["name"]


def test_a_question_is_read_as_it_was_written() -> None:
    """With the profile: its digest is that of what was asked."""
    asked = a_question(900)
    made = page_map(OWNER, QUESTION, digest_of(asked), asked, {})
    assert digest_of(document_in(made, QUESTION, Problem)) == digest_of(asked)


def test_an_earlier_plan_of_the_name_has_other_maps() -> None:
    """They are removed in time; until then they would be in the way."""
    later = replace(OWNER, uid="another")
    assert page_name(later, ANSWER, DIGEST) != page_name(OWNER, ANSWER, DIGEST)


def test_what_does_not_fit_is_left_out_with_the_reason() -> None:
    """So that a page can say it; the plan goes on."""
    noise = Random(0)  # noqa: S311 - bytes that do not compress
    texts = (noise.randbytes(2000).hex() for _ in range(MOST_BYTES // 2000))
    answer = a_solution(warnings=tuple(texts))
    made = page_map(OWNER, ANSWER, DIGEST, answer, {})
    assert made["binaryData"] == {}
    assert "the answer would be 1." in note_of(made, LEFT_OUT)
    with pytest.raises(InvalidInputError, match="in a ConfigMap, which holds"):
        document_in(made, ANSWER, Solution)


def holding(content: bytes) -> dict[str, str]:
    """Build the data of a map."""
    return {KEY: base64.b64encode(gzip.compress(content)).decode()}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "there is no answer.json.gz in it"),
        ({KEY: "!"}, "no base64"),
        ({KEY: "AAAA"}, "no gzip"),
        (holding(b"{}"), "Solution.kind"),
        (holding(b"no"), "JSON"),
    ],
    ids=str,
)
def test_a_map_that_somebody_else_made_is_an_error(
    data: dict[str, Any], message: str
) -> None:
    """Anybody with rights in a namespace can make one."""
    found = {"metadata": {"labels": {TASK_LABEL: ANSWER}}, "binaryData": data}
    with pytest.raises(InvalidInputError, match=message):
        document_in(found, ANSWER, Solution, Infeasible)


def test_subjects_differ_with_what_they_are_about() -> None:
    """In whatever order and number."""
    assert len({subject_of("a", 1), subject_of("a", 2), subject_of(1, "a")}) == 3
