"""The state of one plan of this machine: its store and its processes.

In: a plan. Out: a `LocalState`, for a decision. Nothing changes but one thing: the
question to the search is written down when it can be asked first, because free memory
and calibrations, which go into it, change from one time to the next. None is written
while an attempt is open, or once the plan is over.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from plimsoll_operator.api.spec import LaunchPolicy, Rehearse, TrainingPlanSpec
from plimsoll_operator.backends.commands import TRAINER
from plimsoll_operator.backends.local.rank_reports import WorkerGroupReports
from plimsoll_operator.backends.local.task_processes import TaskProcesses
from plimsoll_operator.backends.planning_state import (
    PlanningState,
    observed_profile,
    with_answer,
    with_running,
)
from plimsoll_operator.rules.observed_state import ObservedProfile, TaskKind
from plimsoll_operator.rules.preparing import is_current
from plimsoll_operator.rules.profile_request import ProfileRequest, profile_request_of
from plimsoll_operator.rules.question import require_sound
from plimsoll_operator.solving.revise_cache import ReviseCache
from plimsoll_operator.solving.solve_cache import SolveCache, SolveRequest
from plimsoll_operator.store.attempts import StoredAttempt
from plimsoll_operator.store.plans import StoredPlan
from plimsoll_operator.store.profiles import StoredProfile
from plimsoll_operator.store.store import Store
from plimsoll_planner.errors import InvalidInputError
from plimsoll_planner.records.model_profile import DeviceKind, Fingerprint
from plimsoll_planner.records.offer import Offer


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalState(PlanningState):
    """State of a plan on one machine, with the plan of record of each attempt."""

    attempts: tuple[StoredAttempt, ...] = ()


class LocalObserver:
    """Observes the plans of a state directory."""

    def __init__(self, store: Store, gpu_products: Collection[str]) -> None:
        """Observe the store of a state directory, beside GPUs of these products."""
        self._store = store
        self._gpu_products = gpu_products
        self._reports: dict[tuple[str, int], WorkerGroupReports] = {}
        """By plan and attempt; read on from where the last look ended."""
        self._found: dict[str, float | None] = {}
        """By plan: since when there was the profile that was there first."""
        self._code: dict[str, Fingerprint | None] = {}
        """By plan: what its code was when that profile was held to it."""
        self.solve_cache = SolveCache(store)
        self.revise_cache = ReviseCache(store)

    def profile_request(self, plan: StoredPlan) -> ProfileRequest:
        """The profile that a plan asks for."""
        kind = plan.offers[0].device_kind
        is_here = kind is DeviceKind.EMULATED or bool(self._gpu_products)
        return profile_request_of(plan.spec, plan.offers, plan.folder, is_here=is_here)

    async def observe(self, plan: StoredPlan, processes: TaskProcesses) -> LocalState:
        """The state of one plan."""
        wanted = self.profile_request(plan)
        profile = await self._store.profiles.find(wanted.key)
        self._found.setdefault(plan.uid, profile.made_s if profile else None)
        attempts = await self._store.attempts.of(plan.uid)
        observed_one = (
            None if profile is None else await self._profile(plan, wanted, profile)
        )
        state = LocalState(
            complaint=complaint_of(
                plan.spec, plan.offers, gpu_products=self._gpu_products
            ),
            profile=observed_one,
            profile_key=wanted.key,
            profile_request=wanted,
            offers=plan.offers,
            has_device=can_rehearse(plan.offers, self._gpu_products),
            attempts=attempts,
            tasks=processes.observe(),
        )
        if attempts:
            latest = attempts[-1]
            reports = self.reports(plan, latest, processes)
            reported = reports.observations or await self._store.observations.of(
                plan.uid, latest.number
            )
            running = await self.revise_cache.running(
                *(plan.uid, latest, latest.plan, reported, plan.spec.training.steps),
            )
            state = with_running(state, running)
        is_settled = plan.status.is_over or (attempts and attempts[-1].ending is None)
        if is_settled or profile is None or not is_current(plan.spec, state):
            return state
        request = SolveRequest(
            uid=plan.uid,
            generation=plan.generation,
            spec=plan.spec,
            offers=plan.offers,
            attempts=attempts,
        )
        return await with_answer(state, self.solve_cache, request, profile)

    async def _profile(
        self, plan: StoredPlan, wanted: ProfileRequest, profile: StoredProfile
    ) -> ObservedProfile:
        """A profile as a decision looks at it; an old one is held to the code.

        Old is what was there when the plan was first observed. It is held once: what
        changes under way is found by whatever is started.
        """
        is_old = self._found[plan.uid] == profile.made_s
        if is_old and plan.uid not in self._code:
            self._code[plan.uid] = await fingerprint_now(plan)
        here = self._code[plan.uid] if is_old else None
        return replace(
            observed_profile(plan.created_s, wanted, profile),
            is_of_this_code=here in (None, profile.profile.fingerprint),
        )

    def reports(
        self, plan: StoredPlan, attempt: StoredAttempt, processes: TaskProcesses
    ) -> WorkerGroupReports:
        """Reports of the ranks of an attempt so far."""
        place = plan.uid, attempt.number
        if place not in self._reports:
            key = TaskKind.TRAIN, str(attempt.number)
            folder = processes.folder(*key)
            logs = processes.logs(*key)
            folder = logs if logs.exists() and not folder.exists() else folder
            self._reports[place] = WorkerGroupReports(folder, attempt.plan.num_gpus)
        self._reports[place].read()
        return self._reports[place]


async def fingerprint_now(plan: StoredPlan) -> Fingerprint | None:
    """Fingerprint of a plan's entry point now; None if it cannot be computed.

    The trainer computes it in a process of its own, which does not load torch (0.2 s).
    """
    workload = plan.spec.workload
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", f"{TRAINER}.user_code.fingerprint"),
            *(workload.entrypoint, workload.args),
            cwd=plan.folder,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return None  # its folder is gone
    output, _ = await process.communicate()
    if process.returncode:
        return None
    try:
        return Fingerprint.from_json(json.loads(output), "fingerprint")
    except (ValueError, InvalidInputError):
        return None


def can_rehearse(offers: Sequence[Offer], gpu_products: Collection[str]) -> bool:
    """Whether this machine has the device of all offers, and no other GPU beside it.

    Of GPUs that differ, it is not known on which one a rank would be rehearsed.
    """
    return all(
        one.device_kind is DeviceKind.EMULATED
        or set(gpu_products) == {one.device_product}
        for one in offers
    )


def complaint_of(
    spec: TrainingPlanSpec, offers: Sequence[Offer], *, gpu_products: Collection[str]
) -> str:
    """Complaint about a spec that is wrong or names a device that is not here."""
    has_device = offers[0].device_kind is DeviceKind.EMULATED or bool(gpu_products)
    if spec.launch.policy is LaunchPolicy.LAUNCH and not has_device:
        return (
            "spec.launch.policy: the offers are GPUs and this machine has none: use "
            "PlanOnly, run it where they are, or plan for --device cpu"
        )
    is_must = spec.launch.rehearse is Rehearse.ALWAYS
    if is_must and not can_rehearse(offers, gpu_products):
        wanted = ", ".join(sorted({one.device_product for one in offers}))
        here = ", ".join(sorted(gpu_products)) or "no GPU"
        return (
            f"spec.launch.rehearse: Always, but the offers are {wanted}, and this "
            f"machine has {here}: use IfDevice, or run it where they are"
        )
    try:
        require_sound(spec, offers)
    except InvalidInputError as error:
        return str(error)
    return ""
