"""Which tuples there are."""

from __future__ import annotations

from plimsoll_planner.records.certificate import Rule
from plimsoll_planner.search.space import candidates
from tests.support.builders import a_probe, a_problem, a_profile


def test_no_micro_batch_is_smaller_than_what_was_profiled() -> None:
    """Layers may refuse so few samples, so such tuples are not in the space."""
    problem = a_problem(
        profile=a_profile(probes=(a_probe(micro_batch=2), a_probe(micro_batch=4))),
        global_batch_size=4,
    )
    assert [c.micro_batch for c in candidates(problem, 2, 1)] == [2, 4]
    assert [c.rule for c in candidates(problem, 1, 4)] == [Rule.OUTSIDE_LIMITS]
