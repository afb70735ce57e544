"""Numbers in flight of given cuts against all vectors of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from plimsoll_planner.search.plan_caps import CapSearch, NumberBounds, Vector
from plimsoll_planner.search.stage_options import StageOption
from tests.support.in_flight import follow

Steps = list[list[float]]
"""Step bound of each stage by number in flight, from 1 on; 99 where it does not fit."""


@st.composite
def pipelines(draw: st.DrawFn) -> Steps:
    """Draw step bounds of up to four stages; with one in flight each fits."""
    stages = draw(st.integers(1, 4))
    bounds = st.sampled_from([1.0, 2.0, 3.0, 4.0, 99.0])
    return [
        [draw(st.sampled_from([2.0, 5.0])), *(draw(bounds) for _ in range(left - 1))]
        for left in range(stages, 0, -1)
    ]


def option_of(steps: Steps) -> Callable[[int, int], StageOption]:
    """Options with these bounds."""

    def option(stage: int, in_flight: int) -> StageOption:
        step_s = steps[stage][in_flight - 1]
        return StageOption(
            exceeds=step_s == 99.0,
            step_s=step_s,
            end_s=0.0,
            peak=in_flight,
            choice=0,
            option=0,
            added_s=(0.0, 0.0),
            least_passes_s=(0.0, 0.0),
            forward_s=0.0,
            backward_s=0.0,
            in_flight=in_flight,
            least_s=min(steps[stage][:in_flight]),
        )

    return option


@given(pipelines(), st.lists(st.integers(0, 2), min_size=1, max_size=5))
def test_the_best_of_all_numbers_is_found(steps: Steps, excess: list[int]) -> None:
    """With few stages; a walk is somewhat above the largest bound of its stages."""
    caps = [range(1, len(mine) + 1) for mine in steps]
    walks = {
        vector: max(own[k - 1] for own, k in zip(steps, vector, strict=True)) + more
        for vector, more in zip(
            itertools.product(*caps), itertools.cycle(excess), strict=False
        )
        if follow(vector)
    }
    fitting = [step_s for step_s in walks.values() if step_s < 99]
    search = search_of(steps, walks.__getitem__)
    assert search.run() == search.best[0] == min(fitting)
    assert walks[search.best[1]] == min(fitting)


@given(pipelines(), st.floats(0, 6))
def test_nothing_is_found_that_is_not_below_a_limit(
    steps: Steps, below_s: float
) -> None:
    """The bound is the limit then, else the shortest step."""
    option = option_of(steps)
    numbers = itertools.product(*(range(1, len(mine) + 1) for mine in steps))

    def step_s(vector: Vector) -> float:
        return max(option(stage, k).step_s for stage, k in enumerate(vector))

    search = search_of(steps, step_s, below_s)
    assert search.run() == min(below_s, *map(step_s, filter(follow, numbers)))
    assert search.best[1] == () or search.best[0] < below_s


def search_of(
    steps: Steps, step_s: Callable[[Vector], float], below_s: float = float("inf")
) -> CapSearch:
    """Search whose stages do not wait for one another."""
    return CapSearch(
        caps=[range(1, len(mine) + 1) for mine in steps],
        option=option_of(steps),
        step_s=step_s,
        bounds=NumberBounds(),
        below_s=below_s,
    )
