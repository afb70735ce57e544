"""The question to the search, from a spec and what is known.

In: a spec, a profile, offers, calibrated overheads. Out: a `Problem`, or an error in
the words of the spec. Called where a plan is observed; equal spec and knowledge make
equal questions, whose digest is the key of their answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, Final

from plimsoll_operator.api.search_fields import field_name
from plimsoll_operator.api.spec import ProfileSource, TrainingPlanSpec
from plimsoll_planner.engines import GRAPH, engine_named, require_engine
from plimsoll_planner.errors import CannotPlanError, InvalidFieldError
from plimsoll_planner.overhead.built_in import with_built_in
from plimsoll_planner.records.device_overhead import DeviceOverhead
from plimsoll_planner.records.engine import EngineTraits
from plimsoll_planner.records.limits import Limits
from plimsoll_planner.records.model_profile import ModelProfile
from plimsoll_planner.records.offer import Offer
from plimsoll_planner.records.problem import (
    Problem,
    check_fixed,
    check_placing,
    check_prices,
    check_whole_nodes,
)
from plimsoll_planner.search_fields import FIELDS, problem_parts
from plimsoll_planner.vocabulary import IN_SPEC

MOST_TUPLES: Final = 15_000
"""Work limit of a search, so that its answer does not depend on a clock: minutes on one
core. 100 layers on up to 512 GPUs are 14,229 of them, by T = 1, 2, 4 and 8."""


def question_of(
    spec: TrainingPlanSpec,
    profile: ModelProfile,
    offers: Sequence[Offer],
    overheads: Iterable[DeviceOverhead],
) -> Problem:
    """Question to the search; offers of other devices than the profile's do not count.

    `overheads` are calibrated; built-in ones stand in for what is missing.

    Raises:
        InvalidInputError: no offer is of the profile's kind, or parts contradict.
    """
    mine = tuple(offer for offer in offers if offer.device_kind is profile.device_kind)
    with IN_SPEC.errors():
        return Problem(
            profile=profile,
            overheads=with_built_in(overheads, mine),
            offers=mine,
            engine=engine_of(spec, profile),
            **parts_of(spec),
        )


def require_sound(spec: TrainingPlanSpec, offers: Sequence[Offer]) -> None:
    """Refuse, before anything is profiled, what no profile could make right.

    Raises:
        InvalidInputError: parts of the spec contradict each other or the offers.
    """
    require_seconds(spec, offers)
    with IN_SPEC.errors():
        check_engine(spec)
        asked = parts_of(spec)
        check_whole_nodes(asked["limits"], asked["objective"])
        check_prices(offers, asked["objective"])
        check_fixed(asked["global_batch_size"], asked["limits"], asked["override"])
        if spec.search.engine == GRAPH.engine:
            check_placing(asked["limits"], asked["override"])


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
    """Engine that trains, as it is on the profile's torch."""
    check_engine(spec)
    return engine_named(spec.search.engine, profile.fingerprint.torch_version)


def parts_of(spec: TrainingPlanSpec) -> dict[str, Any]:
    """Arguments of a `Problem` that a spec sets, and the work limit.

    Every stored spec has its defaults: a limit that equals its default is as if unset.
    """
    values: dict[str, object] = {"limits.max_tuples": MOST_TUPLES}
    for row in FIELDS:
        if not row.spec:
            continue
        _, part, name = row.spec.split(".")
        value = getattr(getattr(spec, part), field_name(name))
        if value != row.given:
            values[row.record] = float(value) if isinstance(value, Decimal) else value
    return problem_parts(values)


def limits_of(spec: TrainingPlanSpec) -> Limits:
    """The space that is searched; what is fixed lies within it."""
    limits: Limits = parts_of(spec)["limits"]
    return limits
