"""Whether this plan may run here at all, before torch is even imported.

In: the options, and where this process stands. Out: what was read. A plan for another
number of ranks, other code or other versions ends within a second.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from plimsoll_planner.records.document import load
from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_planner.records.plan import HybridPlan
from plimsoll_trainer.errors import PlanMismatchError, TrainerError
from plimsoll_trainer.process.options import Options
from plimsoll_trainer.user_code.fingerprint import fingerprint_of, require_same

TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
"""Variables that torchrun sets for each process, all of them or none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Place of this process among those that were started together."""

    rank: int
    num_ranks: int
    local_rank: int

    @classmethod
    def from_environment(cls) -> Place:
        """Place that torchrun sets; without it this is the only rank.

        Raises:
            PlanMismatchError: it is set in part, or makes no sense.
        """
        found = {name: os.environ.get(name) for name in TORCHRUN}
        if set(found.values()) == {None}:
            return cls(rank=0, num_ranks=1, local_rank=0)
        for name, text in found.items():
            if text is None:
                raise bad_start(f"{name} is not set")
            if not text.isdecimal():
                raise bad_start(f"{name}={text} is no whole number")
        rank, num_ranks, local_rank = (int(text or 0) for text in found.values())
        if rank >= num_ranks:
            raise bad_start(f"RANK={rank} is not below WORLD_SIZE={num_ranks}")
        return cls(rank=rank, num_ranks=num_ranks, local_rank=local_rank)


def bad_start(fault: str) -> PlanMismatchError:
    """Error for a wrong environment."""
    return PlanMismatchError(
        f"{fault} in the environment: start the ranks with torchrun, or unset "
        f"{', '.join(TORCHRUN)} to run alone"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Admitted:
    """A plan that is for this world and this code."""

    options: Options
    place: Place
    plan: HybridPlan
    profiles: tuple[ModelProfile, ...]


def admit(options: Options, place: Place) -> Admitted:
    """Read the plan and refuse it where it is for something else.

    Raises:
        InvalidInputError: the plan or a profile cannot be read.
        PlanMismatchError: the plan is for another number of ranks.
        TrainerError: reports would go nowhere.
        ForeignFingerprintError, MissingSourceError: it is for other code, or none.
        WorkloadError: the arguments of the entry point are no JSON object.
    """
    plan = load(options.plan, HybridPlan)
    check_world(plan, place.num_ranks)
    check_report_file(options.report_file)
    profiles = tuple(load(path, ModelProfile) for path in options.fingerprint_from)
    here = fingerprint_of(options.entrypoint, plan.fingerprint.arguments)
    require_same(here, plan.fingerprint, options.entrypoint)
    return Admitted(options=options, place=place, plan=plan, profiles=profiles)


def check_world(plan: HybridPlan, num_ranks: int) -> None:
    """Refuse a world of another size.

    Raises:
        PlanMismatchError: the plan is for another number of ranks.
    """
    if plan.num_gpus != num_ranks:
        raise PlanMismatchError(
            f"the plan is for {plan.num_gpus} ranks, but there are {num_ranks}: start "
            f"{plan.num_gpus} (torchrun --nproc-per-node), or plan for {num_ranks}"
        )


def check_report_file(path: str | None) -> None:
    """Refuse a file of reports that could not be made.

    Raises:
        TrainerError: its folder is not there.
    """
    folder = Path(path or "").parent
    if not folder.is_dir():
        raise TrainerError(
            f"--report-file {path}: there is no folder {folder}; make it, or name "
            "another file"
        )
