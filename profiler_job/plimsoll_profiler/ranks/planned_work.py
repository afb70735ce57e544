"""The workload of a plan, with what its ranks do; refuses what belongs to other code.

In: a plan, the profile that it was made from, the entry point. Out: the workload and
the assignment of its ranks. Called where a plan is replayed or rehearsed.
"""

from __future__ import annotations

from plimsoll_planner.graph.placed import require_exact
from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_planner.records.placement_plan import PlacementPlan
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_trainer.process.assignment import Assignment, assign
from plimsoll_trainer.process.placed_run import PlacedAssignment, assign_placed
from plimsoll_trainer.user_code.arguments import parse_arguments
from plimsoll_trainer.user_code.entrypoint import load_workload
from plimsoll_trainer.user_code.fingerprint import fingerprint_of, require_same
from plimsoll_trainer.workload import Workload


def planned_work(
    plan: HybridPlan, profile: ModelProfile, entrypoint: str
) -> tuple[Workload, Assignment]:
    """The workload of a plan, and the work of its ranks.

    Raises:
        TrainerError: plan, profile and workload do not belong together, or cannot be
            run.
    """
    workload = own_workload(plan, profile, entrypoint)
    return workload, assign(plan, workload, (profile,))


def placed_work(
    plan: HybridPlan, placement: PlacementPlan, profile: ModelProfile, entrypoint: str
) -> PlacedAssignment:
    """The work of a placement's ranks, with the workload.

    Raises:
        TrainerError: see `planned_work`.
        InvalidInputError: peaks, sends or bounds of the placement do not follow from
            the graph of the profile.
    """
    workload = own_workload(plan, profile, entrypoint)
    for one in profile.graphs:
        if one.micro_batch == plan.micro_batch:
            require_exact(placement, one.graph)
    return assign_placed(plan, placement, workload, (profile,))


def own_workload(plan: HybridPlan, profile: ModelProfile, entrypoint: str) -> Workload:
    """The workload of a plan.

    Raises:
        TrainerError: plan, profile and workload do not belong together.
    """
    arguments = plan.fingerprint.arguments
    here = fingerprint_of(entrypoint, arguments)
    require_same(here, plan.fingerprint, entrypoint)
    require_same(here, profile.fingerprint, entrypoint)
    return load_workload(entrypoint, parse_arguments(arguments))
