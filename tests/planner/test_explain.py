"""Answers in words: every verdict, every reason, every ending."""

from __future__ import annotations

import dataclasses

import pytest

from plimsoll_planner.explain import (
    certificate_lines,
    count_text,
    ending_text,
    explain,
    space_text,
)
from plimsoll_planner.records.certificate import Binding, NearestMiss, Rule
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.problem import Limits, Override
from plimsoll_planner.records.solution import Termination
from tests.support.builders import (
    MIB,
    a_certificate,
    a_count,
    a_solution,
    an_infeasible,
    decisions,
)
from tests.support.questions import a_question, solved


def test_a_failing_count_names_rank_phase_and_bytes() -> None:
    """The miss first, then which rules decided how many tuples."""
    assert count_text(a_count(2)) == (
        "    2  fails      rank 0, backward: needs 11.00 MiB, "
        "has 10.00 MiB (1 searched)"
    )


def test_every_binding_has_its_words() -> None:
    """Rate, batch, engine and machines are told as well as memory."""
    slow = NearestMiss(
        binding=Binding.RATE, samples_per_s=1.25, needed_samples_per_s=2.5
    )
    rate = a_count(3, binding=Binding.RATE, nearest_miss=slow)
    assert "at most 1.25 samples/s, needs 2.5" in count_text(rate)
    reasons = {
        Binding.BATCH: "the global batch does not divide",
        Binding.ENGINE: "the engine cannot run it",
        Binding.GPU_LIMIT: "not that many machines",
    }
    for binding, words in reasons.items():
        count = a_count(3, binding=binding, nearest_miss=None)
        assert words in count_text(count)


def test_an_undecided_count_says_how_many_are_open() -> None:
    """Never sold as a proof."""
    text = count_text(a_count(3, Verdict.UNDECIDED))
    assert "1 of 1 tuples are open" in text
    counts = (a_count(1), a_count(2, Verdict.UNDECIDED), a_count(3, Verdict.FITS))
    certificate = a_certificate(counts=counts, fewest_at_any_speed=3)
    assert certificate_lines(certificate) == ["fewest: 3 GPUs found; undecided: 2"]


def test_the_headline_says_why_one_fewer_fails() -> None:
    """And the fewest at any speed, where that is another count."""
    certificate = a_certificate(fewest_at_any_speed=2, rate_at_any_speed=0.09)
    assert certificate_lines(certificate) == [
        "fewest: 4 GPUs; 3 fails: rank 0, backward: needs 11.00 MiB, has 10.00 MiB",
        "fewest at any speed: 2 GPUs, at 9% of the best rate per GPU",
    ]
    one = a_certificate(counts=(a_count(1, Verdict.FITS),), fewest_at_any_speed=1)
    assert certificate_lines(one) == ["fewest: 1 GPU"]


def test_a_count_that_was_fixed_is_not_sold_as_the_fewest() -> None:
    """Smaller counts were left out by hand, and the proof holds within that."""
    answer = solved(a_question(9000, override=Override(num_gpus=4)))
    assert certificate_lines(answer.certificate)[0] == (
        "fewest: 4 GPUs; fewer GPUs are outside what was fixed or allowed"
    )
    assert ending_text(answer) == "proven within what is fixed by hand"
    even = solved(a_question(900, override=Override(data_degree=2)))
    assert even.plan.num_gpus == 6
    assert "; 4 fails: rank " in certificate_lines(even.certificate)[0]


def test_what_was_not_searched_is_said() -> None:
    """A work limit stands in the answer."""
    skipped = decisions(2, rule=(Rule.NOT_SEARCHED,), verdict=(Verdict.UNDECIDED,))
    counts = (
        a_count(1),
        a_count(2, Verdict.UNDECIDED, decisions=skipped),
        a_count(3, Verdict.FITS),
    )
    certificate = a_certificate(
        counts=counts, fewest_at_any_speed=3, cut_off="1 of 3 tuples"
    )
    assert "not searched: 1 of 3 tuples" in certificate_lines(certificate)


@pytest.mark.parametrize(
    ("termination", "gap", "words"),
    [
        (Termination.OPTIMAL, 0.0, "proven"),
        (Termination.WORK_LIMIT, 1.0, "before the work limit"),
        (Termination.TIME_LIMIT, 1.0, "in time"),
        (Termination.WITHIN_GAP, 0.25, "something up to 25.0% better"),
        (Termination.FIXED, 1.0, "fixed by hand, not certified"),
    ],
)
def test_every_ending_has_its_words(
    termination: Termination, gap: float, words: str
) -> None:
    """Optimal is said of a proof alone."""
    answer = a_solution(termination=termination, gap=gap)
    assert words in ending_text(answer)
    assert ("proven" in ending_text(answer)) is (termination is Termination.OPTIMAL)


def test_the_space_is_told_with_all_its_limits() -> None:
    """Fewest means nothing without the space it was searched in."""
    space = dataclasses.replace(
        a_certificate().space,
        limits=Limits(
            max_gpus=16, headroom=0.1, pipeline_degrees=(1, 2), max_micro_batch=4
        ),
        override=Override(
            num_gpus=4, cuts=(0, 3), micro_batch=2, recomputed_layers=(1, 2)
        ),
    )
    assert space_text(space) == (
        "1 to 16 GPUs; 1 offer; schedules 1F1B; pipeline degrees 1, 2; micro-batch up "
        "to 4; 10% of the memory kept free; fixed by hand: GPUs 4, micro-batch 2, cuts "
        "0,3, 2 recomputed layers; without offload"
    )


def test_an_explanation_has_every_count() -> None:
    """Headline, certificate, space, warnings, then a line for each count."""
    lines = explain(a_solution(warnings=("mind this",)))
    assert lines[0] == "4 GPUs: proven, the search was exhaustive"
    assert "warning: mind this" in lines
    assert [line.split()[0] for line in lines[-4:]] == ["1", "2", "3", "4"]


def test_no_plan_says_what_would_do() -> None:
    """Binding, nearest miss, nearest change."""
    assert explain(an_infeasible())[:3] == [
        "no plan: memory binds",
        "nearest miss: rank 0, backward: needs 11.00 MiB, has 10.00 MiB",
        f"would do: {an_infeasible().nearest_change}",
    ]
    assert MIB == 2**20
