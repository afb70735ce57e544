"""Revisions at random, in the place of those that observations call for.

Whatever is observed is a reason to search, and each answer has other cuts, and other
layers that recompute, than the plan before. All else is as it is: rules, records,
ranks.
"""

from __future__ import annotations

import random
from dataclasses import replace

from plimsoll_operator.backends import commands
from plimsoll_operator.backends.local import loop
from plimsoll_operator.solving import revise_cache
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.revision import Cause, Revision, cuts_of, num_layers_of
from plimsoll_planner.revising.observed import ObservedStages
from plimsoll_planner.revising.revise import kept_world
from plimsoll_planner.search.build_plan import build_plan
from plimsoll_planner.search.planned import found_of
from plimsoll_planner.search.revised_search import RevisedSearch
from tests.support.plans import revision_of

DICE = random.Random()  # noqa: S311 - no secret


def install() -> None:
    """Let this process revise plans so."""
    for owner, name, value in (
        (revise_cache, "observed_stages", seen),
        (revise_cache, "LEAST_PAUSE_S", 0.0),
        (revise_cache.ReviseQuestion, "answer", answer),
        (loop, "LOOK_S", 0.1),
        (commands, "report_every_s", lambda _: 1.0),
    ):
        setattr(owner, name, value)


def seen(plan: HybridPlan, *others: object) -> ObservedStages:
    """Stages that are never as planned."""
    del others
    count = len(plan.stages)
    return ObservedStages(
        passes_s=(0.0,) * count, lacking_bytes=(0,) * count, cause=Cause.PACE
    )


def answer(asked: revise_cache.ReviseQuestion, problem: Problem) -> Revision:
    """Another plan of the same stages, with the peaks that it is predicted to have."""
    plan = asked.plan
    num_layers, cuts = num_layers_of(plan), cuts_of(plan)
    while True:
        inner = sorted(DICE.sample(range(1, num_layers), len(cuts) - 1))
        if (0, *inner) != cuts:
            break
    again = DICE.sample(range(num_layers), DICE.randint(0, 3))
    revision = revision_of(plan, (0, *inner, num_layers), again)
    search = RevisedSearch(problem, plan)
    found = found_of(search, revision.plan, search.candidate)
    after = kept_world(plan, build_plan(search, found))
    return replace(revision, plan=after or revision.plan)
