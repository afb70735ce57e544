"""A plan that was written down, as the search has it.

In: a problem and a plan that answers it. Out: its tuple and a `Found`. Called by
whoever computes with a plan that is there already: `timeline`, `revised_search`.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll_planner.records.offer import Offer
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_planner.records.problem import Problem
from plimsoll_planner.records.strategy import Mesh, Strategy
from plimsoll_planner.search.found import Found
from plimsoll_planner.search.space import Candidate
from plimsoll_planner.search.tuple_search import TupleSearch
from plimsoll_planner.techniques import choice_of


def candidate_of(plan: HybridPlan, mesh: Mesh, offers: Sequence[Offer]) -> Candidate:
    """Tuple of a plan whose stages have one mesh and run on one of some offers."""
    return Candidate(
        offer=offers.index(plan.offers[0]),
        strategy=Strategy(
            mesh=mesh,
            schedule=plan.schedule,
            sequence_parallel=plan.stages[0].variant.sequence_parallel,
        ),
        micro_batch=plan.micro_batch,
        num_micro_batches=plan.num_micro_batches,
        gpus_per_pod=plan.pods.gpus_per_pod,
    )


def found_of(search: TupleSearch, plan: HybridPlan, candidate: Candidate) -> Found:
    """The plan, without bounds, seconds and peaks."""
    problem: Problem = search.problem
    cuts = tuple(stage.chunks[0].first_layer for stage in plan.stages)
    return Found(
        candidate=candidate,
        cuts=search.tables.groups(cuts),
        recomputed=tuple(stage.not_kept for stage in plan.stages),
        choices=tuple(choice_of(stage, problem) for stage in plan.stages),
        bound_s=0.0,
        step_s=0.0,
        peaks=(),
    )
