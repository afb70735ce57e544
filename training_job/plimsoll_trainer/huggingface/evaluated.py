"""Evaluation as the arguments of an entry point name it.

    evaluation: {data: held-out.jsonl, every_steps: 100, patience: 5}

In: fields from YAML. Out: an `Evaluation`. Called by `workloads`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from plimsoll_planner.records.bounds import Count, Index
from plimsoll_planner.records.record import Record
from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.evaluation import EarlyStop, Evaluation, Samples
from plimsoll_trainer.typed import NotNegative, fields_of, mapping


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationFields(Record):
    """Fields beside the data; see `Evaluation` and `EarlyStop`."""

    every_steps: Index = 0
    num_samples: Count | None = None
    patience: Count | None = None
    min_delta: NotNegative | None = None


def evaluation_of(
    given: object, samples: Callable[[Any], Samples]
) -> Evaluation | None:
    """Evaluation of some fields; `samples` makes a data set of what `data` names.

    Raises:
        WorkloadError: a field is unknown, senseless or missing.
    """
    if given is None:
        return None
    rest: dict[str, Any] = dict(mapping(given, "evaluation"))
    data = rest.pop("data", None)
    fields = fields_of(EvaluationFields, rest, "evaluation")
    if data is None:
        raise WorkloadError(
            "evaluation has no data: give some that training does not see"
        )
    early_stop = None
    if fields.patience is not None or fields.min_delta is not None:
        early_stop = EarlyStop(
            patience=fields.patience or 1, min_delta=fields.min_delta or 0.0
        )
    return Evaluation(
        data=samples(data),
        num_samples=fields.num_samples,
        every_steps=fields.every_steps,
        early_stop=early_stop,
    )
