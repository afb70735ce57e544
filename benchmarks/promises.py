"""Do answers keep what they promise? Against all plans of small random questions.

    proof        no count certified to fail is the answer, for any seconds drawn from
                 inside their intervals, with relative and absolute floors
    memory       no plan of the count that is as fast needs less memory
    freedom      with more to choose from (recompute, then cuts as well) a plan that is
                 as fast is never heavier

Questions are of every kind (`random_questions.mixed`): with layers whose optimizer
state replicas may divide, with ranks that share cores, with any number in flight.
How many: PROOFS and PLANS in the environment, 2,000 and 3,000 unless given. The plans
of half the questions are listed in each of two processes.
"""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from collections.abc import Iterator
from multiprocessing import Pool

from rich.progress import track

from benchmarks.frame import Goal, Measurement, run
from plimsoll_planner.records.certificate import Binding
from plimsoll_planner.records.solution import Solution
from plimsoll_planner.search.answer import solve
from tests.support.brute_force import (
    heavier_than_needed,
    heavier_with_freedom,
    wrongly_failed,
)
from tests.support.random_questions import mixed

NUM_PROOFS = int(os.environ.get("PROOFS", "2000"))
NUM_PLANS = int(os.environ.get("PLANS", "3000"))
NUM_FREEDOMS = NUM_PLANS // 10


def judge_proof(seed: int) -> Counter[str]:
    """Counts certified to fail that may be the answer, of one question."""
    question = mixed(seed)
    answer = solve(question.problem())
    found = Counter({"questions": 1})
    dice = random.Random(seed)  # noqa: S311 - no secret
    for text in wrongly_failed(question, answer, dice):
        print(f"question {seed}: {text}", file=sys.stderr)
        found["wrong"] += 1
    found["fail by rate"] += any(
        count.binding is Binding.RATE for count in answer.certificate.counts
    )
    found["at equal error"] += any(
        count.is_slow_at_equal_error for count in answer.certificate.counts
    )
    return found


def judge_plan(seed: int) -> Counter[str]:
    """Whether the plan of one question is heavier than what is promised."""
    problem = mixed(seed).problem()
    answer = solve(problem)
    if not isinstance(answer, Solution):
        return Counter()
    is_open = answer.memory_gap > 0 or answer.rate_gap > 0
    found = Counter({"plans": 1, "open": int(is_open)})
    for text in heavier_than_needed(problem, answer):
        found["heavier, and open" if is_open else "heavier"] += 1
        if not is_open:
            print(f"question {seed}: {text}", file=sys.stderr)
    return found


def judge_freedom(seed: int) -> Counter[str]:
    """Whether more freedom made the plan of one question heavier at the same speed."""
    found = Counter({"freedoms": 1})
    for text, is_open in heavier_with_freedom(mixed(seed).problem()):
        found["freer and heavier, and open" if is_open else "freer and heavier"] += 1
        if not is_open:
            print(f"question {seed}: {text}", file=sys.stderr)
    return found


def measure() -> Iterator[Measurement]:
    """Yield the figures."""
    total: Counter[str] = Counter()
    with Pool(os.cpu_count()) as pool:
        for judge, number in (
            (judge_proof, NUM_PROOFS),
            (judge_plan, NUM_PLANS),
            (judge_freedom, NUM_FREEDOMS),
        ):
            done = pool.imap_unordered(judge, range(number), chunksize=8)
            for found in track(done, judge.__name__, total=number):
                total.update(found)
    yield figure(
        f"of {total['questions']} questions ({total['fail by rate']} with a count that "
        f"fails by rate), counts that fail and may be the answer",
        total["wrong"],
        Goal(at_most=0),
    )
    yield figure(
        "of them, questions with a count too slow at equal relative error alone",
        total["at equal error"],
    )
    yield figure(
        f"of {total['plans']} plans, heavier than one as fast, and not said to be",
        total["heavier"],
        Goal(at_most=0),
    )
    yield figure("of them, said not to be proven the least", total["open"])
    yield figure("of those, heavier than one as fast", total["heavier, and open"])
    yield figure(
        f"of {total['freedoms']} questions, tuples heavier with more freedom as fast, "
        "and not said to be",
        total["freer and heavier"],
        Goal(at_most=0),
    )
    yield figure(
        "of them, heavier and said not to be proven the least",
        total["freer and heavier, and open"],
        Goal(at_most=0),
    )


def figure(name: str, number: int, goal: Goal | None = None) -> Measurement:
    """A number of cases."""
    return Measurement(name=name, runs=(float(number),), unit="", goal=goal)


if __name__ == "__main__":
    sys.exit(run("promises", measure))
