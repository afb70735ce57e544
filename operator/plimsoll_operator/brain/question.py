"""The question to the search, from a spec and what is known.

In: a spec, a profile, offers, calibrated overheads. Out: a `Problem`. Called by the
effect that solves; the same spec and knowledge make the same question, whose digest is
the key of its answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from plimsoll_operator.api.spec import PlanOverride, TrainingPlanSpec
from plimsoll_planner.engines import engine_named
from plimsoll_planner.overheads import with_built_in
from plimsoll_planner.records.device_overhead import DeviceOverhead
from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.records.problem import Limits, Objective, Override, Problem


def question_of(
    spec: TrainingPlanSpec,
    profile: ModelProfile,
    offers: Sequence[Offer],
    overheads: Iterable[DeviceOverhead],
) -> Problem:
    """Return the problem.

    Args:
        spec: what a person asks for.
        profile: of its workload.
        offers: all that are known; those of another kind of device do not count.
        overheads: calibrated ones; built-in ones stand in for what is missing.

    Raises:
        InvalidInputError: no offer is of the profile's kind, or parts contradict.
    """
    search, fixed = spec.search, override_of(spec.override)
    mine = tuple(offer for offer in offers if offer.device_kind is profile.device_kind)
    rate = search.min_samples_per_second
    return Problem(
        profile=profile,
        overheads=with_built_in(overheads, mine),
        offers=mine,
        engine=engine_named(search.engine),
        global_batch_size=spec.training.global_batch_size,
        num_steps=spec.training.steps,
        limits=Limits(
            max_gpus=max(search.max_gpus, fixed.least_gpus),
            headroom=float(search.headroom),
            max_micro_batch=search.max_micro_batch,
        ),
        objective=Objective(
            goal=search.objective,
            rate_floor=float(search.rate_floor),
            min_samples_per_s=None if rate is None else float(rate),
            throughput_tolerance=float(search.throughput_tolerance),
            deadline_s=search.deadline_seconds,
        ),
        override=fixed,
    )


def override_of(given: PlanOverride) -> Override:
    """Return what a person fixed, as the search names it."""
    return Override(
        num_gpus=given.gpus,
        num_stages=given.pipeline,
        data_degree=given.data,
        micro_batch=given.micro_batch,
        cuts=given.cuts,
        recomputed_layers=given.recomputed_layers,
    )
