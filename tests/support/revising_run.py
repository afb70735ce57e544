"""Runs `plimsoll`, and revises the plan that runs again and again, at random.

`python -m tests.support.revising_run WORDS...`: whatever is observed is a reason to
search, and each answer has other cuts, and other layers that recompute, than the plan
before. All else is as it is: rules, records, files, ranks.
"""

from __future__ import annotations

import random
import sys

from plimsoll_cli.__main__ import main
from plimsoll_operator.backends.local import loop
from plimsoll_operator.solving import revise_cache
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.revision import Cause, Revision, cuts_of, num_layers_of
from plimsoll_planner.revising.observed import ObservedStages
from tests.support.plans import revision_of

DICE = random.Random()  # noqa: S311 - no secret


def seen(plan: HybridPlan, limits: object, reports: object) -> ObservedStages:
    """Stages that are never as planned."""
    del limits, reports
    count = len(plan.stages)
    return ObservedStages(
        passes_s=(0.0,) * count, lacking_bytes=(0,) * count, cause=Cause.PACE
    )


def answer(asked: revise_cache.ReviseQuestion, problem: object) -> Revision:
    """Another plan of the same stages."""
    del problem
    plan = asked.plan
    num_layers, cuts = num_layers_of(plan), cuts_of(plan)
    while True:
        inner = sorted(DICE.sample(range(1, num_layers), len(cuts) - 1))
        if (0, *inner) != cuts:
            break
    again = DICE.sample(range(num_layers), DICE.randint(0, 3))
    return revision_of(plan, (0, *inner, num_layers), again)


if __name__ == "__main__":
    for owner, name, value in (
        (revise_cache, "observed_stages", seen),
        (revise_cache, "LEAST_PAUSE_S", 0.0),
        (revise_cache.ReviseQuestion, "answer", answer),
        (loop, "LOOK_S", 0.1),
    ):
        setattr(owner, name, value)
    sys.exit(main(sys.argv[1:]))
