"""Answers in words: every verdict, every reason, every ending."""

from __future__ import annotations

import dataclasses
from decimal import Decimal

import pytest

from plimsoll_planner.records.certificate import Binding, NearestMiss, Rule
from plimsoll_planner.records.engine import Schedule
from plimsoll_planner.records.interval import Verdict
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import UncountedOperator
from plimsoll_planner.records.objective import Goal, Objective
from plimsoll_planner.records.offer import CapacityType
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.plan import PodShape
from plimsoll_planner.records.solution import Solution, Termination
from plimsoll_planner.search.answer import solve
from plimsoll_planner.text.counts import numbers_text
from plimsoll_planner.text.explain import (
    certificate_lines,
    count_text,
    ending_text,
    explain,
    miss_text,
    place_of,
    reason_text,
    uncounted_text,
    why_text,
)
from plimsoll_planner.text.headline import headline_text
from plimsoll_planner.text.plans import nodes_text, training_text
from plimsoll_planner.text.rules import rule_lines
from plimsoll_planner.text.space import space_text
from tests.support.builders import (
    MIB,
    a_certificate,
    a_count,
    a_miss,
    a_plan,
    a_problem,
    a_solution,
    an_infeasible,
    an_offer,
    decisions,
)
from tests.support.placed_questions import a_tight_question
from tests.support.questions import a_question, solved

OFFERS = (an_offer(), an_offer(name="other", capacity_type=CapacityType.SPOT))
SPACE = dataclasses.replace(a_certificate().space, offers=OFFERS)


def test_a_failing_count_names_rank_phase_and_bytes() -> None:
    """The miss first, then which rules decided how many tuples."""
    assert count_text(a_count(2), SPACE) == (
        "    2  fails      rank 0, backward: needs 11.00 MiB, "
        "has 10.00 MiB (1 searched)"
    )


def test_one_device_has_no_ranks_to_tell_apart() -> None:
    """Bytes of some rank of every plan are then those of the only one."""
    miss = a_miss(rank=None, phase=None)
    only, both = (a_count(count, nearest_miss=miss) for count in (1, 2))
    assert reason_text(only, SPACE).startswith("needs 11.00 MiB")
    assert reason_text(both, SPACE).startswith("some rank: needs 11.00 MiB")
    host = dataclasses.replace(miss, binding=Binding.HOST_MEMORY)
    assert [place_of(host, count) for count in (1, 2)] == [
        "host memory",
        "some rank's host memory",
    ]


def test_counts_that_nothing_decided_are_named_beside_the_reason() -> None:
    """Else one would take them for proven to fail."""
    counts = [a_count(number, Verdict.UNDECIDED) for number in range(2, 6)]
    certificate = a_certificate(
        counts=(a_count(1), *counts), fewest_at_any_speed=None, rate_at_any_speed=None
    )
    lines = explain(an_infeasible(certificate=certificate))
    assert "undecided: 2 to 5 GPUs, which no proof rules out" in lines
    assert not [x for x in explain(an_infeasible()) if x.startswith("undecided")]


def test_numbers_in_a_row_are_written_as_a_range() -> None:
    """Three of them or more."""
    assert numbers_text([1, 2, 4, 6, 7, 8]) == "1, 2, 4, 6 to 8"


def test_emulated_devices_are_never_called_gpus() -> None:
    """In no line of any answer; and real GPUs are called so."""
    fixed = Override(num_gpus=4, micro_batch=1)
    for problem in (
        a_question(900),
        a_question(900, override=fixed),
        a_question(900, objective=Objective(goal=Goal.MAXIMIZE_THROUGHPUT)),
        a_question(400, limits=Limits(max_gpus=2)),
        a_question(900, override=Override(num_gpus=16), limits=Limits(max_gpus=16)),
    ):
        answer = solve(problem)
        lines = explain(answer)
        if isinstance(answer, Solution):
            lines += [why_text(problem, answer), headline_text(problem, answer)]
            lines.append(nodes_text(answer.plan))
        assert "device" in " ".join(lines)
        assert "GPU" not in " ".join(lines)
    assert explain(a_solution())[0].startswith("4 GPUs: ")


