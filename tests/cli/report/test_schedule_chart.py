"""The drawing of a step: rows, their passes and the text about them."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import pytest

pytest.importorskip("numpy")

from plimsoll_cli.report.schedule_chart import (
    LEAST_MICRO_BATCHES,
    LEFT,
    RIGHT,
    WIDTH,
    ScheduleView,
    schedule_view,
)
from plimsoll_planner.records.override import Override
from plimsoll_planner.records.problem import Problem
from tests.support.questions import a_device, a_question, solved

PASS = re.compile(r"M(?P<left>[\d.]+) (?P<y>\d+)h(?P<width>[\d.]+)v\d+h-[\d.]+z")


def drawn(problem: Problem) -> ScheduleView:
    """Draw the plan that answers a question."""
    view = schedule_view(problem, solved(problem).plan)
    assert view is not None
    return view


def question(count: int, stages: int = 2) -> Problem:
    """Ask for some stages and micro-batches of one sample."""
    return a_question(
        offers=(a_device(5000),),
        global_batch_size=count,
        override=Override(num_gpus=stages, num_stages=stages, micro_batch=1),
    )


def spans(path: str) -> list[tuple[float, float]]:
    """From where to where the passes of a path go."""
    found = PASS.findall(path)
    assert "".join(m.group() for m in PASS.finditer(path)) == path
    return [(float(left), float(left) + float(width)) for left, _, width in found]


def test_every_pass_of_a_step_is_drawn_once() -> None:
    """Four forward and four backward passes a stage, one after the other."""
    view = drawn(question(4))
    assert view.take.startswith("1F1B, as predicted: one step, ")
    for row in view.rows:
        both = [spans(row.paths[kind]) for kind in ("F", "B")]
        assert [len(found) for found in both] == [4, 4]
        ordered = sorted(both[0] + both[1])
        for (_, end), (begin, _) in pairwise(ordered):
            assert begin >= end - 0.11
        assert ordered[0][0] >= LEFT
        assert ordered[-1][1] <= WIDTH - RIGHT + 0.11
        numbers = [n.text for n in row.numbers if n.kind == "B"]
        assert numbers == ["0", "1", "2", "3"]


def test_of_a_long_step_the_beginning_is_drawn() -> None:
    """It says so, and how long the whole step is; the size does not grow with it."""
    view = drawn(question(512))
    assert f"the first {LEAST_MICRO_BATCHES} of 512 micro-batches" in view.take
    size = sum(len(path) for row in view.rows for path in row.paths.values())
    assert size < 10_000
    edge = WIDTH - RIGHT
    ends = [s[-1][1] for row in view.rows for s in map(spans, row.paths.values())]
    assert max(ends) == pytest.approx(edge, abs=0.11)


def test_one_stage_has_one_row() -> None:
    """Without a pipeline a step is forward and backward in turn, and always busy."""
    view = drawn(question(2, stages=1))
    [row] = view.rows
    assert row.busy == "100%"
    assert view.spoken.endswith("stage 0 computes 100% of it")


def test_without_seconds_there_is_no_chart() -> None:
    """A plan that nobody timed, or whose problem is not known."""
    problem = question(2)
    plan = solved(problem).plan
    assert schedule_view(None, plan) is None
    assert schedule_view(problem, replace(plan, step_time=None)) is None
