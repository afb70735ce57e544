"""What `run` says at the end, and `get` and `describe` whenever they are asked.

In: a `RunRecord`. Out: lines and tables for a terminal.
"""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll_cli.report.record import RunRecord
from plimsoll_operator.api.status import ConditionType
from plimsoll_planner.explain import counted


def outcome_lines(record: RunRecord) -> Iterator[str]:
    """Yield how a plan ended, or where it stands, in a few lines."""
    planned = record.status.condition(ConditionType.PLANNED)
    if planned is not None and planned.message:
        yield planned.message
    if record.losses and record.plan is not None:
        (_, first), (step, last) = record.losses[0], record.losses[-1]
        yield f"trained {counted(step, 'step')}, loss {first:.3g} -> {last:.3g}"
    if record.status.observed is not None and record.observations:
        error = record.status.observed.error_percent
        yield f"worst error of the predicted peaks {error:.2g} %"
    ended = record.status.condition(ConditionType.SUCCEEDED)
    if ended is not None and ended.status != "True":
        message = f": {ended.message}" if ended.message else ""
        yield f"{ended.reason}{message}"
