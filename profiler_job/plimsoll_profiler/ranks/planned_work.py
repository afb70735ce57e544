"""The workload of a plan, with what its ranks do; refuses what belongs to other code.

In: a plan, the profile that it was made from, the entry point. Out: the workload and
the assignment of its ranks. Called where a plan is replayed or rehearsed.
"""

from __future__ import annotations

from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_trainer.process.assignment import Assignment, assign
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
    arguments = plan.fingerprint.arguments
    here = fingerprint_of(entrypoint, arguments)
    require_same(here, plan.fingerprint, entrypoint)
    require_same(here, profile.fingerprint, entrypoint)
    workload = load_workload(entrypoint, parse_arguments(arguments))
    return workload, assign(plan, workload, (profile,))
