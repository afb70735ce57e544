"""The question to the search, from a spec and what is known.

In: a spec, a profile, offers, calibrated overheads. Out: a `Problem`, or an error in
the words of the spec. Called where a plan is observed; equal spec and knowledge make
equal questions, whose digest is the key of their answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from plimsoll_operator.api.spec import (
    PlanOverride,
    ProfileSource,
    Search,
    TrainingPlanSpec,
)
from plimsoll_operator.rules.spec_paths import told_in_spec
from plimsoll_planner.engines import engine_named, require_engine
from plimsoll_planner.errors import CannotPlanError, InvalidFieldError
from plimsoll_planner.overheads import with_built_in
from plimsoll_planner.records.device_overhead import DeviceOverhead
from plimsoll_planner.records.engine import EngineTraits
from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.records.problem import (
    Limits,
    Objective,
    Override,
    Problem,
    check_batch,
    check_prices,
    check_whole_nodes,
)

MOST_TUPLES: Final = 10_000
"""Work limit of a search, so that its answer does not depend on a clock: minutes on one
core. 100 layers on up to 4,096 GPUs are 3,000 of them."""


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
    mine = tuple(offer for offer in offers if offer.device_kind is profile.device_kind)
    with told_in_spec():
        check_most_gpus(spec)
        return Problem(
            profile=profile,
            overheads=with_built_in(overheads, mine),
            offers=mine,
            engine=engine_of(spec, profile),
            global_batch_size=spec.training.global_batch_size,
            num_steps=spec.training.steps,
            limits=limits_of(spec),
            objective=objective_of(spec),
            override=override_of(spec.override),
            batch_statistics=spec.training.batch_statistics,
        )


def require_sound(spec: TrainingPlanSpec, offers: Sequence[Offer]) -> None:
    """Refuse, before anything is profiled, what no profile could make right.

    Raises:
        InvalidInputError: parts of the spec contradict each other or the offers.
    """
    require_seconds(spec, offers)
    with told_in_spec():
        check_engine(spec)
        check_whole_nodes(limits_of(spec), objective_of(spec))
        check_prices(offers, objective_of(spec))
        check_most_gpus(spec)
        check_batch(
            spec.training.global_batch_size, limits_of(spec), override_of(spec.override)
        )


def check_most_gpus(spec: TrainingPlanSpec) -> None:
    """Raise `InvalidFieldError` if more is fixed than a limit that somebody set allows.

    The default, which every stored spec has, is widened instead (`limits_of`).
    """
    most, needed = spec.search.max_gpus, override_of(spec.override).least_gpus
    if most < needed and most != Search().max_gpus:
        rule = f"at least {needed}, which what is fixed needs; or leave it out"
        raise InvalidFieldError("Problem.limits.max_gpus", most, rule)


def require_seconds(spec: TrainingPlanSpec, offers: Sequence[Offer]) -> None:
    """Refuse a trace, which counts work, where no rate turns work into seconds.

    Raises:
        InvalidFieldError: no offer states a rate, as those of this machine.
    """
    if spec.profile.source is not ProfileSource.TRACED:
        return
    if offers and not any(offer.compute_rates for offer in offers):
        rule = (
            f"Auto or Measured: a trace has no seconds, and {offers[0].name} states no "
            "rate to make them from"
        )
        raise InvalidFieldError("spec.profile.source", spec.profile.source.value, rule)


def check_engine(spec: TrainingPlanSpec) -> None:
    """Raise `CannotPlanError` if no engine has the name that the spec gives."""
    try:
        require_engine(spec.search.engine)
    except CannotPlanError as error:
        raise CannotPlanError(f"spec.search.engine: {error}") from None


def engine_of(spec: TrainingPlanSpec, profile: ModelProfile) -> EngineTraits:
    """Return the engine that trains, as it is on the profile's torch."""
    check_engine(spec)
    return engine_named(spec.search.engine, profile.fingerprint.torch_version)


def limits_of(spec: TrainingPlanSpec) -> Limits:
    """Return the space that is searched; what is fixed lies within it."""
    search, fixed = spec.search, override_of(spec.override)
    return Limits(
        max_gpus=max(search.max_gpus, fixed.least_gpus),
        headroom=float(search.headroom),
        max_micro_batch=search.max_micro_batch,
        whole_nodes=search.whole_nodes,
        max_tuples=MOST_TUPLES,
    )


def objective_of(spec: TrainingPlanSpec) -> Objective:
    """Return what is looked for."""
    search = spec.search
    rate = search.min_samples_per_second
    return Objective(
        goal=search.objective,
        rate_floor=float(search.rate_floor),
        min_samples_per_s=None if rate is None else float(rate),
        throughput_tolerance=float(search.throughput_tolerance),
        deadline_s=search.deadline_seconds,
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
