"""Places between two axes."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from plimsoll_cli.report.charts import (
    BOTTOM,
    HEIGHT,
    LEFT,
    MOST_BUCKETS,
    NARROW,
    RIGHT,
    RING_HEIGHT,
    TOP,
    WIDTH,
    Mark,
    Plane,
    thinned,
    uncrowded,
)

POINTS = st.lists(
    st.tuples(st.integers(0, 10**6).map(float), st.floats(-1e6, 1e6)), min_size=1
)


@given(POINTS, st.booleans())
def test_every_point_lies_between_the_axes(
    points: list[tuple[float, float]], from_zero: bool
) -> None:
    """In the box that the margins leave, and higher values are higher up."""
    plane = Plane.holding(points, x_zero=from_zero)
    for x, y in points:
        assert LEFT <= plane.x(x) <= WIDTH - RIGHT
        assert TOP - 0.1 <= plane.y(y) <= HEIGHT - BOTTOM + 0.1
    low, high = min(y for _, y in points), max(y for _, y in points)
    assert plane.y(high) <= plane.y(low)
    assert all(LEFT <= place <= WIDTH - RIGHT for place, _ in plane.x_ticks())
    assert all(TOP <= place <= HEIGHT - BOTTOM for place, _ in plane.y_ticks())


def test_heights_between_small_steps_stay_in_the_picture() -> None:
    """They end at 0.15; of these heights alone the next step would be drawn too."""
    plane = Plane.holding([(1.0, 0.01), (2.0, 0.11)])
    assert [text for _, text in plane.y_ticks()] == ["0", "0.05", "0.1", "0.15"]


def test_whole_ticks_are_whole() -> None:
    """There is no step one and a half."""
    plane = Plane.holding([(1.0, 0.0), (3.0, 1.0)])
    assert [text for _, text in plane.x_ticks(whole=True)] == ["1", "2", "3"]
    assert "1.5" in [text for _, text in plane.x_ticks()]


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=3000))
def test_a_long_line_keeps_its_extremes(values: list[float]) -> None:
    """First to last, in order, with the least and the most; not too many points."""
    points = [(float(place), value) for place, value in enumerate(values)]
    kept = thinned(points)
    assert set(kept) <= set(points)
    assert kept == sorted(kept)
    assert kept[-1] == points[-1]
    assert len(kept) <= 2 * MOST_BUCKETS + 1
    assert min(values) == min(y for _, y in kept)
    assert max(values) == max(y for _, y in kept)


def test_a_spike_is_not_thinned_away() -> None:
    """One step of a hundred thousand that went wrong is seen."""
    points = [(float(step), math.sin(step)) for step in range(100_000)]
    points[54_321] = (54_321.0, 99.0)
    assert (54_321.0, 99.0) in thinned(points)


def test_a_ring_is_as_wide_as_its_number_and_covers_no_other() -> None:
    """What is chosen comes first, and is drawn last; the margin holds half a ring."""
    wide = Mark(x=100.0, y=50.0, text="128", is_front=True)
    assert wide.width > Mark(x=0.0, y=0.0, text="1").width == RING_HEIGHT
    assert Mark(x=0.0, y=0.0, text="1024").width <= 2 * NARROW
    near = replace(wide, x=120.0, is_chosen=True)
    far = replace(wide, y=50.0 + RING_HEIGHT)
    found = uncrowded([wide, near, far])
    assert found == (replace(wide, text=""), far, near)
