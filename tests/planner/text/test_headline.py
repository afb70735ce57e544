"""An answer in one line, for people who read no more."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

from plimsoll_planner.records.interval import SecondsInterval, Verdict
from plimsoll_planner.records.objective import Goal, Objective
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.plan import HybridPlan, PodShape
from plimsoll_planner.text.headline import headline_text
from tests.support.builders import (
    a_certificate,
    a_count,
    a_plan,
    a_problem,
    a_solution,
    a_stage,
)
from tests.support.questions import a_question, solved

TWO_RANKS: dict[str, Any] = {
    "stages": (a_stage(0, 2, (0,), in_flight_cap=2), a_stage(2, 4, (1,))),
    "num_micro_batches": 8,
    "pods": PodShape(num_pods=1, gpus_per_pod=2, host_memory_bytes_per_pod=0),
}


def priced(**fields: Any) -> HybridPlan:
    """Build a plan on a node of 8 at 36 USD an hour, with steps of one second."""
    return a_plan(price_per_hour=Decimal(36), currency="USD", **fields)


def test_the_one_line_has_plan_and_proof() -> None:
    """The count, of which device, and why one fewer does not do."""
    line = headline_text(a_problem(), a_solution(plan=a_plan()))
    assert line == (
        "fewest at half the best rate: 4 H200 of 139 GiB (at any speed: 4); "
        "3 fail at rank 0, backward, short by 1.00 MiB"
    )
    counts = (a_count(1), a_count(2, Verdict.FITS))
    alone = a_certificate(counts=counts, fewest_at_any_speed=2)
    two = a_solution(plan=a_plan(**TWO_RANKS), certificate=alone)
    assert "; 1 fails at rank 0, " in headline_text(a_problem(), two)
    miss = counts[0].nearest_miss
    assert miss is not None
    bound = replace(counts[0], nearest_miss=replace(miss, rank=None, phase=None))
    unplaced = replace(alone, counts=(bound, counts[1]))
    line = headline_text(a_problem(), replace(two, certificate=unplaced))
    assert "; 1 fails, short by " in line


def test_the_one_line_has_the_price_of_nodes_and_training() -> None:
    """The price by the hour, and the sum; the latter if steps are known."""
    answer = a_solution(plan=priced())
    node = "; h200-8: 1 node of 8 GPUs: 8 paid for, 4 used, 36.00 USD/h"
    assert headline_text(a_problem(), answer).endswith(node)
    line = headline_text(a_problem(num_steps=7200), answer)
    assert line.endswith(f"{node}; 7200 steps: 2.0 h, 72.00 USD")


def test_the_cheapest_says_what_few_gpus_would_cost() -> None:
    """Only where they are dearer, and no smaller count that fits is called failing."""
    problem = a_problem(
        num_steps=7200, objective=Objective(goal=Goal.MINIMIZE_COST, rate_floor=0.0)
    )
    fits = tuple(a_count(n, Verdict.FITS) for n in (2, 3, 4))
    counts = a_certificate(counts=(a_count(1), *fits), fewest_at_any_speed=2)

    def line(few_step_s: float) -> str:
        time = SecondsInterval(
            lower_s=few_step_s, expected_s=few_step_s, upper_s=few_step_s
        )
        few = priced(**TWO_RANKS, step_time=time)
        answer = a_solution(plan=priced(), certificate=counts, alternatives=(few,))
        return headline_text(problem, answer)

    assert line(3.0).endswith(
        "(at any speed: 2); h200-8: 1 node of 8 GPUs: 8 paid for, 4 used, 36.00 USD/h; "
        "7200 steps: 2.0 h, 72.00 USD; on 2 GPUs: 7200 steps: 6.0 h, 216.00 USD"
    )
    assert line(1.0).endswith("7200 steps: 2.0 h, 72.00 USD")


def test_the_one_line_does_not_sell_what_is_fixed_as_the_fewest() -> None:
    """Fixed and fitting has other words than fixed and not fitting."""
    fixed = a_question(900, override=Override(num_gpus=6))
    assert "(within what is fixed by hand)" in headline_text(fixed, solved(fixed))
    unfit = a_question(400, override=Override(num_gpus=2))
    assert headline_text(unfit, solved(unfit)).startswith("fixed by hand: 2 devices")
