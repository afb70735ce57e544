"""Next-fit groups against all cuts and all numbers in flight."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_planner.memory.bounds import Floats
from plimsoll_planner.search.next_fit import CLOSE, least_period


@st.composite
def pipelines(draw: st.DrawFn) -> tuple[Floats, list[Floats]]:
    """Draw seconds of runs, fewer with fewer in flight, and links."""
    size, stages = draw(st.integers(2, 6)), draw(st.integers(1, 4))
    stages = min(stages, size)
    own = np.array(draw(st.lists(st.integers(1, 9), min_size=size, max_size=size)))
    extra = draw(
        st.lists(st.sampled_from([0, 1, 3, 100]), min_size=stages, max_size=stages)
    )
    sums = np.append(0, own.cumsum())
    runs = (sums[None, :] - sums[:-1, None]).astype(np.float64)
    runs[np.tri(size, size + 1, dtype=np.bool_)] = np.inf
    rising = np.cumsum(extra)  # more in flight recompute more, until nothing fits
    loads = np.stack([np.where(more < 50, runs + more, np.inf) for more in rising])
    links = [
        np.full(size + 1, float(draw(st.sampled_from([0, 1, 3, 20]))))
        for _ in range(stages - 1)
    ]
    return loads, links


def every_period(loads: Floats, links: list[Floats]) -> Iterator[float]:
    """Yield the longest cycle of all cuts and numbers that do not rise."""
    size, stages = loads.shape[1], len(links) + 1
    for inner in itertools.combinations(range(1, size), stages - 1):
        cuts = (0, *inner, size)
        for numbers in itertools.product(range(1, len(loads) + 1), repeat=stages):
            if list(numbers) != sorted(numbers, reverse=True):
                continue
            if any(k > stages - s for s, k in enumerate(numbers)):
                continue
            own = [
                float(loads[k - 1, cuts[s], cuts[s + 1]]) for s, k in enumerate(numbers)
            ]
            delays = [float(link[cut]) for link, cut in zip(links, inner, strict=True)]
            yield max(
                (sum(own[s : t + 1]) + sum(delays[s:t])) / (numbers[s] - numbers[t] + 1)
                for s in range(stages)
                for t in range(s, stages)
            )


@given(pipelines())
def test_the_least_period_is_that_of_all_plans(
    drawn: tuple[Floats, list[Floats]],
) -> None:
    """To within the tolerance; none is found where nothing fits, or only too slowly."""
    loads, links = drawn
    least = min(every_period(loads, links))
    found = least_period(loads, links)
    if least == np.inf:
        assert found is None
        return
    assert found is not None
    assert least <= found.period_s <= least * (1 + 2 * CLOSE)
    assert list(found.in_flight) == sorted(found.in_flight, reverse=True)
    assert len(found.cuts) == len(links) + 1
    assert least_period(loads, links, least * (1 - CLOSE)) is None
    assert least_period(loads, links, least * (1 + CLOSE)) is not None