def test_every_binding_has_its_words() -> None:
    """Rate, batch, engine and machines are named as well as memory."""
    slow = NearestMiss(
        binding=Binding.RATE, samples_per_s=1.25, needed_samples_per_s=2.5
    )
    rate = a_count(3, binding=Binding.RATE, nearest_miss=slow)
    assert "at most 1.25 samples/s, needs 2.5 (for all seconds" in count_text(
        rate, SPACE
    )
    reasons = {
        Binding.BATCH: "the global batch does not divide",
        Binding.ENGINE: "fewer micro-batches than stages",
        Binding.GPU_LIMIT: "not that many machines",
    }
    for binding, words in reasons.items():
        count = a_count(3, binding=binding, nearest_miss=None)
        assert words in count_text(count, SPACE)


@pytest.mark.parametrize(
    ("fixed", "excluded"),
    [
        (Override(num_stages=2), [1, 3]),
        (Override(cuts=(0, 2)), [1, 3]),
        (Override(data_degree=3), [1, 2]),
        (Override(num_stages=2, data_degree=2), [1, 2, 3]),
        (Override(num_gpus=3), [1, 2]),
        (Override(micro_batch=2), []),
    ],
)
def test_what_is_fixed_is_named_where_it_excludes_a_count(
    fixed: Override, excluded: list[int]
) -> None:
    """One device does for one stage: it fails by the hand that fixed two."""
    space = dataclasses.replace(SPACE, override=fixed)
    counts = [
        a_count(number, binding=Binding.GPU_LIMIT, nearest_miss=None)
        for number in (1, 2, 3)
    ]
    found = [
        count.num_gpus
        for count in counts
        if reason_text(count, space) == "outside what was fixed by hand"
    ]
    assert found == excluded


def test_a_measured_profile_is_not_told_to_be_measured() -> None:
    """Work that nobody could count concerns other devices then."""
    profile = a_problem().profile
    kind = UncountedOperator(kind=0, operator="aten.sort")
    holed = dataclasses.replace(profile, uncounted=(kind,))
    assert "--source measured" in uncounted_text(holed)
    assert "--source measured" not in uncounted_text(holed, is_measured=True)


def test_an_undecided_count_says_how_many_are_open() -> None:
    """Never sold as a proof."""
    text = count_text(a_count(3, Verdict.UNDECIDED), SPACE)
    assert "1 of 1 combinations are open" in text
    counts = (a_count(1), a_count(2, Verdict.UNDECIDED), a_count(3, Verdict.FITS))
    certificate = a_certificate(counts=counts, fewest_at_any_speed=3)
    assert certificate_lines(certificate) == ["fewest: 3 GPUs found; undecided: 2"]


def test_the_headline_says_why_one_fewer_fails() -> None:
    """And the fewest at any speed, where that is another count."""
    certificate = a_certificate(fewest_at_any_speed=2, rate_at_any_speed=0.09)
    assert certificate_lines(certificate) == [
        "fewest: 4 GPUs; 3 fail: rank 0, backward: needs 11.00 MiB, has 10.00 MiB",
        "fewest at any speed: 2 GPUs, at 9% of the best rate per GPU",
    ]
    one = a_certificate(counts=(a_count(1, Verdict.FITS),), fewest_at_any_speed=1)
    assert certificate_lines(one) == ["fewest: 1 GPU"]


def test_a_count_that_was_fixed_is_not_sold_as_the_fewest() -> None:
    """Smaller counts were left out by hand, and the proof holds within that."""
    answer = solved(a_question(9000, override=Override(num_gpus=4)))
    assert certificate_lines(answer.certificate)[0] == (
        "fewest: 4 devices at 0.06897 samples/s or more; "
        "fewer devices are outside what was fixed or allowed"
    )
    assert ending_text(answer) == "proven within what is fixed by hand"
    even = solved(a_question(900, override=Override(data_degree=2)))
    assert even.plan.num_gpus == 6
    assert "; 4 fail: on h200-8, rank " in certificate_lines(even.certificate)[0]


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


