"""One sample of a workload's evaluation, made and compared with those of training.

In: a workload, and the boundaries of its training. Called by the prober, so that a
profile refuses what cannot be evaluated on, and by each rank before its first step: the
first evaluation may come hours later.
"""

from __future__ import annotations

from dataclasses import replace

from plimsoll_trainer.engine.batches import DEBUG, make_batch
from plimsoll_trainer.engine.boundaries import Boundaries, cast_inputs
from plimsoll_trainer.engine.tensor_specs import TensorSpec
from plimsoll_trainer.errors import TrainerError, WorkloadError, located
from plimsoll_trainer.workload import Workload


def check_evaluation(workload: Workload, boundaries: Boundaries) -> None:
    """Make one sample of the evaluation, and compare it with those of training.

    Raises:
        WorkloadError: it cannot be made, or has another form.
    """
    evaluation = workload.evaluation
    if evaluation is None:
        return
    try:
        number = evaluation.number
        made = make_batch(replace(workload, batch=evaluation.batch), 0, 0, 1)
    except TrainerError as error:
        raise WorkloadError(f"evaluation: {error}") from error
    except Exception as error:
        raise WorkloadError(
            f"evaluation: batch(0, 0, 1) raises {located(error)}; {DEBUG}"
        ) from error
    inputs, targets = made
    trained = (*boundaries.inputs, boundaries.targets)
    parts = (*cast_inputs(inputs, workload), targets)
    for place, (part, spec) in enumerate(zip(parts, trained, strict=True)):
        what = "targets" if place == len(inputs) else "inputs"
        if part.dtype != spec.dtype or tuple(part.shape[1:]) != spec.shape[1:]:
            raise WorkloadError(
                f"evaluation: {what} of one of {number} samples are "
                f"{TensorSpec.of(part)}, and those of {spec.shape[0]} in training "
                f"{spec}: give samples of the same shape and type"
            )
