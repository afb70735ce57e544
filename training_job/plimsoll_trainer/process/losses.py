"""Whether a step has a loss, and what to say if it has none."""

from __future__ import annotations

import math
from pathlib import Path

from plimsoll_trainer.errors import NoLossError, WorkloadError

GO_ON = (
    "stops_at_nan: false, a field of Workload and an argument of finetune, trains on "
    "regardless"
)


def no_loss(what: str, loss: float, step: int, good: Path | None) -> NoLossError:
    """Error for a loss that is not finite, found with the weights after a step.

    The weights of that step are no good, and those before it are if nobody has found
    the same of them.

    Args:
        what: that has the loss, as in "step 7".
        loss: not finite.
        step: steps finished when it was found.
        good: the newest checkpoint of fewer steps.
    """
    if good is not None:
        kept = f"the last good checkpoint is {good}"
    elif step:
        kept = "nothing was saved before it"
    else:
        kept = "nothing was trained yet"
    return NoLossError(
        f"the loss of {what} is {loss}, so training stops: {kept}; lower the learning "
        f"rate, or look at the samples; {GO_ON}"
    )


def check_count(count: float, step: int) -> None:
    """Refuse a step, counted from 1, whose gradients were divided by nothing.

    Raises:
        WorkloadError: its count is 0, not finite, or was below 0 in a micro-batch.
    """
    if count == 0:
        raise WorkloadError(
            f"the loss counts 0 in all of step {step}, so nothing is trained: let "
            "every global batch have a sample that counts"
        )
    if not math.isfinite(count):
        raise WorkloadError(
            f"the loss counts what is not finite or below 0 in step {step}, so nothing "
            "can be divided by it: return the sum over what counts, and how many count"
        )