def test_a_plan_that_may_not_be_the_least_is_told_apart_from_its_count() -> None:
    """Gaps of memory and rate are shown, rounded up; the smallest of them are not."""
    answer = a_solution(memory_gap=0.0541, rate_gap=0.1)
    text = why_text(a_problem(), answer)
    assert "a plan as fast with up to 5.5 % less memory" in text
    assert "a fastest plan that is up to 10 % faster" in text
    assert "the count is proven" in ending_text(answer)
    close = a_solution(memory_gap=0.0002)
    assert "not excluded" not in why_text(a_problem(), close)
    assert ending_text(close) == ending_text(a_solution())


def test_what_was_pruned_is_said_and_not_every_plan_called_compared() -> None:
    """Smaller counts fail all the same; a better plan of the count is not excluded."""
    certificate = a_certificate(pruned="3 of 9 runs")
    assert certificate.is_proof
    assert not certificate.is_exhaustive
    assert "not compared: 3 of 9 runs" in certificate_lines(certificate)
    assert "every combination was searched" in ending_text(a_solution())
    text = ending_text(a_solution(certificate=certificate))
    assert text == "proven, though not every plan was compared"


@pytest.mark.parametrize(
    ("termination", "gap", "words"),
    [
        (Termination.OPTIMAL, 0.0, "proven"),
        (Termination.WORK_LIMIT, 1.0, "before the work limit"),
        (Termination.TIME_LIMIT, 1.0, "in time"),
        (Termination.WITHIN_GAP, 0.25, "a plan up to 25 % better is not excluded"),
    ],
)
def test_every_ending_has_its_words(
    termination: Termination, gap: float, words: str
) -> None:
    """Optimal is the word for a proof alone."""
    answer = a_solution(termination=termination, gap=gap)
    assert words in ending_text(answer)
    assert ("proven" in ending_text(answer)) is (termination is Termination.OPTIMAL)


def test_the_space_is_told_with_all_its_limits() -> None:
    """Fewest means nothing without the space it was searched in."""
    space = dataclasses.replace(
        a_certificate().space,
        limits=Limits(
            max_gpus=16,
            headroom=0.1,
            pipeline_degrees=(1, 2),
            schedules=(Schedule.ONE_F_ONE_B,),
            max_micro_batch=4,
        ),
        override=Override(
            num_gpus=4, cuts=(0, 3), micro_batch=2, recomputed_layers=(1, 2)
        ),
        least_micro_batch=2,
    )
    assert space_text(space) == (
        "1 to 16 GPUs; 1 offer; schedules 1F1B; stages 1, 2; micro-batch from 2, "
        "the least profiled; micro-batch up to 4; 10% of the memory kept free; fixed "
        "by hand: GPUs 4, micro-batch 2, cuts 0,3, 2 recomputed layers; without offload"
    )


def test_an_explanation_has_every_count() -> None:
    """Headline, certificate, space, warnings, then a line for each count."""
    lines = explain(a_solution(warnings=("mind this",)))
    assert lines[0] == "4 GPUs: proven, every combination was searched"
    assert "warning: mind this" in lines
    first = lines.index(" GPUs  verdict") + 1
    assert [line.split()[0] for line in lines[first : first + 4]] == [*"1234"]
    assert lines[first + 4 :] == rule_lines([Rule.SEARCHED])


def test_no_plan_says_what_would_do() -> None:
    """Binding, nearest miss, nearest change."""
    assert explain(an_infeasible())[:3] == [
        "no plan: memory binds",
        "nearest miss: rank 0, backward: needs 11.00 MiB, has 10.00 MiB",
        f"would do: {an_infeasible().nearest_change}",
    ]
    assert MIB == 2**20


def test_a_miss_names_its_offer() -> None:
    """Several offers are searched, and the numbers are those of one of them."""
    assert miss_text(a_miss(offer=1), OFFERS, 2).startswith("on other (spot), rank 0, ")
    slow = NearestMiss(
        binding=Binding.RATE, offer=0, samples_per_s=1.0, needed_samples_per_s=2.0
    )
    assert miss_text(slow, OFFERS, 2).startswith("on h200-8, at most 1 samples/s")


