"""Evaluation as the arguments of an entry point name it.

    evaluation: {data: held-out.jsonl, every_steps: 100, patience: 5}

In: fields from YAML. Out: an `Evaluation`. Called by `workloads`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from plimsoll_trainer.errors import WorkloadError
from plimsoll_trainer.evaluation import EarlyStop, Evaluation, Samples

FIELDS = ("data", "every_steps", "num_samples", "patience", "min_delta")


def evaluation_of(
    given: Mapping[str, Any] | None, samples: Callable[[Any], Samples]
) -> Evaluation | None:
    """Evaluation of some fields; `samples` makes a data set of what `data` names.

    Raises:
        WorkloadError: a field is unknown, senseless or missing.
    """
    if given is None:
        return None
    for name in given:
        if name not in FIELDS:
            raise WorkloadError(
                f"evaluation has no field {name!r}: it takes {', '.join(FIELDS)}"
            )
    if "data" not in given:
        raise WorkloadError(
            "evaluation has no data: give some that training does not see"
        )
    early_stop = None
    if "patience" in given or "min_delta" in given:
        early_stop = EarlyStop(
            patience=given.get("patience", 1), min_delta=given.get("min_delta", 0.0)
        )
    return Evaluation(
        data=samples(given["data"]),
        num_samples=given.get("num_samples"),
        every_steps=given.get("every_steps", 0),
        early_stop=early_stop,
    )
