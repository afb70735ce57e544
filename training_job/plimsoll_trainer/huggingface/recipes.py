"""Optimizer, learning rate and precision as the arguments of an entry point name them.

    optimizer: adamw                    or {name: sgd, momentum: 0.9}
    schedule: constant                  or {name: cosine, num_steps: 1000, floor: 0.1}
    precision: bf16

In: names and numbers from YAML. Out: fields of a `Workload`. Called by the
entry points.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from plimsoll_planner.records.bounds import Fraction, Index
from plimsoll_planner.records.precision import Precision
from plimsoll_planner.records.record import Record
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.optimizers import optimizer_named
from plimsoll_trainer.schedules import Schedule, schedule_named
from plimsoll_trainer.typed import fields_of
from plimsoll_trainer.workload import MakeOptimizer

Named = str | Mapping[str, Any]
"""A name, or the name and further fields."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleFields(Record):
    """Fields of a schedule beside its name; see `schedules`."""

    num_steps: Index = 0
    warmup_steps: Index = 0
    floor: Fraction = 0.0


def recipe_of(
    *,
    precision: str,
    optimizer: Named,
    learning_rate: float,
    weight_decay: float,
    schedule: Named,
) -> dict[str, Any]:
    """Fields of a `Workload` that all entry points name alike.

    Raises:
        WorkloadError: a name or a field is unknown.
    """
    return {
        "precision": precision_of(precision),
        "optimizer": optimizer_of(
            optimizer, learning_rate=learning_rate, weight_decay=weight_decay
        ),
        "learning_rate_factor": schedule_of(schedule),
    }


def optimizer_of(
    given: Named, *, learning_rate: float, weight_decay: float
) -> MakeOptimizer:
    """Optimizer of a name; fields of its own win over the two that all have.

    Raises:
        WorkloadError: there is none of that name, or a field is unknown.
    """
    name, fields = name_and_fields("optimizer", given)
    common = {"learning_rate": learning_rate, "weight_decay": weight_decay}
    return optimizer_named(name, **(common | fields))


def schedule_of(given: Named) -> Schedule:
    """Learning rate by step.

    Raises:
        WorkloadError: there is none of that name, or a field is unknown.
    """
    name, fields = name_and_fields("schedule", given)
    found = fields_of(ScheduleFields, fields, "schedule")
    return schedule_named(
        name,
        num_steps=found.num_steps,
        warmup_steps=found.warmup_steps,
        floor=found.floor,
    )


def name_and_fields(what: str, given: Named) -> tuple[str, dict[str, Any]]:
    """The name, and the fields beside it.

    Raises:
        WorkloadError: there is no name.
    """
    fields = dict(given) if isinstance(given, Mapping) else {"name": given}
    name = fields.pop("name", None)
    if not isinstance(name, str):
        raise WorkloadError(
            f"{what} {given!r} has no name: give one, or fields such as {{name: ...}}"
        )
    return name, fields


def precision_of(name: str) -> Precision:
    """Precision of a name.

    Raises:
        WorkloadError: there is none.
    """
    if name not in list(Precision):
        raise WorkloadError(
            f"precision {name!r}: one of {', '.join(Precision)} is needed"
        )
    return Precision(name)