def test_the_fewest_are_told_with_the_floor_they_reach() -> None:
    """Fewest means nothing without the speed that was asked for."""
    counts = (a_count(1), a_count(2, Verdict.FITS, floor_samples_per_s=1.5))
    certificate = a_certificate(counts=counts, fewest_at_any_speed=2)
    (line,) = certificate_lines(certificate)
    assert line.startswith("fewest: 2 GPUs at 1.5 samples/s or more; 1 fails: rank 0")


def test_rules_that_occur_are_told_in_words() -> None:
    """Every rule has words; those that decided nothing are left out."""
    assert len(rule_lines(Rule)) == len(Rule) + 1
    tuple_line, *rules = rule_lines([Rule.RATE_BOUND, Rule.RATE_BOUND])
    assert tuple_line.startswith("a combination is an offer, stages, replicas and")
    assert rules == ["  too slow: no plan that fits can reach the rate floor"]


@pytest.mark.parametrize(
    ("objective", "words"),
    [
        (Objective(), "the fewest GPUs at 50% of the best samples/s per GPU (`obj"),
        (Objective(throughput_tolerance=0.1), "least memory at most 10% slower than"),
        (Objective(min_samples_per_s=2.0), "GPUs at the samples/s that were asked"),
        (Objective(goal=Goal.MINIMIZE_MEMORY), "the least memory of any device at"),
        (Objective(goal=Goal.MINIMIZE_COST), "the least cost of the whole training"),
        (Objective(goal=Goal.MAXIMIZE_THROUGHPUT), "the most samples/s"),
    ],
)
def test_why_this_plan_is_told(objective: Objective, words: str) -> None:
    """The goal, its floor, and what was given up for less memory."""
    problem = a_problem(objective=objective, num_steps=10)
    assert words in why_text(problem, a_solution())
    by_hand = a_solution(termination=Termination.FIXED, gap=1.0)
    assert why_text(problem, by_hand).startswith("why: what was fixed by hand")


@pytest.mark.parametrize(
    ("num_steps", "text"),
    [
        (1, "1 step: 1 s"),
        (600, "600 steps: 10.0 min"),
        (9**6, "531441 steps: 6.2 d"),
    ],
)
def test_a_whole_training_has_a_duration_and_a_cost(num_steps: int, text: str) -> None:
    """In the unit that people would use; a cost only where a price is known."""
    assert training_text(a_plan(), num_steps) == text
    priced = a_plan(price_per_hour=Decimal("36.00"), currency="USD")
    assert training_text(priced, num_steps) == f"{text}, {num_steps / 100:.2f} USD"


def test_devices_that_are_paid_for_and_idle_are_told() -> None:
    """A node is bought whole: 4 ranks on a node of 8 leave 4."""
    assert nodes_text(a_plan()) == "1 node of 8 GPUs: 8 paid for, 4 used"
    full = an_offer(devices_per_node=2)
    pods = PodShape(num_pods=2, gpus_per_pod=2, host_memory_bytes_per_pod=0)
    assert nodes_text(a_plan(offers=(full,), pods=pods)) == "2 nodes"


def test_a_count_that_no_placement_was_found_for_is_open_and_says_so() -> None:
    """A measured profile would not narrow it; combinations have devices, not stages."""
    question = a_tight_question()
    limits = dataclasses.replace(question.limits, pipeline_degrees=(1, 2))
    lines = explain(solved(dataclasses.replace(question, limits=limits)))
    [first] = [line for line in lines if line.startswith("      1  undecided")]
    assert "no placement that fits was found, and no bound says that there is" in first
    assert not any("narrow the intervals" in line for line in lines)
    assert any("devices 1, 2;" in line for line in lines)
    assert (
        "a combination is an offer, devices, replicas and a micro-batch; decided "
        in (" ".join(lines))
    )
