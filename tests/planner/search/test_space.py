"""Which tuples there are."""

from __future__ import annotations

from plimsoll_planner.records.certificate import Rule
from plimsoll_planner.search.space import families_of, members_of
from tests.support.builders import a_probe, a_problem, a_profile


def test_no_micro_batch_is_smaller_than_what_was_profiled() -> None:
    """Layers may refuse so few samples, so such tuples are not in the space."""
    problem = a_problem(
        profile=a_profile(probes=(a_probe(micro_batch=2), a_probe(micro_batch=4))),
        global_batch_size=4,
    )
    tuples = members_of(families_of(problem, 2, 1))
    assert [c.micro_batch for c in tuples] == [2, 4]
    assert [f.rule for f in families_of(problem, 1, 4)] == [Rule.OUTSIDE_LIMITS]
