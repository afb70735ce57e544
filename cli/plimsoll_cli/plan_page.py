"""What `run` says at the end, and `describe` whenever it is asked.

In: a `RunRecord`. Out: lines for a terminal.
"""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll_cli.report.record import RunRecord
from plimsoll_operator.api.status import ConditionType, Truth
from plimsoll_operator.brain.seen import Ending
from plimsoll_planner.explain import counted


def plan_lines(record: RunRecord) -> Iterator[str]:
    """Yield what is planned, in a line, where there is an answer."""
    planned = record.status.condition(ConditionType.PLANNED)
    if planned is not None and planned.message:
        yield planned.message


def outcome_lines(record: RunRecord) -> Iterator[str]:
    """Yield how a plan ended, or where it stands, in a few lines."""
    if record.losses and record.plan is not None:
        (_, first), (step, last) = record.losses[0], record.losses[-1]
        yield f"trained {counted(step, 'step')}, loss {first:.3g} -> {last:.3g}"
    has_trained = any(one.num_steps for one in record.observations)
    if record.status.observed is not None and has_trained:
        error = record.status.observed.error_percent
        yield f"worst error of the predicted peaks {error:.2g} %"
    ended = record.status.condition(ConditionType.SUCCEEDED)
    if ended is not None and ended.status is Truth.FALSE:
        is_told = ended.message in ("", *plan_lines(record))
        yield f"failed: {ended.reason}" + ("" if is_told else f": {ended.message}")
    is_saved = record.attempts and record.attempts[-1].ending is Ending.CHECKPOINTED
    if is_saved and not record.status.is_over:
        yield "stopped and saved: `plimsoll run` goes on from here"
