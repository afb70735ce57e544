"""The course of a training: its loss and the seconds of its latest steps.

In: a record. Out: charts. Called by `page`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median

from plimsoll_cli.output.scales import seconds_text
from plimsoll_cli.report.charts import Chart, Mark, Plane
from plimsoll_cli.state.run_record import RunRecord
from plimsoll_operator.rules.observed_state import RevisionState
from plimsoll_planner.records.observation import Observation
from plimsoll_planner.records.plan import HybridPlan


def loss_chart(record: RunRecord) -> Chart | None:
    """The loss by step; None before there are two that are numbers."""
    points = [(float(s), loss) for s, loss in record.losses if math.isfinite(loss)]
    if len(points) < 2:  # noqa: PLR2004 - no line has fewer points
        return None
    plane = Plane.holding(points)
    first, last = points[0], points[-1]
    lost = len(record.losses) - len(points)
    return Chart(
        title="Loss",
        spoken=f"Loss by step, from {first[1]:.4g} at step {first[0]:g} to "
        f"{last[1]:.4g} at step {last[0]:g}"
        + (f"; {lost} steps without a finite loss are left out" if lost else ""),
        x_label="step",
        y_label="loss",
        x_ticks=plane.x_ticks(whole=True),
        y_ticks=plane.y_ticks(),
        line=plane.line(points),
        marks=tuple(
            Mark(x=plane.x(x), y=plane.y(y), text=text)
            for (x, y), text in (
                *((first, ""), (last, f"{last[1]:.4g}")),
                *revised_points(record, points),
            )
        ),
    )


def revised_points(
    record: RunRecord, points: Sequence[tuple[float, float]]
) -> Iterator[tuple[tuple[float, float], str]]:
    """Yield the points at which the plan was revised, and by which revision."""
    for one in record.revisions:
        if one.recorded.state is RevisionState.FOLLOWED:
            step = one.recorded.num_steps
            before = [point for point in points if point[0] <= step]
            yield (before or points)[-1], f"revision {one.recorded.number}"


def latest_steps(observations: tuple[Observation, ...]) -> list[tuple[float, float]]:
    """The latest steps that every rank reports, with the seconds of the slowest.

    Ranks report the seconds of their latest steps; all have finished the last of them
    that the slowest rank has.
    """
    reported = [
        dict(zip(range(one.num_steps, 0, -1), reversed(one.step_s), strict=False))
        for one in observations
        if one.step_s
    ]
    everywhere = set[int]().union(*reported).intersection(*reported)
    return [
        (float(step), max(s[step] for s in reported)) for step in sorted(everywhere)
    ]


def step_chart(record: RunRecord, plan: HybridPlan) -> Chart | None:
    """The seconds of the latest steps beside what was predicted."""
    points = latest_steps(record.observations)
    if len(points) < 2:  # noqa: PLR2004 - no line has fewer points
        return None
    predicted = plan.step_time
    band: tuple[float, float] | None = None
    rule: tuple[float, str] | None = None
    ends = [] if predicted is None else [(points[0][0], predicted.upper_s)]
    plane = Plane.holding([*points, *ends], y_zero=True)
    middle = median(s for _, s in points)
    spoken = f"Seconds of the latest {len(points)} steps, median {seconds_text(middle)}"
    if predicted is not None:
        spoken += (
            f"; predicted {seconds_text(predicted.expected_s)}, between "
            f"{seconds_text(predicted.lower_s)} and {seconds_text(predicted.upper_s)}"
        )
        top, bottom = plane.y(predicted.upper_s), plane.y(predicted.lower_s)
        band = (top, round(bottom - top, 1))
        rule = (plane.y(predicted.expected_s), "predicted")
    return Chart(
        title="Step time",
        spoken=spoken,
        x_label="step",
        y_label="seconds",
        x_ticks=plane.x_ticks(whole=True),
        y_ticks=plane.y_ticks(),
        line=plane.line(points),
        band=band,
        rule=rule,
    )
