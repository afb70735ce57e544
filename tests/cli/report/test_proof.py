"""The certificate, count by count."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("numpy")

from plimsoll_cli.report.proof import ProofView, proof_view, sentence
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.text.explain import certificate_lines
from plimsoll_planner.units import at_least
from plimsoll_planner.vocabulary import IN_OPTIONS
from tests.support.questions import a_device, a_question, refused, solved


def view_of(problem: Problem) -> ProofView:
    """Proof of the plan that answers a question."""
    answer = solved(problem)
    return proof_view(answer, problem, answer.plan)


def test_a_count_that_fails_says_by_how_much() -> None:
    """Rank, phase, need and shortfall are the certificate's; a bar shows both."""
    problem = a_question(700)
    answer = solved(problem)
    view = view_of(problem)
    fails = [row for row in view.rows if row.verdict is Verdict.FAILS]
    assert fails
    for row in fails:
        miss = answer.certificate.counts[row.first - 1].nearest_miss
        assert miss is not None
        assert row.need is not None
        assert row.need.short == at_least(miss.short_bytes)
        assert f"rank {miss.rank}, {miss.phase}: needs" in row.need.text
        over = miss.short_bytes / (miss.capacity_bytes or 1)
        assert row.need.over / row.need.line == pytest.approx(over, abs=0.01)
    needs = [row.need for row in view.rows if row.need]
    assert max(need.within + need.over for need in needs) == pytest.approx(100, abs=0.1)


def test_the_plan_shows_how_full_it_is() -> None:
    """On the line of its count, below the load line."""
    problem = a_question(700)
    peak_bytes = solved(problem).plan.peak_bytes or 0
    need = view_of(problem).rows[-1].need
    assert need is not None
    assert need.text == f"this plan: needs {peak_bytes} B at most, has 700 B"
    assert (need.short, need.over) == ("", 0.0)
    assert need.within / need.line == pytest.approx(peak_bytes / 700, abs=0.01)


def test_sentences_are_those_of_explain() -> None:
    """With a capital, a full stop, and fields as a TrainingPlan has them."""
    problem = a_question(700)
    answer = solved(problem)
    view = view_of(problem)
    [first, *_] = certificate_lines(answer.certificate)
    assert view.sentences[0] == f"F{first[1:]}."
    assert any("(spec.search.rateFloor)" in line for line in view.sentences)
    assert sentence("19 GPUs (`limits.max_gpus` is 16)") == (
        "19 GPUs (spec.search.maxGPUs is 16)."
    )
    asked = proof_view(answer, problem, answer.plan, IN_OPTIONS)
    assert any("(--rate-floor)" in line for line in asked.sentences)


def test_counts_of_which_the_same_is_said_are_one_line() -> None:
    """The fixed parts leave 1 to 3 outside."""
    view = view_of(a_question(5000, override=Override(num_gpus=4, num_stages=4)))
    assert [(row.first, row.last) for row in view.rows] == [(1, 3), (4, 4)]
    assert [row.is_left_out for row in view.rows] == [True, False]
    assert view.rows[0].need is None
    assert view.rows[0].reason


def test_a_refusal_has_its_counts_too() -> None:
    """Every count that was searched, none of them the plan's."""
    problem = a_question(200, limits=Limits(max_gpus=3))
    view = proof_view(refused(problem), problem, None)
    assert {row.verdict for row in view.rows} == {Verdict.FAILS}
    assert [row.first for row in view.rows][-1] == 3
    assert all(row.need and row.need.short for row in view.rows)


def test_several_offers_are_told_apart() -> None:
    """A miss names the offer that comes nearest."""
    offers = (a_device(500, name="small"), a_device(700, name="large"))
    view = view_of(a_question(offers=offers))
    texts = [row.need.text for row in view.rows if row.need and row.need.short]
    assert texts
    assert all("large" in text or "small" in text for text in texts)


def test_a_newer_answer_than_the_plan_says_so() -> None:
    """The run was of one plan, the certificate is of the next."""
    problem = a_question(700)
    answer = solved(problem)
    older = replace(answer.plan, engine_version="older")
    assert "newest answer" in proof_view(answer, problem, older).sentences[-1]
    revised = replace(answer.plan, revision=2)
    said = proof_view(answer, problem, revised).sentences[-1]
    assert said.endswith("it was revised to revision 2, on as many devices.")
    assert "newest answer" not in " ".join(view_of(problem).sentences)
